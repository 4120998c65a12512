/* test_table.c: every collective, type and op, over backends, numbers of ranks, sizes and memories, against the serial
 * oracle; and calls that cannot be. Calls that differ: test_lost.c. Over MPI: tests/mpi/test_collectives.c. */
#include "support/table.h"
#include "support/threads.h"

#include "base/wait.h"
#include "group/backend.h"

#include <stdlib.h>
#include <time.h>

typedef struct table_run {
    table_plan plan;
    const ls_backend *backend;
    table_coverage *covered;
} table_run;

static void walk(const ls_rank *rank) {
    const table_run *run = rank->argument;
    const ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, run->backend));
    assert_true(table_walk(group, &run->plan, rank->rank == 0 ? run->covered : NULL));
    ls_group_close(&group);
}

/* Those whose sums have the same bits everywhere and always. A further one is a line. */
static const ls_backend *const backends[] = {&solo_backend, &shm_backend, &tcp_backend, &hosts_backend};

static void every_line_of_the_table_equals_the_serial_oracle(void **state) {
    (void)state;
    static const int world_sizes[] = {2, 3, 4, 5, 8}, alone[] = {1, 1, 1, 1};
    const char *given = getenv("LS_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t which = 0; which < sizeof backends / sizeof backends[0]; which++) {
        const bool is_alone = backends[which] == &solo_backend;
        table_coverage covered = {0};
        table_run run = {.plan = {.seed = seed, .every = LS_UNDER_THREAD_SANITIZER ? 5 : 0},
                         .backend = backends[which],
                         .covered = &covered};
        for (; run.plan.turn < (is_alone ? 4 : 5); run.plan.turn++) {
            const int ranks = (is_alone ? alone : world_sizes)[run.plan.turn];
            print_message("%s, %d ranks\n", run.backend->name, ranks);
            run_ranks(ranks, walk, &run);
        }
        if (!run.plan.every) assert_true(table_is_covered(&covered));
    }
}

static void refuse_calls(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    float data[4] = {0};
    const size_t counts[2] = {1, 1}, other[2] = {2, 2};
    assert_int_equal(ls_group_reduce(group, data, 4, LS_F32, LS_BITWISE_XOR, 0, NULL), LS_ERR_ARGUMENT);
    assert_error_says("bitwise ops are for integers");
    assert_int_equal(ls_group_reduce(group, data, 4, LS_F32, LS_SUM, 2, NULL), LS_ERR_ARGUMENT);
    assert_error_says("there is no such rank");
    assert_int_equal(ls_group_gather(group, data, NULL, 1, LS_F32, rank->rank, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_scatter(group, NULL, data, 1, LS_F32, rank->rank, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_to_all(group, NULL, data, 1, LS_F32, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_to_all_uneven(group, data, NULL, data, counts, LS_F32, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_to_all_uneven(group, data, counts, data, other, LS_F32, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_reduce(group, data, 4, LS_BOOL, LS_AVERAGE, NULL), LS_ERR_ARGUMENT);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_call_that_cannot_be_is_refused_and_the_group_goes_on(void **state) {
    (void)state;
    run_ranks(2, refuse_calls, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_of_the_table_equals_the_serial_oracle),
        cmocka_unit_test(a_call_that_cannot_be_is_refused_and_the_group_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
