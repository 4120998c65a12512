/* test_collectives.c: what the nccl backend makes of each collective comes to what the oracle says, over the stand-in, which
 * checks every call's arguments. */
#include "nccl/on_gpus.h"

#include "group/oracle.h"

#include <time.h>

/* One combination, drawn from a seed that all ranks share. */
typedef struct trial {
    ls_group *group;
    const ls_rank *rank;
    ls_dtype dtype;
    ls_op op;
    size_t count;
    int root;
    uint64_t seed;
} trial;

static uint64_t seed;

/* --- arrays of a trial ------------------------------------------------------------------------------------------------- */

static size_t row_bytes(const trial *t) {
    return t->count * ls_dtype_size(t->dtype);
}

/* What rank `of` has: `rows` rows. */
static char *drawn(const trial *t, int of, size_t rows) {
    char *data = malloc(rows * row_bytes(t) + 1);
    assert_non_null(data);
    for (size_t i = 0; i < rows * t->count; i++) draw(data, i, i, t->dtype, t->seed, of);
    return data;
}

/* Rows [row, row + 1) of all ranks, combined. */
static char *combined(const trial *t, size_t rows, size_t row) {
    char *all[STAND_IN_RANKS] = {NULL}, *result = malloc(row_bytes(t) + 1);
    const size_t element_bytes = ls_dtype_size(t->dtype);
    assert_non_null(result);
    for (int of = 0; of < t->rank->world_size; of++) all[of] = drawn(t, of, rows);
    for (size_t i = 0; i < t->count; i++) {
        const void *sources[STAND_IN_RANKS] = {NULL};
        for (int of = 0; of < t->rank->world_size; of++) sources[of] = all[of] + (row * t->count + i) * element_bytes;
        expect_element(result + i * element_bytes, t->dtype, t->op, sources, t->rank->world_size);
    }
    for (int of = 0; of < t->rank->world_size; of++) free(all[of]);
    return result;
}

/* The rank's own rows on its GPU. */
static void *own(const trial *t, size_t rows) {
    char *data = drawn(t, t->rank->rank, rows);
    void *memory = on_gpu(t->rank->rank, data, rows * row_bytes(t));
    free(data);
    return memory;
}

static void *blank(const trial *t, size_t rows) {
    return on_gpu(t->rank->rank, NULL, rows * row_bytes(t));
}

static void assert_holds_drawn(const trial *t, const void *memory, int of, size_t rows) {
    char *expected = drawn(t, of, rows);
    assert_gpu_holds(memory, expected, rows * row_bytes(t));
    free(expected);
}

/* --- those that combine ------------------------------------------------------------------------------------------------ */

static void try_all_reduce(const trial *t) {
    char *expected = combined(t, 1, 0);
    void *data = own(t, 1);
    assert_ok(ls_group_all_reduce(t->group, data, t->count, t->dtype, t->op, NULL));
    assert_gpu_holds(data, expected, row_bytes(t));
    stand_in_free(data);
    free(expected);
}

static void try_reduce(const trial *t) {
    char *expected = combined(t, 1, 0);
    void *data = own(t, 1);
    assert_ok(ls_group_reduce(t->group, data, t->count, t->dtype, t->op, t->root, NULL));
    if (t->rank->rank == t->root)
        assert_gpu_holds(data, expected, row_bytes(t));
    else
        assert_holds_drawn(t, data, t->rank->rank, 1);
    stand_in_free(data);
    free(expected);
}

static void try_reduce_scatter(const trial *t) {
    const size_t ranks = (size_t)t->rank->world_size, at = (size_t)t->rank->rank;
    const bool is_in_place = t->seed % 2;
    char *expected = combined(t, ranks, at), *send = own(t, ranks);
    char *receive = is_in_place ? send + at * row_bytes(t) : blank(t, 1);
    assert_ok(ls_group_reduce_scatter(t->group, send, receive, t->count, t->dtype, t->op, NULL));
    assert_gpu_holds(receive, expected, row_bytes(t));
    if (!is_in_place) stand_in_free(receive);
    stand_in_free(send);
    free(expected);
}

/* --- those that move --------------------------------------------------------------------------------------------------- */

static void try_broadcast(const trial *t) {
    void *data = own(t, 1);
    assert_ok(ls_group_broadcast(t->group, data, t->count, t->dtype, t->root, NULL));
    assert_holds_drawn(t, data, t->root, 1);
    stand_in_free(data);
}

static void assert_rows_of_all(const trial *t, const char *receive) {
    for (int of = 0; of < t->rank->world_size; of++) assert_holds_drawn(t, receive + (size_t)of * row_bytes(t), of, 1);
}

