/* test_kernels_choice.c: what LOCKSTEP_KERNELS does. It is read once a process, so each case is a child of its own. */
#include "support/test.h"

#include "tensor/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `claim` in a child under LOCKSTEP_KERNELS=value (NULL: unset); fails unless it holds. */
static void assert_under(const char *value, bool (*claim)(void)) {
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (value) {
            setenv("LOCKSTEP_KERNELS", value, 1);
        } else {
            unsetenv("LOCKSTEP_KERNELS");
        }
        _exit(claim() ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bool the_fastest_serves(void) {
    const ls_kernels *fast = kernels_onednn(LS_F32);
    return kernels_for(LS_F32) == (fast ? fast : kernels_reference(LS_F32)) &&
           kernels_for(LS_F64) == kernels_reference(LS_F64);
}

static bool the_reference_serves(void) {
    return kernels_for(LS_F32) == kernels_reference(LS_F32) && kernels_for(LS_F64) == kernels_reference(LS_F64);
}

static bool nothing_serves_and_the_error_names_the_value(void) {
    return !kernels_for(LS_F32) && strstr(ls_last_error(), "LOCKSTEP_KERNELS=cuda") && !kernels_for(LS_F64);
}

static bool onednn_serves_f32_or_its_absence_is_said(void) {
    const ls_kernels *fast = kernels_onednn(LS_F32);
    if (fast) return kernels_for(LS_F32) == fast && kernels_for(LS_F64) == kernels_reference(LS_F64);
    return !kernels_for(LS_F32) && strstr(ls_last_error(), "reference alone");
}

static void without_a_wish_the_fastest_kernels_serve(void **state) {
    (void)state;
    assert_under(NULL, the_fastest_serves);
    assert_under("", the_fastest_serves);
}

static void the_reference_can_be_asked_for(void **state) {
    (void)state;
    assert_under("reference", the_reference_serves);
}

static void onednn_can_be_asked_for(void **state) {
    (void)state;
    assert_under("onednn", onednn_serves_f32_or_its_absence_is_said);
}

static void an_unknown_wish_is_a_named_error(void **state) {
    (void)state;
    assert_under("cuda", nothing_serves_and_the_error_names_the_value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_wish_the_fastest_kernels_serve),
        cmocka_unit_test(the_reference_can_be_asked_for),
        cmocka_unit_test(onednn_can_be_asked_for),
        cmocka_unit_test(an_unknown_wish_is_a_named_error),
    };
    return cmocka_run_group_tests_name("kernels_choice", tests, NULL, NULL);
}
