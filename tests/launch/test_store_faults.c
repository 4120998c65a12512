/* A fault at every call in turn of a rank that uses the launcher's store. The program starts itself as that rank, so
 * that the faults are in the rank alone. */
#include "support/faults.h"
#include "support/ranks.h"

#include "base/error.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ls_status use_the_store(ls_store **store) {
    char value[8], key[16]; /* the rank's own: the other one deletes its */
    int copy = -1;
    snprintf(key, sizeof key, "d%s", getenv("RANK"));
    LS_TRY(ls_store_open_inherited(store));
    LS_TRY(ls_store_set(*store, "k", "value", 5));
    LS_TRY(ls_store_get(*store, "k", value, sizeof value, NULL, 10000));
    LS_TRY(ls_store_add(*store, "n", 1, NULL));
    LS_TRY(store_set_descriptors(*store, key, (int[]){0}, 1));
    LS_TRY(store_get_descriptors(*store, key, &copy, 1, 10000));
    close(copy);
    return ls_store_delete(*store, key, NULL);
}

static void every_fault_of_a_rank_is_reported_and_leaves_nothing(void **state) {
    (void)state;
    ls_store *store = NULL;
    assert_int_equal(use_the_store(&store), LS_OK);
    ls_store_close(&store);
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        const ls_status status = use_the_store(&store);
        if (ls_fault_was_met())
            assert_fault_reported(status);
        else
            assert_int_equal(status, LS_OK);
        ls_fault_disarm();
        ls_store_close(&store);
    }
    assert_nothing_left();
    assert_int_equal(use_the_store(&store), LS_OK);
    ls_store_close(&store);
}

static void a_rank_with_a_fault_at_any_call_leaves_the_store_sound(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_run(&(ls_ranks_options){
        .ranks = 2, .program = "test_launch_store_faults", .arguments = (const char *const[]){"as-rank", NULL}});
    assert_ranks_succeeded(job);
    ls_ranks_close(&job);
}

int main(int argc, char **argv) {
    const struct CMUnitTest inside[] = {cmocka_unit_test(every_fault_of_a_rank_is_reported_and_leaves_nothing)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_with_a_fault_at_any_call_leaves_the_store_sound)};
    if (argc > 1 && strcmp(argv[1], "as-rank") == 0) return cmocka_run_group_tests(inside, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