static void try_all_gather(const trial *t) {
    const bool is_in_place = t->seed % 2;
    char *receive = blank(t, (size_t)t->rank->world_size), *send = own(t, 1);
    char *place = receive + (size_t)t->rank->rank * row_bytes(t), *content = drawn(t, t->rank->rank, 1);
    if (is_in_place) stand_in_write(place, content, row_bytes(t));
    assert_ok(ls_group_all_gather(t->group, is_in_place ? place : send, receive, t->count, t->dtype, NULL));
    assert_rows_of_all(t, receive);
    free(content);
    stand_in_free(send);
    stand_in_free(receive);
}

static void try_gather(const trial *t) {
    const bool is_root = t->rank->rank == t->root, is_in_place = is_root && t->seed % 2;
    char *receive = blank(t, (size_t)t->rank->world_size), *send = own(t, 1);
    char *place = receive + (size_t)t->rank->rank * row_bytes(t), *content = drawn(t, t->rank->rank, 1);
    if (is_in_place) stand_in_write(place, content, row_bytes(t));
    assert_ok(ls_group_gather(t->group, is_in_place ? place : send, is_root ? receive : NULL, t->count, t->dtype,
                              t->root, NULL));
    if (is_root) assert_rows_of_all(t, receive);
    free(content);
    stand_in_free(send);
    stand_in_free(receive);
}

static void try_scatter(const trial *t) {
    const size_t at = (size_t)t->rank->rank * row_bytes(t);
    const bool is_root = t->rank->rank == t->root, is_in_place = is_root && t->seed % 2;
    char *send = own(t, (size_t)t->rank->world_size), *receive = is_in_place ? send + at : blank(t, 1);
    char *expected = drawn(t, t->root, (size_t)t->rank->world_size);
    assert_ok(ls_group_scatter(t->group, is_root ? send : NULL, receive, t->count, t->dtype, t->root, NULL));
    assert_gpu_holds(receive, expected + at, row_bytes(t));
    free(expected);
    if (!is_in_place) stand_in_free(receive);
    stand_in_free(send);
}

static void try_all_to_all(const trial *t) {
    const size_t ranks = (size_t)t->rank->world_size, at = (size_t)t->rank->rank * row_bytes(t);
    char *send = own(t, ranks), *receive = blank(t, ranks);
    assert_ok(ls_group_all_to_all(t->group, send, receive, t->count, t->dtype, NULL));
    for (size_t from = 0; from < ranks; from++) {
        char *expected = drawn(t, (int)from, ranks);
        assert_gpu_holds(receive + from * row_bytes(t), expected + at, row_bytes(t));
        free(expected);
    }
    stand_in_free(send);
    stand_in_free(receive);
}

/* Rank a has (a + b) % 3 times `count` elements for rank b. */
static size_t uneven(const trial *t, int from, int to) {
    return (size_t)((from + to) % 3) * t->count;
}

static void try_uneven(const trial *t) {
    const int ranks = t->rank->world_size, me = t->rank->rank;
    const size_t element_bytes = ls_dtype_size(t->dtype);
    size_t send_counts[STAND_IN_RANKS], receive_counts[STAND_IN_RANKS], at = 0;
    for (int peer = 0; peer < ranks; peer++) {
        send_counts[peer] = uneven(t, me, peer);
        receive_counts[peer] = uneven(t, peer, me);
    }
    char *send = own(t, 2 * (size_t)ranks), *receive = blank(t, 2 * (size_t)ranks);
    assert_ok(ls_group_all_to_all_uneven(t->group, send, send_counts, receive, receive_counts, t->dtype, NULL));
    for (int from = 0; from < ranks; from++) {
        char *expected = drawn(t, from, 2 * (size_t)ranks);
        size_t before = 0;
        for (int peer = 0; peer < me; peer++) before += uneven(t, from, peer);
        assert_gpu_holds(receive + at * element_bytes, expected + before * element_bytes,
                         uneven(t, from, me) * element_bytes);
        at += uneven(t, from, me);
        free(expected);
    }
    stand_in_free(send);
    stand_in_free(receive);
}

/* --- all of them ------------------------------------------------------------------------------------------------------- */

static const size_t counts[] = {0, 1, 257};

/* NCCL's average of integers is none of ours. */
static bool is_carried(ls_dtype dtype, ls_op op) {
    const bool is_float = dtype == LS_F32 || dtype == LS_F64 || dtype == LS_F16 || dtype == LS_BF16;
    return is_defined(dtype, op) && op != LS_BITWISE_OR && op != LS_BITWISE_AND && op != LS_BITWISE_XOR &&
           (op != LS_AVERAGE || is_float);
}

static void try_moves(const trial *t) {
    try_broadcast(t);
    try_all_gather(t);
    try_gather(t);
    try_scatter(t);
    try_all_to_all(t);
    try_uneven(t);
}

