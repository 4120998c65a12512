/* table.c: the walk through the table of collectives. */
#include "support/table.h"

#include "group/oracle.h"

#include <stdio.h>
#include <stdlib.h>

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

_Static_assert(COLLECTIVE_COUNT *LS_DTYPE_COUNT *LS_OP_COUNT == TABLE_ENTRIES, "table.h knows how many there are");

typedef enum memory { ORDINARY, UNALIGNED, IN_GROUP, MEMORIES } memory;

/* A line of the table, as all ranks draw it. */
typedef struct line {
    collective kind;
    ls_dtype dtype;
    ls_op op;
    size_t count;
    uint64_t seed;
    int size; /* which of `sizes` */
    memory memory;
    bool is_in_place;
    int root;
    bool is_async, one_apart; /* rank 0's data in ordinary memory, the others' in the group's */
    size_t shift;             /* elements off alignment */
} line;

#define MOST_RANKS 8
#define MOST_COUNT ((size_t)20011)
#define LARGE_ROW_BYTES ((size_t)17 << 20)

/* A rank's own. */
typedef struct walker {
    ls_group *group;
    int rank, world_size;
    bool adds_in_any_order, adds_by_host;
    size_t most_bytes;       /* of what a rank sends or receives */
    char *shared, *ordinary; /* [2 * most_bytes]: what is sent, then what is received */
    char *sent[MOST_RANKS];  /* what each rank sends, as far as this rank needs it */
    char *expected;
} walker;

static bool combines(collective kind) {
    return kind <= REDUCE_SCATTER;
}

static size_t element_bytes(const line *at) {
    return ls_dtype_size(at->dtype);
}

/* --- the oracle ------------------------------------------------------------------------------------------------------ */

/* Values repeat, so that few have to be drawn and combined: after a prime number, so that nobody's blocks do. */
#define PERIOD ((size_t)1021)

/* The first PERIOD of `count` elements are there. */
static void repeat(char *data, size_t count, size_t bytes) {
    for (size_t done = PERIOD, now = 0; done < count; done += now) {
        now = count - done < done ? count - done : done;
        memcpy(data + done * bytes, data, now * bytes);
    }
}

/* Of the uneven all-to-all. */
static size_t count_for(const line *at, int from, int to) {
    return mix(at->seed ^ (uint64_t)(from * 64 + to)) % (at->count + 1);
}

/* Elements of `from` that go to ranks before `to`. */
static size_t count_before(const line *at, int from, int to) {
    size_t count = 0;
    if (at->kind == REDUCE_SCATTER || at->kind == SCATTER || at->kind == ALL_TO_ALL) return at->count * (size_t)to;
    for (int before = 0; at->kind == UNEVEN && before < to; before++) count += count_for(at, from, before);
    return count;
}

static size_t sent_count(const line *at, int from, int world_size) {
    const size_t count = count_before(at, from, world_size);
    return count || at->kind == UNEVEN ? count : at->count;
}

/* What rank `from` has for this one. */
static size_t received_count(const walker *self, const line *at, int from) {
    return at->kind == UNEVEN ? count_for(at, from, self->rank) : at->count;
}

static const char *received(const walker *self, const line *at, int from) {
    return self->sent[from] + count_before(at, from, self->rank) * element_bytes(at);
}

static void draw_sent(const walker *self, const line *at) {
    for (int from = 0; from < self->world_size; from++) {
        const bool is_own = from == self->rank;
        const size_t first = is_own ? 0 : count_before(at, from, self->rank);
        const size_t count = is_own ? sent_count(at, from, self->world_size) : received_count(self, at, from);
        for (size_t i = first; i < first + count && i < first + PERIOD; i++)
            draw(self->sent[from], i, i % PERIOD, at->dtype, at->seed, from);
        repeat(self->sent[from] + first * element_bytes(at), count, element_bytes(at));
    }
}

static void combine_all(const walker *self, const line *at) {
    const size_t bytes = element_bytes(at);
    const void *elements[MOST_RANKS];
    for (size_t i = 0; i < at->count && i < PERIOD; i++) {
        for (int from = 0; from < self->world_size; from++) elements[from] = received(self, at, from) + i * bytes;
        expect_element(self->expected + i * bytes, at->dtype, at->op, elements, self->world_size);
    }
    repeat(self->expected, at->count, bytes);
}

