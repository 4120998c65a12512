/* Memory of ls_group_alloc begins on a page, whatever a page's size is here, and is zeroed: with one rank and with several. And
 * what ranks set up together they set up one thing at a time. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/thread.h"
#include "base/wait.h"
#include "group/post.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { MEMORIES = 6 };

static void allocate(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), sizes[MEMORIES] = {1, page - 1, page, page + 1, 8192, 3 * page};
    void *memories[MEMORIES];
    for (int i = 0; i < MEMORIES; i++) {
        assert_ok(ls_group_alloc(group, sizes[i], &memories[i]));
        assert_int_equal((uintptr_t)memories[i] % page, 0);
        const unsigned char *bytes = memories[i];
        for (size_t at = 0; at < sizes[i]; at++) assert_int_equal(bytes[at], 0);
    }
    for (int i = 0; i < MEMORIES; i++) ls_group_free(group, memories[i]);
    ls_group_close(&group);
}

static void memory_begins_on_a_page_and_is_zeroed(void **state) {
    (void)state;
    for (int world_size = 1; world_size <= 3; world_size++) run_ranks(world_size, allocate, NULL);
}

/* --- two threads -------------------------------------------------------------------------------------------------------- */

enum { HANDED_OVER = 500 };

typedef struct hand_over {
    ls_group *group;
    _Atomic(void *) memory; /* NULL: the other side's turn */
} hand_over;

static void free_what_comes(void *argument) {
    hand_over *between = argument;
    for (int i = 0; i < HANDED_OVER; i++) {
        void *memory = NULL;
        while (!(memory = atomic_exchange(&between->memory, NULL))) ls_yield();
        ls_group_free(between->group, memory);
    }
}

static void allocate_beside_who_frees(const ls_rank *rank) {
    hand_over between = {.group = open_rank(rank)};
    ls_thread thread = {0};
    assert_ok(ls_thread_start(&thread, "frees", free_what_comes, &between));
    for (int i = 0; i < HANDED_OVER; i++) {
        void *memory = NULL;
        assert_ok(ls_group_alloc(between.group, 64, &memory));
        while (atomic_load(&between.memory)) ls_yield();
        atomic_store(&between.memory, memory);
    }
    ls_thread_join(&thread);
    ls_group_close(&between.group);
}

static void memory_is_freed_beside_who_allocates(void **state) {
    (void)state;
    ls_note_what_is_there();
    for (int world_size = 1; world_size <= 2; world_size++) run_ranks(world_size, allocate_beside_who_frees, NULL);
    assert_nothing_left();
}

/* --- one at a time ------------------------------------------------------------------------------------------------------ */

/* What another thread of rank 0 may call meanwhile. Posted, it would be met by whatever the other rank does next. */
static void be_refused(void *argument) {
    ls_group *group = *(ls_group **)argument, *made = NULL;
    void *memory = NULL;
    assert_int_equal(ls_group_alloc(group, 1, &memory), LS_ERR_STATE);
    assert_error_says("rank 0: another thread allocates memory of this group or makes a group of it");
    assert_int_equal(ls_group_duplicate(&made, group), LS_ERR_STATE);
    assert_int_equal(ls_group_subgroup(&made, group, (const int[]){0, 1}, 2), LS_ERR_STATE);
    assert_int_equal(ls_group_split(&made, group, 0, 0), LS_ERR_STATE);
    assert_null(memory);
    assert_null(made);
}

static ls_group *group_of_rank_0;

static void set_up(const ls_rank *rank) {
    ls_group *group = open_rank(rank), *copy = NULL, *split = NULL;
    void *memory = NULL;
    if (rank->rank == 0) group_of_rank_0 = group;
    assert_ok(ls_group_alloc(group, 1, &memory));
    assert_ok(ls_group_duplicate(&copy, group));
    assert_ok(ls_group_split(&split, group, 0, 0));
    ls_group_close(&copy);
    ls_group_close(&split);
    ls_group_close(&group);
}

static void a_group_is_set_up_for_one_call_at_a_time_from_its_beginning_to_its_end(void **state) {
    (void)state;
    const char *const moments[] = {"shm.allocate.agreed", "related.group.agreed", "related.group.open",
                                   "related.split.gathered"};
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        ls_points_watch();
        ls_at_point(moments[i], 0, 0, be_refused, &group_of_rank_0);
        run_ranks(2, set_up, NULL);
        assert_true(ls_point_hits(moments[i]) > 0);
    }
    ls_at_point(NULL, 0, 0, NULL, NULL);
}

static void what_is_discarded_takes_nothing_beside_it(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), from = 100, to = 3 * page + 50;
    const ls_group_options options = {.world_size = 1};
    ls_group *group = NULL;
    void *memory = NULL;
    assert_ok(ls_group_open(&group, &options));
    assert_ok(ls_group_alloc(group, 4 * page, &memory));
    unsigned char *bytes = memory;
    memset(bytes, 1, 4 * page);
    group_discard(bytes + from, to - from);
    for (size_t i = 0; i < 4 * page; i++) assert_int_equal(bytes[i], i < page || i >= 3 * page);
    ls_group_free(group, memory);
    ls_group_close(&group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_begins_on_a_page_and_is_zeroed),
        cmocka_unit_test(memory_is_freed_beside_who_allocates),
        cmocka_unit_test(what_is_discarded_takes_nothing_beside_it),
        cmocka_unit_test(a_group_is_set_up_for_one_call_at_a_time_from_its_beginning_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
