/* test_algorithms.c: every algorithm, forced at every size, over a network in memory that delivers in random order:
 * what comes out equals the serial oracle, and what travels is what choose.c says it costs. */
#include "group/algorithm_world.h"

#include "base/memory.h"
#include "group/backend.h"

#include <time.h>

#define GUARD_BYTES ((size_t)64)

typedef struct trial {
    group_kind kind;
    ls_dtype dtype;
    ls_op op;
    int ranks, root;
    size_t count;
    bool is_in_place, is_relaxed;
    uint64_t seed;
} trial;

typedef struct block {
    char *bytes, *initial, *expected; /* [size], and a guard */
    size_t size;
} block;

/* One rank's memory. In place, one of the two blocks is empty and its pointer stands in the other. */
typedef struct rank_memory {
    block sent, received;
    char *send, *data, *expected_data;
    size_t send_counts[MOST_RANKS], receive_counts[MOST_RANKS];
} rank_memory;

static size_t row_bytes(const trial *t) {
    return kind_is_agreement(t->kind) ? sizeof(group_agreement) : t->count * ls_dtype_size(t->dtype);
}

/* Elements for `to` of `from` in an uneven all-to-all: some none. */
static size_t uneven_count(const trial *t, int from, int to) {
    const uint64_t bits = mix(t->seed ^ mix((uint64_t)from * 64 + (uint64_t)to));
    return bits % 3 ? (size_t)(mix(bits) % (t->count + 1)) : 0;
}

/* --- what is sent ------------------------------------------------------------------------------------------------- */

static bool has_rows_to_send(group_kind kind) {
    return kind == GROUP_SCATTER || kind == GROUP_REDUCE_SCATTER || kind == GROUP_ALL_TO_ALL;
}

static bool has_rows_to_receive(group_kind kind) {
    return !kind_combines(kind) && kind != GROUP_SCATTER && kind != GROUP_BROADCAST;
}

/* `bytes` bytes of what a rank puts in, from byte `at` on. */
static void fill(char *into, const trial *t, int rank, size_t at, size_t bytes) {
    const size_t size = ls_dtype_size(t->dtype);
    for (size_t i = 0; i < bytes / size; i++) draw(into, i, at / size + i, t->dtype, t->seed, rank);
}

static void size_memory(const trial *t, int rank, rank_memory *m) {
    const size_t row = row_bytes(t), rows = row * (size_t)t->ranks, size = ls_dtype_size(t->dtype);
    const bool is_one_for_both = t->kind == GROUP_ALL_REDUCE || t->kind == GROUP_REDUCE || t->kind == GROUP_BROADCAST;
    m->sent.size = has_rows_to_send(t->kind) ? rows : row;
    m->received.size = has_rows_to_receive(t->kind) ? rows : row;
    if (is_one_for_both || (t->kind == GROUP_SCATTER && rank != t->root)) m->sent.size = 0;
    if (t->kind == GROUP_GATHER && rank != t->root) m->received.size = 0;
    if (t->kind == GROUP_BARRIER || t->kind == GROUP_ALL_TO_ALL_UNEVEN) m->sent.size = m->received.size = 0;
    if (t->kind != GROUP_ALL_TO_ALL_UNEVEN) return;
    for (int peer = 0; peer < t->ranks; peer++) {
        m->sent.size += size * (m->send_counts[peer] = uneven_count(t, rank, peer));
        m->received.size += size * (m->receive_counts[peer] = uneven_count(t, peer, rank));
    }
}

static void make_block(block *b) {
    b->bytes = malloc(b->size + GUARD_BYTES);
    b->initial = malloc(b->size + GUARD_BYTES);
    b->expected = malloc(b->size + GUARD_BYTES);
    assert_non_null(b->bytes);
    assert_non_null(b->initial);
    assert_non_null(b->expected);
    memset(b->bytes, 0x5a, b->size + GUARD_BYTES);
}

static void keep_block(const block *b) {
    memcpy(b->initial, b->bytes, b->size + GUARD_BYTES);
    memcpy(b->expected, b->bytes, b->size + GUARD_BYTES);
}