/* What this rank should have: its bytes. */
static size_t expect(const walker *self, const line *at) {
    const bool is_root = self->rank == at->root, has_one_source = at->kind == BROADCAST || at->kind == SCATTER;
    size_t bytes = 0;
    if (at->kind == GATHER && !is_root) return 0;
    if (at->kind == REDUCE && !is_root) { /* as it was */
        memcpy(self->expected, self->sent[self->rank], at->count * element_bytes(at));
        return at->count * element_bytes(at);
    }
    if (combines(at->kind)) {
        combine_all(self, at);
        return at->count * element_bytes(at);
    }
    for (int from = 0; from < self->world_size; from++) {
        if (has_one_source && from != at->root) continue;
        const size_t length = received_count(self, at, from) * element_bytes(at);
        memcpy(self->expected + bytes, received(self, at, from), length);
        bytes += length;
    }
    return bytes;
}

/* --- what may round differently -------------------------------------------------------------------------------------- */

static bool rounds_differently(const walker *self, const line *at) {
    const bool is_wide = at->dtype == LS_F32 || at->dtype == LS_F64;
    const bool is_short = at->dtype == LS_F16 || at->dtype == LS_BF16;
    const bool adds = at->op == LS_SUM || at->op == LS_PRODUCT || at->op == LS_AVERAGE;
    if (self->adds_by_host) return (is_wide || is_short) && adds && combines(at->kind);
    return self->adds_in_any_order && is_wide && adds && (at->kind == ALL_REDUCE || at->kind == REDUCE);
}

static double value_of(const line *at, const char *data, size_t i) {
    double wide = 0;
    float narrow = 0;
    if (at->dtype == LS_F64) return memcpy(&wide, data + i * sizeof wide, sizeof wide), wide;
    if (at->dtype != LS_F32) return (double)decode_float(data + i * sizeof(uint16_t), at->dtype);
    return memcpy(&narrow, data + i * sizeof narrow, sizeof narrow), (double)narrow;
}

/* Rounding is relative to what was added up, or to the product; of 16 bits, also by a last place of the result. */
static bool is_near(const walker *self, const line *at, const char *result, size_t i) {
    const double found = value_of(at, result, i), wanted = value_of(at, self->expected, i);
    const double last_place = at->dtype == LS_F16 ? 0x1p-10 : at->dtype == LS_BF16 ? 0x1p-7 : 0;
    double scale = fabs(wanted);
    if (found == wanted) return true;
    for (int from = 0; from < self->world_size && at->op != LS_PRODUCT; from++)
        scale += fabs(value_of(at, received(self, at, from), i));
    return fabs(found - wanted) <= (at->dtype == LS_F64 ? 1e-14 : 2e-6) * scale + last_place * fabs(wanted) +
                                       (at->dtype == LS_F16 ? 0x1p-24 : 0);
}

static bool is_right(const walker *self, const line *at, const char *result, size_t bytes) {
    if (bytes == 0 || memcmp(result, self->expected, bytes) == 0) return true;
    for (size_t i = 0; i < bytes / element_bytes(at); i++)
        if (!rounds_differently(self, at) || !is_near(self, at, result, i)) return false;
    return true;
}

/* --- a line ---------------------------------------------------------------------------------------------------------- */

/* Where this rank sends from and receives: apart, or one within the other as the interface allows. */
static void place(const walker *self, const line *at, char **send, char **receive) {
    const bool in_group = at->memory == IN_GROUP && !(at->one_apart && self->rank == 0);
    const size_t own = at->count * element_bytes(at) * (size_t)self->rank;
    const bool is_root = self->rank == at->root;
    *send = (in_group ? self->shared : self->ordinary) + at->shift * element_bytes(at);
    *receive = *send + self->most_bytes;
    if (at->kind == ALL_REDUCE || at->kind == REDUCE || at->kind == BROADCAST) *receive = *send;
    if (!at->is_in_place) return;
    if (at->kind == REDUCE_SCATTER || (at->kind == SCATTER && is_root)) *receive = *send + own;
    if (at->kind == ALL_GATHER || (at->kind == GATHER && is_root)) *send = *receive + own;
}

