/* test_open.c: groups open from the environment and from options, many times over, with a fault at every call, and leave
 * nothing behind. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"
#include "group/points.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- a world of one --------------------------------------------------------------------------------------------------- */

static int clear_environment(void **state) {
    (void)state;
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCKSTEP_TRACE");
    *ls_context_here() = (ls_context){.rank = -1};
    return 0;
}

static void without_an_environment_a_program_is_a_world_of_one(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_group *group = NULL, *copy = NULL;
    void *memory = NULL;
    float sum = 3, gathered[1] = {0};
    ls_work *work = NULL;
    assert_ok(ls_group_open(&group, NULL));
    assert_int_equal(ls_group_rank(group), 0);
    assert_int_equal(ls_group_world_size(group), 1);
    assert_int_equal(ls_context_here()->rank, 0);
    assert_int_equal(group->timeout_ms, 30 * 60 * 1000);
    assert_ok(ls_group_duplicate(&copy, group));
    assert_ok(ls_group_alloc(copy, 5000, &memory));
    assert_int_equal((uintptr_t)memory % 4096, 0);
    for (int i = 0; i < 5000; i++) assert_int_equal(((char *)memory)[i], 0);
    assert_ok(ls_group_all_reduce(copy, &sum, 1, LS_F32, LS_SUM, &work));
    assert_true(ls_work_is_complete(work));
    assert_ok(ls_work_wait(work, 0));
    ls_work_close(&work);
    assert_ok(ls_group_broadcast(group, &sum, 1, LS_F32, 0, NULL));
    assert_ok(ls_group_all_gather(group, &sum, gathered, 1, LS_F32, NULL));
    assert_ok(ls_group_barrier(group, NULL));
    assert_true(sum == 3 && gathered[0] == 3);
    ls_group_free(copy, memory);
    ls_group_close(&copy);
    ls_group_close(&group);
    ls_group_close(&group); /* NULL is harmless */
    assert_nothing_left();  /* and there was no thread: it would be listed for a moment at least */
}

static void expect_environment_error(const char *rank, const char *world_size, const char *text, const char *second) {
    ls_group *group = NULL;
    clear_environment(NULL);
    if (rank) setenv("RANK", rank, 1);
    if (world_size) setenv("WORLD_SIZE", world_size, 1);
    assert_int_equal(ls_group_open(&group, NULL), LS_ERR_ENVIRONMENT);
    assert_null(group);
    assert_error_says(text);
    assert_error_says(second);
    assert_int_equal(ls_context_here()->rank, -1);
}

static void a_wrong_environment_is_named_with_its_value(void **state) {
    (void)state;
    expect_environment_error("1", NULL, "RANK is \"1\"", "WORLD_SIZE is not set");
    expect_environment_error(NULL, "4", "WORLD_SIZE is \"4\"", "RANK is not set");
    expect_environment_error("5", "4", "RANK is \"5\"", "WORLD_SIZE is \"4\"");
    expect_environment_error("x", "4", "RANK is \"x\"", "whole number");
    expect_environment_error("0", "-2", "WORLD_SIZE is \"-2\"", "whole number");
    expect_environment_error("-1", "2", "RANK is \"-1\"", "whole number");
    expect_environment_error("1 ", "2", "RANK is \"1 \"", "whole number");
    /* Rank and world size without our launcher's socket. */
    expect_environment_error("1", "2", "lockstep run", "");
    clear_environment(NULL);
}