static void try_everything(const ls_rank *rank) {
    trial t = {.group = open_on_gpu(rank), .rank = rank, .seed = seed};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (t.dtype = 0; t.dtype < LS_DTYPE_COUNT; t.dtype++) {
            t.count = counts[c];
            t.seed++;
            t.root = (int)(t.seed % (uint64_t)rank->world_size);
            try_moves(&t);
            for (t.op = 0; t.op < LS_OP_COUNT; t.op++) {
                if (!is_carried(t.dtype, t.op)) continue;
                try_all_reduce(&t);
                try_reduce(&t);
                try_reduce_scatter(&t);
            }
        }
    assert_ok(ls_group_barrier(t.group, NULL));
    ls_group_close(&t.group);
    assert_int_equal(stand_in_contexts(), 0);
}

static void every_collective_type_and_op_equals_the_oracle(void **state) {
    (void)state;
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    static const int worlds[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) run_ranks(worlds[i], try_everything, NULL);
}

/* --- what is refused --------------------------------------------------------------------------------------------------- */

static void ask_for_what_nccl_has_not(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    int32_t one[] = {1};
    void *data = on_gpu(rank->rank, one, sizeof one);
    assert_int_equal(ls_group_all_reduce(group, data, 1, LS_I32, LS_BITWISE_XOR, NULL), LS_ERR_UNSUPPORTED);
    assert_error_says("bitwise xor");
    assert_error_says("the backend nccl does not carry it");
    assert_int_equal(ls_group_all_reduce(group, data, 1, LS_I32, LS_AVERAGE, NULL), LS_ERR_UNSUPPORTED);
    assert_int_equal(ls_group_send(group, data, 1, LS_I32, 1 - rank->rank, 0, NULL), LS_ERR_UNSUPPORTED);
    assert_error_says("the backend nccl does not carry it");
    /* The group goes on. */
    const int32_t two[] = {2};
    assert_ok(ls_group_all_reduce(group, data, 1, LS_I32, LS_SUM, NULL));
    assert_gpu_holds(data, two, sizeof two);
    stand_in_free(data);
    ls_group_close(&group);
}

static void what_nccl_has_not_is_refused_and_the_group_goes_on(void **state) {
    (void)state;
    run_ranks(2, ask_for_what_nccl_has_not, NULL);
}

/* --- order and time ---------------------------------------------------------------------------------------------------- */

static void post_before_the_others_come(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    const float value = (float)rank->rank, sum = 1;
    void *data = on_gpu(rank->rank, &value, sizeof value);
    ls_work *work = NULL;
    if (rank->rank == 0) {
        assert_ok(ls_group_all_reduce(group, data, 1, LS_F32, LS_SUM, &work));
        for (int i = 0; i < 100; i++) assert_false(ls_work_is_complete(work));
        assert_int_equal(ls_work_wait(work, 20), LS_ERR_TIMEOUT);
        assert_ok(ls_store_set(rank->store, "go on", "", 0));
        assert_ok(ls_work_wait(work, 0));
        ls_work_close(&work);
    } else {
        assert_ok(ls_store_wait(rank->store, "go on", 0));
        assert_ok(ls_group_all_reduce(group, data, 1, LS_F32, LS_SUM, NULL));
    }
    assert_gpu_holds(data, &sum, sizeof sum);
    stand_in_free(data);
    ls_group_close(&group);
}

static void an_operation_waits_for_ranks_and_a_poll_for_none(void **state) {
    (void)state;
    run_ranks(2, post_before_the_others_come, NULL);
}

static void write_late(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    const float early = 1000, late = 1, sum = 2;
    void *data = on_gpu(rank->rank, &early, sizeof early);
    ls_work *work = NULL;
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 0) stand_in_hold_default_stream(true);
    assert_ok(ls_store_add(rank->store, "held", 1, NULL));
    while (rank->rank == 1) {
        int64_t held = 0;
        assert_ok(ls_store_add(rank->store, "held", 0, &held));
        if (held == 2) break;
    }
    assert_ok(ls_group_all_reduce(group, data, 1, LS_F32, LS_SUM, &work));
    assert_int_equal(ls_work_wait(work, 50), LS_ERR_TIMEOUT);
    stand_in_write(data, &late, sizeof late); /* as a kernel on the default stream would */
    assert_ok(ls_store_add(rank->store, "written", 1, NULL));
    int64_t written = 0;
    while (written < 2) assert_ok(ls_store_add(rank->store, "written", 0, &written));
    stand_in_hold_default_stream(false);
    assert_ok(ls_work_wait(work, 0));
    assert_gpu_holds(data, &sum, sizeof sum);
    ls_work_close(&work);
    stand_in_free(data);
    ls_group_close(&group);
}

static void an_operation_waits_for_work_on_the_default_stream(void **state) {
    (void)state;
    run_ranks(2, write_late, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        gpu_test(every_collective_type_and_op_equals_the_oracle),
        gpu_test(what_nccl_has_not_is_refused_and_the_group_goes_on),
        gpu_test(an_operation_waits_for_ranks_and_a_poll_for_none),
        gpu_test(an_operation_waits_for_work_on_the_default_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