static ls_status call(const walker *self, const line *at, const char *send, char *receive, ls_work **work) {
    ls_group *group = self->group;
    size_t out[MOST_RANKS] = {0}, in[MOST_RANKS] = {0};
    const size_t count = at->count;
    const bool is_root = self->rank == at->root;
    for (int peer = 0; peer < self->world_size; peer++) {
        out[peer] = count_for(at, self->rank, peer);
        in[peer] = count_for(at, peer, self->rank);
    }
    switch (at->kind) {
    case ALL_REDUCE: return ls_group_all_reduce(group, receive, count, at->dtype, at->op, work);
    case REDUCE: return ls_group_reduce(group, receive, count, at->dtype, at->op, at->root, work);
    case REDUCE_SCATTER: return ls_group_reduce_scatter(group, send, receive, count, at->dtype, at->op, work);
    case BROADCAST: return ls_group_broadcast(group, receive, count, at->dtype, at->root, work);
    case ALL_GATHER: return ls_group_all_gather(group, send, receive, count, at->dtype, work);
    case GATHER: return ls_group_gather(group, send, is_root ? receive : NULL, count, at->dtype, at->root, work);
    case SCATTER: return ls_group_scatter(group, is_root ? send : NULL, receive, count, at->dtype, at->root, work);
    case ALL_TO_ALL: return ls_group_all_to_all(group, send, receive, count, at->dtype, work);
    default: return ls_group_all_to_all_uneven(group, send, out, receive, in, at->dtype, work);
    }
}

static bool say_wrong(const walker *self, const line *at, const char *what) {
    fprintf(stderr,
            "rank %d of %d: %s: collective %d, %s, %s, %zu elements, root %d, memory %d, shift %zu, in place %d, "
            "asynchronous %d\n",
            self->rank, self->world_size, what, (int)at->kind, ls_dtype_name(at->dtype), ls_op_name(at->op), at->count,
            at->root, (int)at->memory, at->shift, at->is_in_place, at->is_async);
    return false;
}

