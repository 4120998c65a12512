/* A rank under mpirun: worker_table SEED runs every collective, type, op and some sizes, in group memory and ordinary
 * memory, in place and apart, against the serial oracle of tests/group; worker_table SEED large some with several
 * pieces a row. */
#include "group/oracle.h"
#include "mpi/rounds.h"

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

typedef struct line {
    collective kind;
    ls_dtype dtype;
    ls_op op;
    size_t count, element_bytes;
    uint64_t seed;
    int root;
    bool in_group, is_in_place, is_async;
} line;

static ls_group *group;
static int rank, world_size;
static size_t most_bytes;         /* of one rank's input or output */
static char *in_group, *ordinary; /* [2 * most_bytes] */
static char *sent[8], *expected;

static bool combines(collective kind) {
    return kind <= REDUCE_SCATTER;
}

static bool has_rows(collective kind) {
    return kind == REDUCE_SCATTER || kind == SCATTER || kind == ALL_TO_ALL;
}

static size_t count_for(const line *at, int from, int to) {
    return mix(at->seed ^ (uint64_t)(from * 64 + to)) % (at->count + 1);
}

static size_t sent_count(const line *at, int from) {
    size_t count = 0;
    if (at->kind != UNEVEN) return has_rows(at->kind) ? at->count * (size_t)world_size : at->count;
    for (int to = 0; to < world_size; to++) count += count_for(at, from, to);
    return count;
}

static size_t combine_row(const line *at, size_t row) {
    for (size_t i = 0; i < at->count; i++) {
        const void *elements[8];
        for (int from = 0; from < world_size; from++) elements[from] = sent[from] + (row + i) * at->element_bytes;
        expect_element(expected + i * at->element_bytes, at->dtype, at->op, elements, world_size);
    }
    return at->count * at->element_bytes;
}

/* What this rank should have: its bytes, in `expected`. */
static size_t expect(const line *at) {
    const size_t row = at->count * at->element_bytes;
    size_t bytes = 0;
    if (at->kind == ALL_REDUCE || (at->kind == REDUCE && rank == at->root)) return combine_row(at, 0);
    if (at->kind == REDUCE_SCATTER) return combine_row(at, at->count * (size_t)rank);
    if (at->kind == GATHER && rank != at->root) return 0;
    if (at->kind == REDUCE || at->kind == BROADCAST || at->kind == SCATTER) {
        const size_t skipped = at->kind == SCATTER ? row * (size_t)rank : 0;
        memcpy(expected, sent[at->kind == REDUCE ? rank : at->root] + skipped, row);
        return row;
    }
    for (int from = 0; from < world_size; from++) {
        size_t skipped = at->kind == ALL_TO_ALL ? row * (size_t)rank : 0, length = row;
        if (at->kind == UNEVEN) {
            length = count_for(at, from, rank) * at->element_bytes;
            for (int to = 0; to < rank; to++) skipped += count_for(at, from, to) * at->element_bytes;
        }
        memcpy(expected + bytes, sent[from] + skipped, length);
        bytes += length;
    }
    return bytes;
}

static ls_status call(const line *at, const char *send, char *receive, ls_work **work) {
    size_t out[8], in[8];
    const bool is_root = rank == at->root;
    for (int peer = 0; peer < world_size; peer++) {
        out[peer] = count_for(at, rank, peer);
        in[peer] = count_for(at, peer, rank);
    }
    switch (at->kind) {
    case ALL_REDUCE: return ls_group_all_reduce(group, receive, at->count, at->dtype, at->op, work);
    case REDUCE: return ls_group_reduce(group, receive, at->count, at->dtype, at->op, at->root, work);
    case REDUCE_SCATTER: return ls_group_reduce_scatter(group, send, receive, at->count, at->dtype, at->op, work);
    case BROADCAST: return ls_group_broadcast(group, receive, at->count, at->dtype, at->root, work);
    case ALL_GATHER: return ls_group_all_gather(group, send, receive, at->count, at->dtype, work);
    case GATHER: return ls_group_gather(group, send, is_root ? receive : NULL, at->count, at->dtype, at->root, work);
    case SCATTER: return ls_group_scatter(group, is_root ? send : NULL, receive, at->count, at->dtype, at->root, work);
    case ALL_TO_ALL: return ls_group_all_to_all(group, send, receive, at->count, at->dtype, work);
    default: return ls_group_all_to_all_uneven(group, send, out, receive, in, at->dtype, work);
    }
}

/* MPI adds in an order of its own, and rounds 16-bit floats after every addition. */
static double tolerance_of(const line *at) {
    if (!combines(at->kind) || at->op == LS_MAX || at->op == LS_MIN) return 0;
    return at->dtype == LS_F64 ? 1e-13 : at->dtype == LS_F32 ? 1e-5 : at->dtype == LS_F16 ? 4e-3 : 3e-2;
}

static double value_of(const line *at, const char *data, size_t i) {
    double wide;
    float narrow;
    if (at->dtype == LS_F64) return memcpy(&wide, data + i * 8, 8), wide;
    if (at->dtype == LS_F32) return memcpy(&narrow, data + i * 4, 4), (double)narrow;
    return (double)decode_float(data + i * 2, at->dtype);
}

/* The size of what was added up, to which rounding is relative. */
static double scale_of(const line *at, size_t i, double result) {
    double scale = fabs(result);
    const size_t row = at->kind == REDUCE_SCATTER ? at->count * (size_t)rank : 0;
    for (int from = 0; from < world_size && at->op != LS_PRODUCT; from++)
        scale += fabs(value_of(at, sent[from], row + i));
    return scale + (at->dtype == LS_F16 ? 1e-4 : 0); /* subnormal products */
}