/* What is there at the beginning, and, for now, expected at the end. */
static void lay_out(const trial *t, int rank, rank_memory *m) {
    size_memory(t, rank, m);
    const size_t own = row_bytes(t) * (size_t)rank, send_size = m->sent.size;
    const bool gathers = t->kind == GROUP_ALL_GATHER || (t->kind == GROUP_GATHER && rank == t->root);
    const bool deals = t->kind == GROUP_REDUCE_SCATTER || (t->kind == GROUP_SCATTER && rank == t->root);
    if (t->is_in_place && gathers) m->sent.size = 0;
    if (t->is_in_place && deals) m->received.size = 0;
    make_block(&m->sent);
    make_block(&m->received);
    m->send = t->is_in_place && gathers ? m->received.bytes + own : m->sent.bytes;
    m->data = t->is_in_place && deals ? m->sent.bytes + own : m->received.bytes;
    m->expected_data = t->is_in_place && deals ? m->sent.expected + own : m->received.expected;
    if (send_size)
        fill(m->send, t, rank, 0, send_size);
    else
        fill(m->data, t, rank, 0, m->received.size);
    keep_block(&m->sent);
    keep_block(&m->received);
}

static void restore(rank_memory *m) {
    memcpy(m->sent.bytes, m->sent.initial, m->sent.size + GUARD_BYTES);
    memcpy(m->received.bytes, m->received.initial, m->received.size + GUARD_BYTES);
}

/* --- what should come out ----------------------------------------------------------------------------------------- */

static void expect_combined(char *into, const trial *t, size_t at) {
    const size_t size = ls_dtype_size(t->dtype);
    char elements[MOST_RANKS][8] = {{0}};
    const void *sources[MOST_RANKS] = {NULL};
    for (int rank = 0; rank < MOST_RANKS; rank++) sources[rank] = elements[rank];
    for (size_t i = 0; i < t->count; i++) {
        for (int rank = 0; rank < t->ranks; rank++) draw(elements[rank], 0, at / size + i, t->dtype, t->seed, rank);
        expect_element(into + i * size, t->dtype, t->op, sources, t->ranks);
    }
}

static void expect_uneven(char *into, const trial *t, int rank) {
    const size_t size = ls_dtype_size(t->dtype);
    for (int from = 0; from < t->ranks; from++) {
        size_t before = 0;
        for (int to = 0; to < rank; to++) before += uneven_count(t, from, to);
        const size_t count = uneven_count(t, from, rank);
        fill(into, t, from, before * size, count * size);
        into += count * size;
    }
}

static void expect_data(char *into, const trial *t, int rank) {
    const size_t row = row_bytes(t);
    switch ((int)t->kind) {
    case GROUP_ALL_REDUCE: expect_combined(into, t, 0); break;
    case GROUP_REDUCE:
        if (rank == t->root) expect_combined(into, t, 0);
        break;
    case GROUP_REDUCE_SCATTER: expect_combined(into, t, row * (size_t)rank); break;
    case GROUP_BROADCAST: fill(into, t, t->root, 0, row); break;
    case GROUP_SCATTER: fill(into, t, t->root, row * (size_t)rank, row); break;
    case GROUP_ALL_TO_ALL:
        for (int from = 0; from < t->ranks; from++) fill(into + row * (size_t)from, t, from, row * (size_t)rank, row);
        break;
    case GROUP_ALL_TO_ALL_UNEVEN: expect_uneven(into, t, rank); break;
    case GROUP_BARRIER: break;
    default:
        if (t->kind == GROUP_GATHER && rank != t->root) break;
        for (int from = 0; from < t->ranks; from++) fill(into + row * (size_t)from, t, from, 0, row);
        break;
    }
}

static void check(rank_memory *m) {
    assert_memory_equal(m->sent.bytes, m->sent.expected, m->sent.size + GUARD_BYTES);
    assert_memory_equal(m->received.bytes, m->received.expected, m->received.size + GUARD_BYTES);
}