static void a_world_of_one_may_be_said_in_the_environment(void **state) {
    (void)state;
    ls_group *group = NULL;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    assert_ok(ls_group_open(&group, NULL));
    assert_int_equal(ls_group_world_size(group), 1);
    ls_group_close(&group);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    ls_group *group = NULL;
    assert_int_equal(ls_group_open(NULL, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_open(&group, &(ls_group_options){.world_size = 2}), LS_ERR_ARGUMENT);
    assert_error_says("without a store");
    assert_int_equal(ls_group_open(&group, &(ls_group_options){.rank = 2, .world_size = 2}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_open(&group, &(ls_group_options){.rank = 1}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_open(&group, &(ls_group_options){.timeout_ms = -2}), LS_ERR_ARGUMENT);
    assert_error_says("timeout_ms is -2");
    assert_null(group);
}

static void wrong_calls_are_refused_and_cost_nothing(void **state) {
    (void)state;
    ls_group *group = NULL;
    float data[4] = {1, 2, 3, 4};
    ls_work *work = NULL;
    assert_ok(ls_group_open(&group, NULL));
    assert_int_equal(ls_group_all_reduce(group, NULL, 4, LS_F32, LS_SUM, NULL), LS_ERR_ARGUMENT);
    assert_error_says("all-reduce of 4 f32 sum: the data is NULL");
    assert_int_equal(ls_group_all_reduce(group, (char *)data + 1, 1, LS_F32, LS_SUM, &work), LS_ERR_ARGUMENT);
    assert_error_says("not aligned");
    assert_null(work);
    assert_int_equal(ls_group_all_reduce(group, data, 4, LS_F32, LS_BITWISE_OR, NULL), LS_ERR_ARGUMENT);
    assert_error_says("not defined");
    assert_int_equal(ls_group_all_reduce(group, data, 4, LS_BF16, LS_BITWISE_OR, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_reduce(group, data, 4, (ls_dtype)99, LS_SUM, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_reduce(group, data, SIZE_MAX / 2, LS_F32, LS_SUM, NULL), LS_ERR_ARGUMENT);
    assert_error_says("past what memory can hold");
    assert_int_equal(ls_group_broadcast(group, data, 4, LS_F32, 1, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_broadcast(group, data, 4, LS_F32, -1, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_gather(group, NULL, data, 4, LS_F32, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_reduce(NULL, data, 4, LS_F32, LS_SUM, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_work_wait(NULL, 0), LS_ERR_ARGUMENT);
    assert_ok(ls_group_all_reduce(group, NULL, 0, LS_F32, LS_SUM, NULL));
    assert_ok(ls_group_all_reduce(group, data, 4, LS_F32, LS_SUM, NULL));
    ls_group_close(&group);
}

/* --- backends --------------------------------------------------------------------------------------------------------- */

typedef struct choice {
    const char *option, *variable;
    const ls_backend *chosen;
} choice;

static void open_by_choice(const ls_rank *rank) {
    const choice *made = rank->argument;
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    options.backend = made->option;
    assert_ok(ls_group_open(&group, &options));
    assert_ptr_equal(group->backend, made->chosen);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_backend_is_named_by_the_option_else_by_the_environment(void **state) {
    (void)state;
    static const choice choices[] = {{NULL, NULL, &shm_backend},
                                     {NULL, "tcp", &hosts_backend},
                                     {"shm", "tcp", &shm_backend},
                                     {"tcp", "shm", &hosts_backend},
                                     {"tcp", "no backend", &hosts_backend}};
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        choice made = choices[i];
        setenv("LOCKSTEP_BACKEND", made.variable ? made.variable : "", 1);
        run_ranks(2, open_by_choice, &made);
    }
    unsetenv("LOCKSTEP_BACKEND");
    ls_group *group = NULL;
    assert_int_equal(ls_group_open(&group, &(ls_group_options){.backend = "carrier pigeon"}), LS_ERR_ARGUMENT);
    assert_error_says("the option backend is \"carrier pigeon\"; the backends are \"shm\", \"tcp\"");
    assert_null(group);
}

/* --- many ranks ------------------------------------------------------------------------------------------------------- */

static void open_and_close(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    float value = (float)rank->rank;
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
    assert_true(value == (float)(rank->world_size * (rank->world_size - 1)) / 2);
    ls_group_close(&group);
}

static void a_hundred_openings_leave_the_keys_as_they_were(void **state) {
    (void)state;
    ls_store *store = NULL;
    assert_ok(ls_store_open_hash(&store));
    int64_t first = 0, last = 0;
    for (int i = 0; i < 100; i++) {
        run_ranks_over(store, 2, open_and_close, NULL);
        assert_ok(ls_store_count(store, i == 0 ? &first : &last));
    }
    assert_int_equal(first, last);
    ls_store_close(&store);
}

/* Groups, their duplicates and memory, and works in all sizes: nothing grows. */
static void make_many_groups(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    for (int i = 0; i < 500; i++) {
        ls_group *copy = NULL;
        void *memory = NULL;
        ls_work *work = NULL;
        assert_ok(ls_group_duplicate(&copy, group));
        assert_ok(ls_group_alloc(copy, 20000, &memory));
        for (int call = 0; call < 10; call++)
            assert_ok(
                ls_group_all_reduce(copy, memory, 1 + (size_t)(i * 37 + call * 411) % 4999, LS_F32, LS_SUM, NULL));
        assert_ok(ls_group_all_reduce(group, memory, 2, LS_F32, LS_SUM, &work));
        assert_ok(ls_work_wait(work, 0));
        ls_work_close(&work);
        if (i % 2) ls_group_free(copy, memory);
        ls_group_close(&copy);
    }
    ls_group_close(&group);
}

static void a_thousand_groups_leave_nothing(void **state) {
    (void)state;
    ls_store *store = NULL;
    int64_t before = 0, after = 0;
    assert_ok(ls_store_open_hash(&store));
    run_ranks_over(store, 2, open_and_close, NULL);
    assert_ok(ls_store_count(store, &before));
    ls_note_what_is_there();
    run_ranks_over(store, 2, make_many_groups, NULL);
    assert_nothing_left();
    assert_ok(ls_store_count(store, &after));
    assert_int_equal(before, after);
    ls_store_close(&store);
}

static void reduce_in_steps(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    void *memory = NULL;
    ls_work *works[3] = {NULL};
    uint64_t blocks = 0;
    assert_ok(ls_group_alloc(group, 1 << 20, &memory));
    for (int step = 0; step < 60; step++) {
        /* Not before all ranks are past their first steps: the counter is everyone's. */
        if (step == 10) {
            assert_ok(ls_group_barrier(group, NULL));
            blocks = ls_alloc_count();
            assert_ok(ls_group_barrier(group, NULL));
        }
        for (int i = 0; i < 3; i++)
            assert_ok(ls_group_all_reduce(group, (float *)memory + i * 50000, 50000, LS_F32, LS_SUM, &works[i]));
        for (int i = 0; i < 3; i++) {
            assert_ok(ls_work_wait(works[i], 0));
            ls_work_close(&works[i]);
        }
        assert_ok(ls_group_all_reduce(group, memory, 3, LS_F32, LS_SUM, NULL));
    }
    assert_ok(ls_group_barrier(group, NULL));
    assert_int_equal(ls_alloc_count(), blocks);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_steady_state_allocates_nothing(void **state) {
    (void)state;
    run_ranks(2, reduce_in_steps, NULL);
}

/* --- faults ----------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    ls_status status[3];
    char text[3][LS_ERROR_TEXT_BYTES];
} outcome;

/* Opens, allocates, duplicates and runs something; whatever fails ends it. */
static ls_status use_group(const ls_rank *rank) {
    ls_group *group = NULL, *copy = NULL;
    void *memory = NULL;
    float value = 1;
    ls_work *work = NULL;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 1000; /* where a rank's store fails it, it cannot tell the other why */
    ls_status status = ls_group_open(&group, &options);
    if (status == LS_OK) status = ls_group_alloc(group, 70000, &memory);
    if (status == LS_OK) status = ls_group_duplicate(&copy, group);
    if (status == LS_OK) status = ls_group_all_reduce(copy, memory, 15000, LS_F32, LS_SUM, NULL);
    if (status == LS_OK) status = ls_group_all_reduce(copy, &value, 1, LS_F32, LS_SUM, &work);
    if (status == LS_OK) status = ls_work_wait(work, 0);
    /* Where one rank failed alone, with nothing that the others would wait for, it says so by leaving. */
    ls_work_close(&work);
    ls_group_close(&copy);
    ls_group_close(&group);
    return status;
}

static void use_and_note(const ls_rank *rank) {
    outcome *all = rank->argument;
    all->status[rank->rank] = use_group(rank);
    memcpy(all->text[rank->rank], ls_last_error(), LS_ERROR_TEXT_BYTES);
}

static void a_fault_at_any_call_is_reported_and_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        outcome all = {0};
        ls_store *store = NULL;
        const ls_status opened = ls_store_open_hash(&store);
        if (opened == LS_OK) {
            run_ranks_over(store, 2, use_and_note, &all);
            ls_store_close(&store);
            if (ls_fault_was_met()) assert_true(all.status[0] < 0 || all.status[1] < 0);
            for (int rank = 0; rank < 2; rank++)
                if (all.status[rank] != LS_OK) assert_true(all.text[rank][0]);
        }
    }
    assert_nothing_left();
}

static void a_fault_in_a_world_of_one_is_reported_and_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        const ls_rank alone = {.rank = 0, .world_size = 1};
        const ls_status status = use_group(&alone);
        if (ls_fault_was_met())
            assert_fault_reported(status);
        else
            assert_ok(status);
    }
    assert_nothing_left();
}

/* --- memory ----------------------------------------------------------------------------------------------------------- */

static void ask_for_too_much(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    void *memory = NULL;
    float value = 1;
    assert_int_equal(ls_group_alloc(group, (size_t)1 << 45, &memory), LS_ERR_MEMORY);
    assert_null(memory);
    assert_error_says("rank 0: 70368744177664 bytes of group memory are wanted by the ranks of this host, ");
    assert_int_equal(ls_group_alloc(group, SIZE_MAX, &memory), LS_ERR_MEMORY);
    /* The group is in step and goes on. */
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
    assert_true(value == 2);
    ls_group_close(&group);
}

static void too_much_memory_is_an_error_with_sizes(void **state) {
    (void)state;
    run_ranks(2, ask_for_too_much, NULL);
}

/* --- forks ------------------------------------------------------------------------------------------------------------ */

static void a_forked_child_is_told_so(void **state) {
    (void)state;
    ls_group *group = NULL;
    ls_work *work = NULL, *held = NULL;
    void *memory = NULL;
    float value = 1;
    assert_ok(ls_group_open(&group, NULL));
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, &work));
    held = work;
    const pid_t child = fork();
    if (child == 0) {
        ls_group *copy = NULL, *fresh = NULL;
        int failed = ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL) != LS_ERR_FORKED;
        failed += ls_group_alloc(group, 10, &memory) != LS_ERR_FORKED;
        failed += ls_group_duplicate(&copy, group) != LS_ERR_FORKED;
        failed += !strstr(ls_last_error(), "before fork");
        failed += ls_work_wait(work, 0) != LS_ERR_FORKED;
        const int holders = atomic_load(&held->holders);
        ls_work_close(&work); /* it stays the parent's, whose threads may have held its locks */
        failed += work || atomic_load(&held->holders) != holders;
        ls_group_abort(group, "nothing");
        ls_group_progress(group);
        ls_group_close(&group);
        failed += ls_group_open(&fresh, NULL) != LS_OK; /* one of its own is fine */
        ls_group_close(&fresh);
        _exit(failed);
    }
    int ended = -1;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_ok(ls_work_wait(work, 0));
    ls_work_close(&work);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

/* --- beneath a group ---------------------------------------------------------------------------------------------------- */

/* The other rank does not come. */
static void open_alone(const ls_backend *backend, int rank, const char *sentence, const char *missing) {
    static const int names[] = {3, 5};
    ls_store *store = NULL;
    void *opened = NULL;
    assert_ok(ls_store_open_hash(&store));
    const backend_place place = {.store = store,
                                 .rank = rank,
                                 .world_size = 2,
                                 .prefix = "beneath",
                                 .timeout_ms = 100,
                                 .deadline_ns = ls_deadline_after_ms(100),
                                 .names = names};
    assert_int_equal(backend->open(&place, &opened), LS_ERR_TIMEOUT);
    assert_error_says(sentence);
    assert_error_says(missing);
    ls_store_close(&store);
}

static void ranks_that_do_not_meet_beneath_a_group_go_by_its_numbers(void **state) {
    (void)state;
    const ls_backend *const backends[] = {&shm_backend, &tcp_backend};
    for (int i = 0; i < 2; i++) {
        open_alone(backends[i], 0, "rank 3: the ranks did not meet", "missing: rank 5;");
        open_alone(backends[i], 1, "rank 5: the ranks did not meet", "missing: rank 3;");
    }
}

/* --- points ----------------------------------------------------------------------------------------------------------- */

static void pass_all_points(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    void *memory = NULL;
    float *ordinary = calloc(1 << 17, sizeof *ordinary);
    assert_ok(ls_group_alloc(group, 1 << 19, &memory));
    assert_ok(ls_group_all_reduce(group, memory, 1 << 17, LS_F32, LS_SUM, NULL));
    assert_ok(ls_group_broadcast(group, memory, 1 << 17, LS_F32, 0, NULL));
    assert_ok(ls_group_all_reduce(group, ordinary, 1 << 17, LS_F32, LS_SUM, NULL));
    assert_ok(rank->rank ? ls_group_receive(group, ordinary, 1, LS_F32, 0, 0, NULL, NULL)
                         : ls_group_send(group, ordinary, 1, LS_F32, 1, 0, NULL));
    assert_ok(ls_group_barrier(group, NULL));
    free(ordinary);
    ls_group_close(&group);
}

static void every_named_point_is_passed(void **state) {
    (void)state;
    ls_points_watch();
    run_ranks(2, pass_all_points, NULL);
    for (int i = 0; i < GROUP_POINT_COUNT; i++) {
        if (!ls_point_hits(group_points[i])) print_error("%s was not passed\n", group_points[i]);
        assert_true(ls_point_hits(group_points[i]) > 0);
    }
}

int main(void) {
    clear_environment(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_an_environment_a_program_is_a_world_of_one, clear_environment),
        cmocka_unit_test_setup(a_wrong_environment_is_named_with_its_value, clear_environment),
        cmocka_unit_test_setup_teardown(a_world_of_one_may_be_said_in_the_environment, clear_environment,
                                        clear_environment),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_calls_are_refused_and_cost_nothing),
        cmocka_unit_test(a_backend_is_named_by_the_option_else_by_the_environment),
        cmocka_unit_test(a_hundred_openings_leave_the_keys_as_they_were),
        cmocka_unit_test(a_thousand_groups_leave_nothing),
        cmocka_unit_test(a_steady_state_allocates_nothing),
        cmocka_unit_test(a_fault_at_any_call_is_reported_and_leaves_nothing),
        cmocka_unit_test(a_fault_in_a_world_of_one_is_reported_and_leaves_nothing),
        cmocka_unit_test(too_much_memory_is_an_error_with_sizes),
        cmocka_unit_test(a_forked_child_is_told_so),
        cmocka_unit_test(ranks_that_do_not_meet_beneath_a_group_go_by_its_numbers),
        cmocka_unit_test(every_named_point_is_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
