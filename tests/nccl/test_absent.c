/* test_absent.c: where NCCL or the driver of a GPU is not there, a group over nccl says what is missing and where it comes
 * from. A program of its own: it does not have the stand-in's folder in its search path. */
#include "support/test.h"

#include <lockstep/group.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void assert_refused(const char *said) {
    ls_group *group = NULL;
    const ls_group_options options = {.rank = 0, .world_size = 1, .backend = "nccl"};
    assert_int_equal(ls_group_open(&group, &options), LS_ERR_UNSUPPORTED);
    assert_null(group);
    if (!strstr(ls_last_error(), said)) fail_msg("\"%s\" is not in \"%s\"", said, ls_last_error());
}

static void a_missing_nccl_is_named_with_where_it_comes_from(void **state) {
    (void)state;
    void *library = dlopen("libnccl.so.2", RTLD_LAZY);
    if (library) { /* then the next test is what happens */
        dlclose(library);
        return;
    }
    assert_refused("the nccl backend needs libnccl.so.2, which cannot be opened");
    assert_refused("packages libnccl2 and nvidia-nccl-cu12");
}

static void a_missing_driver_is_named_with_what_to_do(void **state) {
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library) {
        dlclose(library);
        LS_SKIP("this machine has a GPU's driver");
    }
    setenv("LOCKSTEP_NCCL", LS_STAND_IN, 1);
    assert_refused("the nccl backend needs libcuda.so.1, which cannot be opened");
    assert_refused("without one choose shm, tcp or mpi");
    unsetenv("LOCKSTEP_NCCL");
}

static void the_backend_can_be_named_by_the_environment(void **state) {
    (void)state;
    ls_group *group = NULL;
    setenv("LOCKSTEP_BACKEND", "nccl", 1);
    setenv("LOCKSTEP_NCCL", "/nowhere/libnccl.so.2", 1);
    assert_int_equal(ls_group_open(&group, NULL), LS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "/nowhere/libnccl.so.2"));
    unsetenv("LOCKSTEP_NCCL");
    setenv("LOCKSTEP_BACKEND", "ncccl", 1);
    assert_int_equal(ls_group_open(&group, NULL), LS_ERR_ENVIRONMENT);
    assert_non_null(strstr(ls_last_error(), "\"nccl\""));
    unsetenv("LOCKSTEP_BACKEND");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_nccl_is_named_with_where_it_comes_from),
        cmocka_unit_test(a_missing_driver_is_named_with_what_to_do),
        cmocka_unit_test(the_backend_can_be_named_by_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