static void release(rank_memory *m) {
    block *blocks[] = {&m->sent, &m->received};
    for (int i = 0; i < 2; i++) {
        free(blocks[i]->bytes);
        free(blocks[i]->initial);
        free(blocks[i]->expected);
    }
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static group_call call_of(const trial *t, const rank_memory *m) {
    return (group_call){.kind = t->kind,
                        .dtype = t->dtype,
                        .op = t->op,
                        .root = t->root,
                        .count = t->kind == GROUP_ALL_TO_ALL_UNEVEN ? 0 : t->count,
                        .send = m->send == m->sent.bytes && !m->sent.size ? NULL : m->send,
                        .data = m->data == m->received.bytes && !m->received.size ? NULL : m->data,
                        .send_counts = m->send_counts,
                        .receive_counts = m->receive_counts};
}

/* Whether the order of additions shows in the bits. */
static bool is_rounded(const trial *t) {
    return t->is_relaxed && (t->dtype == LS_F32 || t->dtype == LS_F64) && (t->op == LS_SUM || t->op == LS_AVERAGE);
}

/* Near the serial oracle; the guards behind both are untouched. N - 1 additions, in whatever order, are off by at most as many
 * roundings of the sum of sizes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); an average rounds once more. */
static void check_near(const trial *t, const rank_memory *m) {
    const double rounding = t->dtype == LS_F32 ? 0x1p-24 : 0x1p-53;
    for (size_t i = 0; i < t->count; i++) {
        double got = 0, expected = 0, size = 0;
        for (int rank = 0; rank < t->ranks; rank++) {
            char element[8] = {0};
            float single = 0;
            double value = 0;
            draw(element, 0, i, t->dtype, t->seed, rank);
            memcpy(&single, element, sizeof single);
            memcpy(&value, element, sizeof value);
            size += fabs(t->dtype == LS_F32 ? (double)single : value);
        }
        got = t->dtype == LS_F32 ? (double)((const float *)(void *)m->data)[i] : ((const double *)(void *)m->data)[i];
        expected = t->dtype == LS_F32 ? (double)((const float *)(void *)m->expected_data)[i]
                                      : ((const double *)(void *)m->expected_data)[i];
        assert_true(fabs(got - expected) <= 2 * t->ranks * rounding * size);
    }
    assert_memory_equal(m->received.bytes + m->received.size, m->received.expected + m->received.size, GUARD_BYTES);
}

static void check_all(const trial *t, rank_memory *memories) {
    for (int rank = 0; rank < t->ranks; rank++) {
        if (!is_rounded(t))
            check(&memories[rank]);
        else if (rank == 0)
            check_near(t, &memories[rank]);
        else
            assert_memory_equal(memories[rank].data, memories[0].data, memories[0].received.size);
    }
}

/* By each algorithm that carries it, and by the one that is chosen. */
static void run_trial(world *w, const trial *t) {
    rank_memory memories[MOST_RANKS] = {0};
    group_call calls[MOST_RANKS] = {0};
    const collective_shape shape = {
        .kind = t->kind, .bytes = row_bytes(t), .world_size = t->ranks, .is_relaxed = t->is_relaxed};
    for (int rank = 0; rank < t->ranks; rank++) {
        lay_out(t, rank, &memories[rank]);
        if (t->kind == GROUP_ALL_REDUCE && rank > 0)
            memcpy(memories[rank].expected_data, memories[0].expected_data, row_bytes(t));
        else
            expect_data(memories[rank].expected_data, t, rank);
        calls[rank] = call_of(t, &memories[rank]);
    }
    for (int name = 0; name <= ALGORITHM_COUNT; name++) {
        if (name < ALGORITHM_COUNT && !algorithm_carries((algorithm_name)name, &shape)) continue;
        for (int rank = 0; rank < t->ranks; rank++) restore(&memories[rank]);
        world_run(w, calls, (algorithm_name)name);
        check_all(t, memories);
    }
    for (int rank = 0; rank < t->ranks; rank++) release(&memories[rank]);
}

/* --- the tests ---------------------------------------------------------------------------------------------------- */

static const group_kind kinds[] = {
    GROUP_ALL_REDUCE, GROUP_BROADCAST,      GROUP_ALL_GATHER, GROUP_BARRIER,           GROUP_REDUCE,  GROUP_GATHER,
    GROUP_SCATTER,    GROUP_REDUCE_SCATTER, GROUP_ALL_TO_ALL, GROUP_ALL_TO_ALL_UNEVEN, GROUP_ALLOCATE};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static const size_t sizes[] = {0, 1, 8, 65, 1000, 4097, 40000, 300001, 1100000};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))
