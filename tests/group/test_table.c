/* test_table.c: every collective, type and op, over numbers of ranks, sizes and memories, against the serial oracle. */
#include "support/threads.h"

#include "base/wait.h"
#include "group/backend.h"
#include "group/oracle.h"

#include <stdlib.h>
#include <time.h>

typedef enum collective {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    BROADCAST,
    ALL_GATHER,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    UNEVEN,
    COLLECTIVE_COUNT
} collective;

static bool combines(collective kind) {
    return kind <= REDUCE_SCATTER;
}

/* A line of the table, as all ranks draw it. */
typedef struct line {
    collective kind;
    ls_dtype dtype;
    ls_op op;
    size_t count;
    uint64_t seed;
    int root;
    bool in_group, is_in_place, is_async, one_apart; /* rank 0's data in ordinary memory, the others' in the group's */
    size_t shift;                                    /* elements off alignment */
} line;

#define MOST_RANKS 8
#define MOST_COUNT ((size_t)20011)
#define MOST_BYTES (MOST_COUNT * MOST_RANKS * 8 + 4096)

typedef struct buffers {
    char *shared, *ordinary; /* [2 * MOST_BYTES]: what is sent, then what is received */
    char *sent[MOST_RANKS];  /* what each rank sends */
    char *expected;
} buffers;

static size_t element_bytes(const line *at) {
    return ls_dtype_size(at->dtype);
}

static bool has_rows(collective kind) {
    return kind == REDUCE_SCATTER || kind == SCATTER || kind == ALL_TO_ALL || kind == UNEVEN;
}

/* Of the uneven all-to-all. */
static size_t count_for(const line *at, int from, int to) {
    return mix(at->seed ^ (uint64_t)(from * 64 + to)) % (at->count + 1);
}

static size_t sent_count(const line *at, int from, int world_size) {
    size_t count = 0;
    if (at->kind != UNEVEN) return has_rows(at->kind) ? at->count * (size_t)world_size : at->count;
    for (int to = 0; to < world_size; to++) count += count_for(at, from, to);
    return count;
}

static void combine_row(const line *at, const buffers *all, size_t row, int world_size) {
    for (size_t i = 0; i < at->count; i++) {
        const void *elements[MOST_RANKS];
        for (int rank = 0; rank < world_size; rank++) elements[rank] = all->sent[rank] + (row + i) * element_bytes(at);
        expect_element(all->expected + i * element_bytes(at), at->dtype, at->op, elements, world_size);
    }
}

/* What rank `rank` should have: its bytes. */
static size_t expect(const line *at, const buffers *all, int rank, int world_size) {
    const size_t size = element_bytes(at), row = at->count * size;
    size_t bytes = 0;
    switch (at->kind) {
    case REDUCE:
        if (rank != at->root) {
            memcpy(all->expected, all->sent[rank], row); /* as it was */
            return row;
        }
        combine_row(at, all, 0, world_size);
        return row;
    case ALL_REDUCE: combine_row(at, all, 0, world_size); return row;
    case REDUCE_SCATTER: combine_row(at, all, at->count * (size_t)rank, world_size); return row;
    case BROADCAST: memcpy(all->expected, all->sent[at->root], row); return row;
    case SCATTER: memcpy(all->expected, all->sent[at->root] + row * (size_t)rank, row); return row;
    case GATHER:
        if (rank != at->root) return 0;
        break;
    default: break;
    }
    for (int from = 0; from < world_size; from++) {
        size_t skipped = at->kind == ALL_TO_ALL ? row * (size_t)rank : 0, length = row;
        if (at->kind == UNEVEN) {
            length = count_for(at, from, rank) * size;
            for (int to = 0; to < rank; to++) skipped += count_for(at, from, to) * size;
        }
        memcpy(all->expected + bytes, all->sent[from] + skipped, length);
        bytes += length;
    }
    return bytes;
}