static bool run_line(const walker *self, const line *at) {
    char *send = NULL, *receive = NULL;
    ls_work *work = NULL;
    place(self, at, &send, &receive);
    draw_sent(self, at);
    /* `place` sets it. NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
    memcpy(send, self->sent[self->rank], sent_count(at, self->rank, self->world_size) * element_bytes(at));
    const size_t bytes = expect(self, at);
    ls_status status = call(self, at, send, receive, at->is_async ? &work : NULL);
    if (work) status = ls_work_wait(work, 0);
    ls_work_close(&work);
    if (status != LS_OK) return say_wrong(self, at, ls_last_error());
    return is_right(self, at, receive, bytes) || say_wrong(self, at, "wrong");
}

/* --- cells ----------------------------------------------------------------------------------------------------------- */

#define SIZES 4
#define CELLS (SIZES * MEMORIES * 2)
#define LINES_A_TURN 6

/* Nothing, one, odd, and large, of which some are past a slot's payload and some past what is sent at once. */
static const size_t sizes[SIZES][4] = {{0, 0, 0, 0}, {1, 1, 1, 1}, {3, 37, 259, 1021}, {2600, 5003, 8192, MOST_COUNT}};

static bool is_place_open(collective kind) {
    return kind == REDUCE_SCATTER || kind == ALL_GATHER || kind == GATHER || kind == SCATTER;
}

static uint32_t cell_bit(int size, int in_memory, bool is_in_place) {
    return UINT32_C(1) << ((size * MEMORIES + in_memory) * 2 + is_in_place);
}

/* Entry `index` of the coverage; false: there is no such op. */
static bool entry_of(int index, line *at) {
    *at = (line){.kind = (collective)(index / LS_OP_COUNT / LS_DTYPE_COUNT),
                 .dtype = (ls_dtype)(index / LS_OP_COUNT % LS_DTYPE_COUNT),
                 .op = (ls_op)(index % LS_OP_COUNT)};
    return combines(at->kind) ? is_defined(at->dtype, at->op) : at->op == 0;
}

/* Line `number` of a walk is the next of an entry: its cell, and what is left to chance. */
static void draw_line(const walker *self, const table_plan *plan, uint64_t number, line *at) {
    const uint64_t bits = mix(plan->seed ^ mix(number + ((uint64_t)plan->turn << 32)));
    const uint64_t cell = (plan->seed + number + LINES_A_TURN * (uint64_t)plan->turn) % CELLS;
    at->seed = bits;
    at->size = (int)(cell % SIZES);
    at->memory = (memory)(cell % MEMORIES);
    at->is_in_place = is_place_open(at->kind) && cell % 2 != cell / (CELLS / 2);
    at->root = (int)(bits % (uint64_t)self->world_size);
    at->is_async = bits >> 12 & 1;
    at->one_apart = (bits >> 13 & 7) == 0;
    at->count = sizes[at->size][bits >> 16 & 3];
    at->shift = at->memory == UNALIGNED || (at->memory == IN_GROUP && bits >> 18 & 1) ? 1 + (bits >> 20) % 15 : 0;
}

static bool walk(const walker *self, const table_plan *plan, table_coverage *covered) {
    uint64_t number = 0;
    line at;
    for (int index = 0; index < TABLE_ENTRIES; index++)
        for (int i = 0; i < LINES_A_TURN && entry_of(index, &at); i++, number++) {
            if (plan->every && number % (uint64_t)plan->every) continue;
            draw_line(self, plan, number, &at);
            if (!run_line(self, &at)) return false;
            if (covered) covered->cells[index] |= cell_bit(at.size, at.memory, at.is_in_place);
        }
    return true;
}

bool table_is_covered(const table_coverage *covered) {
    line at;
    for (int index = 0; index < TABLE_ENTRIES; index++) {
        uint32_t wanted = 0;
        if (!entry_of(index, &at)) continue;
        for (int cell = 0; cell < CELLS; cell++)
            wanted |= cell_bit(cell % SIZES, cell % MEMORIES, is_place_open(at.kind) && cell >= CELLS / 2);
        if (covered->cells[index] == wanted) continue;
        fprintf(stderr, "collective %d, %s, %s: %d cells were not met\n", (int)at.kind, ls_dtype_name(at.dtype),
                ls_op_name(at.op), __builtin_popcount(wanted ^ covered->cells[index]));
        return false;
    }
    return true;
}

/* The second of those that combine is of a type that MPI's backend, for one, does not leave to MPI. */
static bool walk_large(const walker *self, const table_plan *plan) {
    for (int i = 0; i < COLLECTIVE_COUNT + BROADCAST; i++) {
        line at = {.kind = (collective)(i % COLLECTIVE_COUNT), .dtype = i < COLLECTIVE_COUNT ? LS_I64 : LS_BF16};
        draw_line(self, plan, (uint64_t)i, &at);
        at.count = LARGE_ROW_BYTES / element_bytes(&at) - 3;
        if (!run_line(self, &at)) return false;
    }
    return true;
}

/* --- a walk ---------------------------------------------------------------------------------------------------------- */

#define PAGE_BYTES ((size_t)4096)

static bool has_memory(walker *self, size_t row_bytes) {
    void *shared = NULL;
    self->most_bytes = (row_bytes * (size_t)self->world_size + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES;
    self->ordinary = aligned_alloc(PAGE_BYTES, 2 * self->most_bytes);
    self->expected = malloc(self->most_bytes);
    bool has_all = self->ordinary && self->expected;
    for (int from = 0; from < self->world_size; from++)
        has_all &= (self->sent[from] = malloc(self->most_bytes)) != NULL;
    has_all &= ls_group_alloc(self->group, 2 * self->most_bytes, &shared) == LS_OK;
    self->shared = shared;
    if (!has_all) fprintf(stderr, "rank %d: no memory to walk with: %s\n", self->rank, ls_last_error());
    return has_all;
}

static void let_go(walker *self) {
    ls_group_free(self->group, self->shared);
    free(self->ordinary);
    free(self->expected);
    for (int from = 0; from < self->world_size; from++) free(self->sent[from]);
}

static walker walker_of(ls_group *group, const table_plan *plan) {
    return (walker){.group = group,
                    .rank = ls_group_rank(group),
                    .world_size = ls_group_world_size(group),
                    .adds_in_any_order = plan->adds_in_any_order,
                    .adds_by_host = plan->adds_by_host};
}

bool table_walk(ls_group *group, const table_plan *plan, table_coverage *covered) {
    walker self = walker_of(group, plan);
    const bool is_right = has_memory(&self, MOST_COUNT * 8) && walk(&self, plan, covered);
    let_go(&self);
    return is_right;
}

bool table_walk_large(ls_group *group, const table_plan *plan) {
    walker self = walker_of(group, plan);
    const bool is_right = has_memory(&self, LARGE_ROW_BYTES) && walk_large(&self, plan);
    let_go(&self);
    return is_right;
}