static bool is_right(const line *at, const char *result, size_t bytes) {
    if (bytes == 0 || memcmp(result, expected, bytes) == 0) return true;
    if (at->dtype != LS_F32 && at->dtype != LS_F64 && at->dtype != LS_F16 && at->dtype != LS_BF16) return false;
    for (size_t i = 0; i < bytes / at->element_bytes; i++) {
        const double found = value_of(at, result, i), wanted = value_of(at, expected, i);
        if (found == wanted || (isnan(found) && isnan(wanted))) continue;
        if (at->dtype == LS_F16 && (isinf(found) || isinf(wanted)) && at->op != LS_AVERAGE) continue; /* on the way */
        /* MPI multiplies in its own order and rounds on the way: bits that a subnormal factor has lost show. */
        if (at->dtype == LS_F16 && at->op == LS_PRODUCT) continue;
        if (!(fabs(found - wanted) <= tolerance_of(at) * scale_of(at, i, wanted))) return false;
    }
    return true;
}

static void run_line(const line *at) {
    char *send = at->in_group ? in_group : ordinary, *receive = send + most_bytes;
    const size_t own = at->count * at->element_bytes * (size_t)rank;
    ls_work *work = NULL;
    if (at->kind == ALL_REDUCE || at->kind == REDUCE || at->kind == BROADCAST) receive = send;
    if (at->is_in_place && (at->kind == REDUCE_SCATTER || (at->kind == SCATTER && rank == at->root)))
        receive = send + own;
    if (at->is_in_place && (at->kind == ALL_GATHER || (at->kind == GATHER && rank == at->root))) send = receive + own;
    for (int from = 0; from < world_size; from++)
        for (size_t i = 0; i < sent_count(at, from); i++) draw(sent[from], i, i, at->dtype, at->seed, from);
    memcpy(send, sent[rank], sent_count(at, rank) * at->element_bytes);
    const size_t bytes = expect(at);
    MUST(call(at, send, receive, at->is_async ? &work : NULL) == LS_OK);
    if (work) MUST(ls_work_wait(work, 0) == LS_OK);
    ls_work_close(&work);
    if (is_right(at, receive, bytes)) return;
    fprintf(stderr,
            "rank %d of %d: wrong: collective %d, %s, %s, %zu elements, root %d, in group memory %d, in place %d\n",
            rank, world_size, (int)at->kind, ls_dtype_name(at->dtype), ls_op_name(at->op), at->count, at->root,
            at->in_group, at->is_in_place);
    exit(1);
}

static line draw_line(collective kind, ls_dtype dtype, ls_op op, size_t count, uint64_t seed) {
    const uint64_t bits =
        mix(seed ^ mix((uint64_t)kind * 1000003 + (uint64_t)dtype * 1009 + (uint64_t)op * 31 + count));
    return (line){.kind = kind,
                  .dtype = dtype,
                  .op = op,
                  .count = count,
                  .element_bytes = ls_dtype_size(dtype),
                  .seed = bits,
                  .root = (int)(bits % (uint64_t)world_size),
                  .in_group = bits >> 10 & 1,
                  .is_in_place = bits >> 11 & 1,
                  .is_async = bits >> 12 & 1};
}

static void walk(uint64_t seed) {
    static const size_t counts[] = {0, 1, 37, 1021, 5003};
    for (int kind = 0; kind < COLLECTIVE_COUNT; kind++)
        for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++)
            for (int op = 0; op < (combines((collective)kind) ? LS_OP_COUNT : 1); op++) {
                if (!is_defined((ls_dtype)dtype, (ls_op)op)) continue;
                for (size_t size = 0; size < sizeof counts / sizeof counts[0]; size++) {
                    const line at = draw_line((collective)kind, (ls_dtype)dtype, (ls_op)op, counts[size], seed);
                    run_line(&at);
                }
            }
}

/* Rows of 17 MiB and a little; and of what is widened, which comes in smaller pieces. */
static void walk_large(uint64_t seed) {
    const size_t count = ((size_t)17 << 20) / 8 + 3;
    for (int kind = 0; kind < COLLECTIVE_COUNT; kind++) {
        const line at = draw_line((collective)kind, LS_I64, LS_SUM, count, seed);
        run_line(&at);
    }
    for (int kind = 0; combines((collective)kind); kind++) {
        const line at = draw_line((collective)kind, LS_I8, LS_AVERAGE, 200003, seed);
        run_line(&at);
    }
}

int main(int argc, char **argv) {
    const bool is_large = argc == 3 && strcmp(argv[2], "large") == 0;
    if (argc != 2 && !is_large) return 2;
    void *shared = NULL;
    MUST(ls_group_open(&group, NULL) == LS_OK);
    rank = ls_group_rank(group);
    world_size = ls_group_world_size(group);
    MUST(world_size <= 8);
    most_bytes = (is_large ? (size_t)18 << 20 : (size_t)5003 * 8) * (size_t)world_size;
    MUST(ls_group_alloc(group, 2 * most_bytes, &shared) == LS_OK);
    in_group = shared;
    ordinary = malloc(2 * most_bytes);
    expected = malloc(most_bytes);
    for (int from = 0; from < world_size; from++) sent[from] = malloc(most_bytes);
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    if (is_large)
        walk_large(seed);
    else
        walk(seed);
    for (int from = 0; from < world_size; from++) free(sent[from]);
    free(ordinary);
    free(expected);
    ls_group_close(&group);
    printf("rank %d is done\n", rank);
    return 0;
}