/* Where this rank sends from and receives: apart, or one within the other as the interface allows. */
static void place(const line *at, const buffers *all, int rank, char **send, char **receive) {
    const bool in_group = at->in_group && !(at->one_apart && rank == 0);
    const size_t row = at->count * element_bytes(at), own = row * (size_t)rank;
    *send = (in_group ? all->shared : all->ordinary) + at->shift * element_bytes(at);
    *receive = *send + MOST_BYTES;
    if (at->kind == ALL_REDUCE || at->kind == REDUCE || at->kind == BROADCAST) *receive = *send;
    if (!at->is_in_place) return;
    if (at->kind == REDUCE_SCATTER || (at->kind == SCATTER && rank == at->root)) *receive = *send + own;
    if (at->kind == ALL_GATHER || (at->kind == GATHER && rank == at->root)) *send = *receive + own;
}

static ls_status call(ls_group *group, const line *at, int rank, const char *send, char *receive, ls_work **work) {
    size_t counts[2][MOST_RANKS];
    for (int peer = 0; peer < ls_group_world_size(group); peer++) {
        counts[0][peer] = count_for(at, rank, peer);
        counts[1][peer] = count_for(at, peer, rank);
    }
    const size_t count = at->count;
    const bool is_root = rank == at->root;
    switch (at->kind) {
    case ALL_REDUCE: return ls_group_all_reduce(group, receive, count, at->dtype, at->op, work);
    case REDUCE: return ls_group_reduce(group, receive, count, at->dtype, at->op, at->root, work);
    case REDUCE_SCATTER: return ls_group_reduce_scatter(group, send, receive, count, at->dtype, at->op, work);
    case BROADCAST: return ls_group_broadcast(group, receive, count, at->dtype, at->root, work);
    case ALL_GATHER: return ls_group_all_gather(group, send, receive, count, at->dtype, work);
    case GATHER: return ls_group_gather(group, send, is_root ? receive : NULL, count, at->dtype, at->root, work);
    case SCATTER: return ls_group_scatter(group, is_root ? send : NULL, receive, count, at->dtype, at->root, work);
    case ALL_TO_ALL: return ls_group_all_to_all(group, send, receive, count, at->dtype, work);
    default: return ls_group_all_to_all_uneven(group, send, counts[0], receive, counts[1], at->dtype, work);
    }
}

static void run_line(const ls_rank *rank, ls_group *group, const line *at, const buffers *all) {
    char *send = NULL, *receive = NULL;
    ls_work *work = NULL;
    place(at, all, rank->rank, &send, &receive);
    for (int from = 0; from < rank->world_size; from++)
        for (size_t i = 0; i < sent_count(at, from, rank->world_size); i++)
            draw(all->sent[from], i, i, at->dtype, at->seed, from);
    /* `place` sets it. NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
    memcpy(send, all->sent[rank->rank], sent_count(at, rank->rank, rank->world_size) * element_bytes(at));
    const size_t bytes = expect(at, all, rank->rank, rank->world_size);
    assert_ok(call(group, at, rank->rank, send, receive, at->is_async ? &work : NULL));
    if (work) assert_ok(ls_work_wait(work, 0));
    ls_work_close(&work);
    if (bytes && memcmp(receive, all->expected, bytes) != 0) {
        print_error("collective %d, %s, %s, %zu elements, root %d, rank %d of %d, group memory %d, in place %d\n",
                    (int)at->kind, ls_dtype_name(at->dtype), ls_op_name(at->op), at->count, at->root, rank->rank,
                    rank->world_size, at->in_group, at->is_in_place);
        assert_memory_equal(receive, all->expected, bytes);
    }
}

static line draw_line(collective kind, ls_dtype dtype, ls_op op, size_t count, uint64_t seed, int world_size) {
    const uint64_t bits =
        mix(seed ^ mix((uint64_t)kind * 1000003 + (uint64_t)dtype * 1009 + (uint64_t)op * 31 + count));
    return (line){.kind = kind,
                  .dtype = dtype,
                  .op = op,
                  .count = count,
                  .seed = bits,
                  .root = (int)(bits % (uint64_t)world_size),
                  .in_group = bits >> 10 & 1,
                  .is_in_place = bits >> 11 & 1,
                  .is_async = bits >> 12 & 1,
                  .one_apart = (bits >> 13 & 7) == 0,
                  .shift = bits >> 20 & 1 ? bits >> 21 & 15 : 0};
}

/* Sizes: nothing, one, odd, past a slot's payload; large ones now and then. */
static size_t size_of_line(int which, uint64_t bits) {
    static const size_t small[] = {0, 1, 37, 1021, 2600};
    if (which < 5) return small[which];
    return bits % 4 ? 5 : bits / 4 % 2 ? 8192 : MOST_COUNT;
}

/* Those whose sums have the same bits everywhere and always. A further one is a line. Over MPI: tests/mpi/worker_table.c. */
static const ls_backend *const backends[] = {&shm_backend, &tcp_backend, &hosts_backend};
#define BACKENDS (sizeof backends / sizeof backends[0])

typedef struct walk_plan {
    uint64_t seed;
    const ls_backend *backend;
} walk_plan;

static void walk(const ls_rank *rank) {
    const walk_plan *plan = rank->argument;
    const uint64_t seed = plan->seed;
    const ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, plan->backend));
    buffers all = {.ordinary = malloc(2 * MOST_BYTES), .expected = malloc(MOST_BYTES)};
    for (int from = 0; from < rank->world_size; from++) all.sent[from] = malloc(MOST_BYTES);
    void *shared = NULL;
    assert_ok(ls_group_alloc(group, 2 * MOST_BYTES, &shared));
    all.shared = shared;
    const int step = LS_UNDER_THREAD_SANITIZER ? 5 : 1;
    int lines = 0;
    for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
        for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++)
            for (int op = 0; op < (combines((collective)kind) ? LS_OP_COUNT : 1); op++) {
                if (!is_defined((ls_dtype)dtype, (ls_op)op)) continue;
                for (int size = 0; size < 6; size++, lines++) {
                    if (lines % step) continue;
                    const size_t count = size_of_line(size, mix(seed + (uint64_t)lines));
                    const line at =
                        draw_line((collective)kind, (ls_dtype)dtype, (ls_op)op, count, seed, rank->world_size);
                    run_line(rank, group, &at, &all);
                }
            }
    for (int from = 0; from < rank->world_size; from++) free(all.sent[from]);
    free(all.ordinary);
    free(all.expected);
    ls_group_close(&group);
}