#define LARGE_BYTES ((size_t)50000)

/* A trial of random type, op, root and place. */
static trial draw_trial(uint64_t seed, group_kind kind, int ranks, size_t bytes, bool is_relaxed) {
    trial t = {.kind = kind, .ranks = ranks, .seed = seed, .is_relaxed = is_relaxed};
    uint64_t bits = mix(seed ^ mix((uint64_t)kind));
    do {
        t.dtype = (ls_dtype)(bits % LS_DTYPE_COUNT);
        t.op = (ls_op)((bits = mix(bits)) % LS_OP_COUNT);
    } while (!is_defined(t.dtype, t.op) || (is_relaxed && reduce_kernel_for(t.dtype, t.op)->next) ||
             (bytes > LARGE_BYTES && ls_dtype_size(t.dtype) < 4)); /* the oracle is slow */
    /* A product that passes the largest number on the way depends on the order. */
    if (is_relaxed && t.op == LS_PRODUCT && (t.dtype == LS_F32 || t.dtype == LS_F64)) t.op = LS_MIN;
    t.root = (int)((bits = mix(bits)) % (uint64_t)ranks);
    t.is_in_place = mix(bits) % 2;
    t.count = bytes ? (bytes + ls_dtype_size(t.dtype) - 1) / ls_dtype_size(t.dtype) : 0;
    if (kind == GROUP_ALLOCATE) t.dtype = LS_U8;
    return t;
}

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
#define RANK_COUNTS ((int)(sizeof rank_counts / sizeof *rank_counts))