static void every_line_of_the_table_equals_the_serial_oracle(void **state) {
    (void)state;
    static const int world_sizes[] = {1, 2, 3, 4, 5, 8};
    const char *given = getenv("LS_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t which = 0; which < BACKENDS; which++)
        for (int i = 0; i < 6; i++) {
            /* A world of one has a backend of its own. */
            walk_plan plan = {.seed = seed, .backend = i ? backends[which] : &solo_backend};
            if (i == 0 && which) continue;
            print_message("%s, %d ranks\n", plan.backend->name, world_sizes[i]);
            run_ranks(world_sizes[i], walk, &plan);
        }
}

/* --- differences ------------------------------------------------------------------------------------------------------- */

static void call_apart(const ls_rank *rank) {
    const int which = *(const int *)rank->argument;
    ls_group *group = open_rank(rank);
    float send[64] = {0}, receive[64] = {0};
    size_t sends[3] = {1, 1, 1}, receives[3] = {1, 1, 1};
    ls_status status = LS_OK;
    if (which == 0) status = ls_group_reduce(group, send, 4, LS_F32, LS_SUM, rank->rank == 2, NULL);
    if (which == 1)
        status = rank->rank == 1 ? ls_group_scatter(group, send, receive, 4, LS_F32, 0, NULL)
                                 : ls_group_gather(group, send, receive, 4, LS_F32, 0, NULL);
    if (which == 2) {
        if (rank->rank == 1) sends[2] = 5;
        status = ls_group_all_to_all_uneven(group, send, sends, receive, receives, LS_F32, NULL);
    }
    assert_int_equal(status, LS_ERR_MISMATCH);
    if (which == 0)
        assert_error_says("rank 0 called reduce of 4 f32 sum to rank 0, rank 2 reduce of 4 f32 sum to rank 1");
    if (which == 1) assert_error_says("rank 0 called gather of 4 f32 to rank 0, rank 1 scatter of 4 f32 from rank 0");
    if (which == 2) assert_error_says("rank 1 sends 5 elements to rank 2, which expects 1 of it");
    ls_group_close(&group);
}

static void ranks_that_call_apart_are_named(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) run_ranks(3, call_apart, &which);
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
        cmocka_unit_test(ranks_that_call_apart_are_named),
        cmocka_unit_test(a_call_that_cannot_be_is_refused_and_the_group_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