static uint64_t draw_seed(void) {
    const uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* Each size. Large data among some numbers of ranks; rows of everyone are large soon. */
static void run_kind(group_kind kind, int ranks, bool is_relaxed, uint64_t seed) {
    const size_t rows = has_rows_to_send(kind) || has_rows_to_receive(kind) ? (size_t)ranks : 1;
    const size_t most = ranks > 5 ? 7 * LARGE_BYTES : (size_t)1200 << 10;
    world w;
    world_open(&w, ranks, is_relaxed, seed);
    const uint64_t allocations = ls_alloc_count();
    for (int size = 0; size < SIZES && rows * sizes[size] <= most; size++) {
        const trial t = draw_trial(seed = mix(seed), kind, ranks, sizes[size], is_relaxed);
        run_trial(&w, &t);
    }
    assert_int_equal(ls_alloc_count(), allocations);
    world_close(&w);
}

static void every_algorithm_at_every_size_equals_the_serial_oracle(void **state) {
    (void)state;
    const uint64_t seed = draw_seed();
    for (int i = 0; i < RANK_COUNTS; i++)
        for (int kind = 0; kind < KINDS; kind++) run_kind(kinds[kind], rank_counts[i], false, mix(seed + (uint64_t)i));
}

static void in_relaxed_order_replicas_are_equal_and_near_the_oracle(void **state) {
    (void)state;
    const uint64_t seed = draw_seed();
    for (int i = 0; i < RANK_COUNTS; i++) run_kind(GROUP_ALL_REDUCE, rank_counts[i], true, mix(seed + (uint64_t)i));
}

/* In whichever order messages come. */
static void in_relaxed_order_reruns_have_the_same_bits(void **state) {
    (void)state;
    enum { count = 30000 };
    static const int some_ranks[] = {3, 4, 7, 8};
    const uint64_t seed = draw_seed();
    static float data[2][8][count];
    for (int i = 0; i < 4 * ALGORITHM_COUNT; i++) {
        const int ranks = some_ranks[i % 4], name = i / 4;
        const collective_shape shape = {GROUP_ALL_REDUCE, sizeof **data, ranks, true};
        if (!algorithm_carries((algorithm_name)name, &shape)) continue;
        for (int again = 0; again < 2; again++) {
            group_call calls[MOST_RANKS] = {0};
            for (int rank = 0; rank < ranks; rank++) {
                fill((char *)data[again][rank], &(trial){.dtype = LS_F32, .seed = seed}, rank, 0, sizeof **data);
                calls[rank] =
                    (group_call){.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .count = count, .data = data[again][rank]};
            }
            world w;
            world_open(&w, ranks, true, seed + (uint64_t)again);
            world_run(&w, calls, (algorithm_name)name);
            world_close(&w);
        }
        assert_memory_equal(data[0][0], data[1][0], sizeof **data);
    }
}

/* Which of two zeros is the larger one, and which of two NaNs a sum keeps, depends on who comes first. */
static void in_relaxed_order_replicas_are_equal_in_zeros_and_nans(void **state) {
    (void)state;
    enum { count = 1000 };
    static const ls_op ops[] = {LS_SUM, LS_MAX, LS_MIN, LS_AVERAGE};
    const uint32_t values[] = {0x80000000, 0, 0x7fc00001, 0xffc00002, 0x7f800000, 0xff800000, 0x3f800000};
    uint64_t seed = draw_seed();
    static uint32_t data[MOST_RANKS][count];
    for (int i = 0; i < RANK_COUNTS * ALGORITHM_COUNT * 4; i++) {
        const int ranks = rank_counts[i % RANK_COUNTS], name = i / RANK_COUNTS % ALGORITHM_COUNT;
        const collective_shape shape = {
            .kind = GROUP_ALL_REDUCE, .bytes = sizeof *data, .world_size = ranks, .is_relaxed = true};
        if (!algorithm_carries((algorithm_name)name, &shape)) continue;
        group_call calls[MOST_RANKS] = {0};
        for (int rank = 0; rank < ranks; rank++) {
            for (int j = 0; j < count; j++) data[rank][j] = values[(seed = mix(seed)) % 7];
            calls[rank] = (group_call){.kind = GROUP_ALL_REDUCE,
                                       .dtype = LS_F32,
                                       .op = ops[i / RANK_COUNTS / ALGORITHM_COUNT],
                                       .count = count,
                                       .data = data[rank]};
        }
        world w;
        world_open(&w, ranks, true, seed);
        world_run(&w, calls, (algorithm_name)name);
        world_close(&w);
        for (int rank = 1; rank < ranks; rank++) assert_memory_equal(data[rank], data[0], sizeof *data);
    }
}

/* The sum of all at once equals that of two parts, by whichever algorithm each goes. */
static void bits_do_not_depend_on_how_data_is_split(void **state) {
    (void)state;
    enum { count = 100000 };
    uint64_t seed = draw_seed();
    static float whole[MOST_RANKS][count], parts[MOST_RANKS][count];
    for (int i = 0; i < RANK_COUNTS; i++) {
        const int ranks = rank_counts[i];
        const size_t split = (seed = mix(seed)) % (i % 2 ? 1000 : count);
        group_call first[MOST_RANKS] = {0}, second[MOST_RANKS] = {0}, all[MOST_RANKS] = {0};
        for (int rank = 0; rank < ranks; rank++) {
            fill((char *)whole[rank], &(trial){.dtype = LS_F32, .seed = seed}, rank, 0, sizeof *whole);
            memcpy(parts[rank], whole[rank], sizeof *whole);
            const group_call call = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .op = LS_AVERAGE};
            all[rank] = first[rank] = second[rank] = call;
            all[rank].data = whole[rank];
            all[rank].count = count;
            first[rank].data = parts[rank];
            first[rank].count = split;
            second[rank].data = parts[rank] + split;
            second[rank].count = count - split;
        }
        world w;
        world_open(&w, ranks, false, seed);
        world_run(&w, all, ALGORITHM_COUNT);
        world_run(&w, first, ALGORITHM_COUNT);
        world_run(&w, second, ALGORITHM_COUNT);
        world_close(&w);
        for (int rank = 0; rank < ranks; rank++) {
            assert_memory_equal(whole[rank], whole[0], sizeof *whole);
            assert_memory_equal(parts[rank], whole[0], sizeof *whole);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_at_every_size_equals_the_serial_oracle),
        cmocka_unit_test(in_relaxed_order_replicas_are_equal_and_near_the_oracle),
        cmocka_unit_test(in_relaxed_order_reruns_have_the_same_bits),
        cmocka_unit_test(in_relaxed_order_replicas_are_equal_in_zeros_and_nans),
        cmocka_unit_test(bits_do_not_depend_on_how_data_is_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
