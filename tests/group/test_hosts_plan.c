/* The plans of ranks that share hosts, run without any of them: every group beneath has the same steps in the same order on
 * all its ranks, which come to an end, with the right result on every rank; between hosts goes no more than the formulas of
 * plan.c say; a message has the same bits in one piece and in several; calls that differ have steps that differ. */
#include "support/test.h"

#include "base/wait.h"
#include "group/backend/hosts/hosts.h"
#include "group/oracle.h"

#include <stdlib.h>
#include <time.h>

#define MOST_RANKS 9
#define LINES_AT_ONCE (LS_UNDER_THREAD_SANITIZER ? 7 : 1) /* of the tables that are walked */
#define MOST_COUNT ((size_t)530001)

/* A rank: where it is, what it calls, how far it has come. */
typedef struct player {
    hosts_place place;
    group_call call;
    char *array, *rows, *scratch; /* of at most MOST_COUNT elements; a row of as many for each rank; of plans */
    hosts_steps steps;
    int step;
    size_t done;
} player;

static struct {
    int world_size, lanes, host_count;
    int host_of[MOST_RANKS], index_of[MOST_RANKS], size_of[MOST_RANKS];
    player players[MOST_RANKS];
    size_t sent[MOST_RANKS];  /* bytes, by each host to others */
    char *result[MOST_RANKS]; /* of a step, before it is written */
} world;

static const size_t row_bytes = MOST_COUNT * sizeof(int64_t);

/* `hosts` says for each rank on which one it is: "0010". */
static void lay_out(const char *hosts) {
    memset(&world, 0, sizeof world);
    world.world_size = (int)strlen(hosts);
    world.lanes = MOST_RANKS;
    for (int rank = 0; rank < world.world_size; rank++) {
        const int host = world.host_of[rank] = hosts[rank] - '0';
        world.index_of[rank] = world.size_of[host]++;
        if (host >= world.host_count) world.host_count = host + 1;
    }
    bool are_alike = true;
    for (int host = 0; host < world.host_count; host++) {
        if (world.size_of[host] < world.lanes) world.lanes = world.size_of[host];
        are_alike = are_alike && world.size_of[host] == world.size_of[0];
    }
    const size_t all_rows = row_bytes * (size_t)world.world_size;
    for (int rank = 0; rank < world.world_size; rank++) {
        player *p = &world.players[rank];
        p->place = (hosts_place){.world_size = world.world_size,
                                 .host = world.host_of[rank],
                                 .host_count = world.host_count,
                                 .index = world.index_of[rank],
                                 .local_size = world.size_of[world.host_of[rank]],
                                 .lanes = world.lanes,
                                 .are_hosts_alike = are_alike,
                                 .host_of = world.host_of,
                                 .index_of = world.index_of};
        p->array = malloc(row_bytes);
        p->rows = malloc(all_rows);
        p->scratch = malloc(2 * HOSTS_HALF_BYTES);
        world.result[rank] = malloc(all_rows);
    }
}

static void clear(void) {
    for (int rank = 0; rank < world.world_size; rank++) {
        free(world.players[rank].array);
        free(world.players[rank].rows);
        free(world.players[rank].scratch);
        free(world.result[rank]);
    }
}

/* --- running steps ---------------------------------------------------------------------------------------------------- */

static const hosts_step *step_of(int rank) {
    const player *p = &world.players[rank];
    return p->step < p->steps.count ? &p->steps.list[p->step] : NULL;
}

static void plan_from(player *p, size_t at) {
    p->step = 0;
    p->done = 0;
    hosts_plan(&p->place, &p->call, p->scratch, at, &p->steps);
    assert_in_range(p->steps.count, 0, HOSTS_MOST_STEPS);
}

static void end_step(player *p) {
    p->done = 0;
    if (++p->step < p->steps.count || p->steps.next == p->call.count) return;
    const size_t before = p->steps.next;
    plan_from(p, before);
    assert_true(p->steps.next > before);
}

/* The members of the group beneath in which `rank` has a step, in their order. */
static int members_of(int rank, hosts_where where, int *members) {
    int count = 0;
    for (int i = 0; i < world.world_size; i++)
        if (where == HOSTS_LANE ? world.index_of[i] == world.index_of[rank] : world.host_of[i] == world.host_of[rank])
            members[count++] = i;
    return count;
}

static bool are_there(hosts_where where, const int *members, int count) {
    for (int i = 0; i < count; i++) {
        const hosts_step *step = step_of(members[i]);
        if (!step || step->where != where) return false;
    }
    return true;
}

static const char *given(int rank) {
    const group_call *call = &step_of(rank)->call;
    return call->send ? call->send : call->data;
}

/* What all members give, from row `row` on, combined. */
static void combine(const int *members, int count, size_t row, char *into) {
    const group_call *call = &step_of(members[0])->call;
    const size_t size = ls_dtype_size(call->dtype);
    void *sources[MOST_RANKS];
    for (int i = 0; i < count; i++) sources[i] = (char *)given(members[i]) + row * call->count * size;
    if (count == 1)
        memcpy(into, sources[0], call->count * size);
    else if (call->count)
        reduce_into(reduce_kernel_for(call->dtype, call->op), size, sources, count, 0, call->count, into);
}

/* The bytes that member `which` gets. */
static size_t result_for(const int *members, int count, int which) {
    const group_call *call = &step_of(members[0])->call;
    const size_t bytes = call->count * ls_dtype_size(call->dtype);
    char *into = world.result[members[which]];
    switch ((int)call->kind) {
    case GROUP_BARRIER: return 0;
    case GROUP_ALL_REDUCE: combine(members, count, 0, into); return bytes;
    case GROUP_REDUCE_SCATTER: combine(members, count, (size_t)which, into); return bytes;
    case GROUP_BROADCAST: memcpy(into, given(members[call->root]), bytes); return bytes;
    case GROUP_GATHER:
        if (which != call->root) return 0;
        break;
    default: assert_int_equal(call->kind, GROUP_ALL_GATHER);
    }
    for (int i = 0; i < count; i++) memcpy(into + (size_t)i * bytes, given(members[i]), bytes);
    return bytes * (size_t)count;
}

/* What a rank sends to others of its lane; an all-reduce and a broadcast go by many ways. */
static size_t sent_by(const group_call *call, int which, int count) {
    const size_t bytes = call->count * ls_dtype_size(call->dtype);
    if (call->kind == GROUP_GATHER) return which == call->root ? 0 : bytes;
    return bytes * (size_t)(count - 1);
}

/* What the group beneath would compare, and then do. */
static void run_step(hosts_where where, const int *members, int count) {
    const group_call *first = &step_of(members[0])->call;
    size_t bytes[MOST_RANKS];
    for (int i = 0; i < count; i++) {
        const group_call *call = &step_of(members[i])->call;
        assert_true(call->kind == first->kind && call->op == first->op && call->root == first->root);
        assert_true(call->count == first->count && call->tag == first->tag && call->dtype == first->dtype);
        if (where == HOSTS_LANE) world.sent[world.host_of[members[i]]] += sent_by(call, i, count);
        bytes[i] = result_for(members, count, i);
    }
    for (int i = 0; i < count; i++) {
        if (bytes[i]) memcpy(step_of(members[i])->call.data, world.result[members[i]], bytes[i]);
        end_step(&world.players[members[i]]);
    }
}

/* Goes on with `rank`, if all whom its step needs have come to it. */
static bool go_on(int rank) {
    player *p = &world.players[rank];
    const hosts_step *step = step_of(rank);
    int members[MOST_RANKS] = {0};
    if (!step) return false;
    if (step->where >= HOSTS_PARTS) {
        if (hosts_work(&p->place, step, &p->done)) end_step(p);
        return true;
    }
    const hosts_where where = step->where;
    const int count = members_of(rank, where, members);
    if (!are_there(where, members, count)) return false;
    run_step(where, members, count);
    return true;
}

static void run_while_possible(void) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < world.world_size; rank++) moved = go_on(rank) || moved;
    }
}

static void run_all(void) {
    run_while_possible();
    for (int rank = 0; rank < world.world_size; rank++) assert_null(step_of(rank));
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

/* Elements [at, at + count) of rows, each of `whole` elements, of what every rank has. */
typedef struct piece {
    group_kind kind;
    ls_dtype dtype;
    ls_op op;
    size_t at, count, whole;
    int root;
    bool is_in_place;
    uint64_t seed; /* 0: numbers so small that no order of additions shows */
} piece;

static bool combines(group_kind kind) {
    return kind == GROUP_ALL_REDUCE || kind == GROUP_REDUCE || kind == GROUP_REDUCE_SCATTER;
}

static void draw_small(void *data, size_t place, size_t index, ls_dtype dtype, int rank) {
    const int64_t value = dtype == LS_BOOL ? (int64_t)(mix(index * 64 + (uint64_t)rank) % 8 > 0)
                                           : (int64_t)(mix(index * 64 + (uint64_t)rank) % 3) + 1;
    void *at = (char *)data + place * ls_dtype_size(dtype);
    const double wide = (double)value;
    const float single = (float)value;
    if (dtype == LS_F64)
        memcpy(at, &wide, sizeof wide);
    else if (dtype == LS_F32)
        memcpy(at, &single, sizeof single);
    else if (dtype == LS_F16 || dtype == LS_BF16)
        encode_float(at, dtype, single);
    else
        memcpy(at, &value, ls_dtype_size(dtype));
}

/* What `rank` has at an index of the whole. */
static void draw_element(const piece *p, void *data, size_t place, size_t index, int rank) {
    if (p->seed)
        draw(data, place, index, p->dtype, p->seed, rank);
    else
        draw_small(data, place, index, p->dtype, rank);
}

/* In place as the interface allows. */
static void call_piece(const piece *p, int rank) {
    player *self = &world.players[rank];
    const size_t own = (size_t)rank * p->count * ls_dtype_size(p->dtype);
    const int rows = p->kind == GROUP_REDUCE_SCATTER ? world.world_size : 1;
    char *from = p->kind == GROUP_REDUCE_SCATTER ? self->rows : self->array, *into = self->array;
    if (p->kind == GROUP_ALL_GATHER) into = self->rows;
    if (p->is_in_place && p->kind == GROUP_ALL_GATHER) from = into + own;
    if (p->is_in_place && p->kind == GROUP_REDUCE_SCATTER) into = from + own;
    for (int row = 0; row < rows; row++)
        for (size_t i = 0; i < p->count; i++)
            draw_element(p, from, (size_t)row * p->count + i, (size_t)row * p->whole + p->at + i, rank);
    const bool is_apart = p->kind == GROUP_REDUCE_SCATTER || p->kind == GROUP_ALL_GATHER;
    self->call = (group_call){.kind = p->kind,
                              .dtype = p->dtype,
                              .op = p->op,
                              .root = p->root,
                              .count = p->count,
                              .send = is_apart ? from : NULL,
                              .data = into,
                              .tag = 5};
    plan_from(self, 0);
}

static void run_piece(const piece *p) {
    for (int rank = 0; rank < world.world_size; rank++) {
        call_piece(p, rank);
        assert_true(world.players[rank].steps.count > 0);
    }
    run_all();
}

/* --- results ---------------------------------------------------------------------------------------------------------- */

/* Element i of what `rank` should have. */
static void expect(const piece *p, int rank, size_t i, void *into) {
    uint64_t elements[MOST_RANKS] = {0};
    const void *sources[MOST_RANKS] = {elements};
    const size_t index = p->kind == GROUP_REDUCE_SCATTER ? (size_t)rank * p->whole + i : i;
    const bool is_untouched = p->kind == GROUP_REDUCE && rank != p->root;
    if (p->kind == GROUP_ALL_GATHER) {
        draw_element(p, into, 0, i % p->count, (int)(i / p->count));
    } else if (is_untouched || p->kind == GROUP_BROADCAST) {
        draw_element(p, into, 0, i, is_untouched ? rank : p->root);
    } else {
        for (int from = 0; from < world.world_size; from++) {
            draw_element(p, &elements[from], 0, index, from);
            sources[from] = &elements[from];
        }
        expect_element(into, p->dtype, p->op, sources, world.world_size);
    }
}

static void check(const piece *p) {
    const size_t size = ls_dtype_size(p->dtype);
    const size_t count = p->kind == GROUP_ALL_GATHER ? p->count * (size_t)world.world_size : p->count;
    const size_t step = count < 10000 ? 1 : 61; /* of many some, the first and the last among them */
    run_piece(p);
    for (int rank = 0; rank < world.world_size; rank++)
        for (size_t i = 0; i < count; i += count - i <= step ? 1 : step) {
            uint64_t expected = 0;
            expect(p, rank, i, &expected);
            if (memcmp((char *)world.players[rank].call.data + i * size, &expected, size) == 0) continue;
            print_error("kind %d, %s, %s, %zu elements, rank %d of %d, element %zu\n", (int)p->kind,
                        ls_dtype_name(p->dtype), ls_op_name(p->op), p->count, rank, world.world_size, i);
            fail();
        }
}

/* Alike hosts, in order and mixed; unlike ones; the same of one rank. */
static const char *const alike[] = {"0011", "0101", "001122", "012012", "000111", "00110011"};
static const char *const unlike[] = {"00011", "011", "001", "0120121", "01122", "00000001"};
#define LAYOUTS (sizeof alike / sizeof alike[0])
#define UNLIKE_LAYOUTS (sizeof unlike / sizeof unlike[0])

/* Of what goes by way of scratch. Hosts that are not alike have no plan for it, nor have averages that need 64 bits. */
static bool has_plan(const piece *p) {
    call_piece(p, 0);
    return world.players[0].steps.count > 0;
}

static void every_plan_ends_with_the_right_result_on_every_rank(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 7, 301};
    static const group_kind kinds[] = {GROUP_ALL_REDUCE, GROUP_REDUCE, GROUP_REDUCE_SCATTER, GROUP_ALL_GATHER,
                                       GROUP_BROADCAST};
    int planned = 0;
    for (size_t layout = 0; layout < LAYOUTS + UNLIKE_LAYOUTS; layout++) {
        lay_out(layout < LAYOUTS ? alike[layout] : unlike[layout - LAYOUTS]);
        for (int line = 0; line < 5 * LS_DTYPE_COUNT * LS_OP_COUNT * 4; line += LINES_AT_ONCE) {
            piece p = {.kind = kinds[line % 5],
                       .dtype = (ls_dtype)(line / 5 % LS_DTYPE_COUNT),
                       .op = (ls_op)(line / 5 / LS_DTYPE_COUNT % LS_OP_COUNT),
                       .count = counts[line / 5 / LS_DTYPE_COUNT / LS_OP_COUNT]};
            p.whole = p.count;
            p.root = line % world.world_size;
            p.is_in_place = line / 7 % 2;
            if (!is_defined(p.dtype, p.op) || (!combines(p.kind) && p.op != LS_SUM) || !has_plan(&p)) continue;
            check(&p);
            planned++;
        }
        clear();
    }
    assert_true(planned > 3000 / LINES_AT_ONCE);
}

static void a_plan_of_several_chunks_ends_with_the_right_result(void **state) {
    (void)state;
    static const piece pieces[] = {
        {.kind = GROUP_ALL_REDUCE, .dtype = LS_F16, .op = LS_AVERAGE, .count = MOST_COUNT},
        {.kind = GROUP_REDUCE, .dtype = LS_I64, .op = LS_AVERAGE, .root = 2, .count = 270001},
        {.kind = GROUP_REDUCE_SCATTER, .dtype = LS_BF16, .is_in_place = true, .count = 140001},
        {.kind = GROUP_REDUCE_SCATTER, .dtype = LS_F64, .op = LS_MAX, .count = 140001},
        {.kind = GROUP_ALL_GATHER, .dtype = LS_I64, .is_in_place = true, .count = 70001},
        {.kind = GROUP_ALL_GATHER, .dtype = LS_I64, .count = 70001},
    };
    for (size_t layout = 0; layout < LAYOUTS; layout += 3) {
        lay_out(alike[layout]);
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            piece p = pieces[i];
            p.whole = p.count;
            call_piece(&p, 0);
            assert_true(world.players[0].steps.next < p.count);
            check(&p);
        }
        clear();
    }
}

/* Enough for as many lanes as there are. */
static void parts_on_several_lanes_come_together_again(void **state) {
    (void)state;
    static const char *const layouts[] = {"000111", "012012", "00011", "0120121"};
    for (size_t layout = 0; layout < sizeof layouts / sizeof layouts[0]; layout++) {
        lay_out(layouts[layout]);
        piece p = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .op = LS_AVERAGE, .count = 60001, .whole = 60001};
        check(&p);
        p.kind = GROUP_BROADCAST;
        p.op = LS_SUM;
        for (p.root = 0; p.root < world.world_size; p.root++) check(&p);
        clear();
    }
}

/* Those that would be formed in 64 bits, and rows where hosts have not as many ranks, go over all ranks. */
static void what_gains_nothing_has_no_plan(void **state) {
    (void)state;
    const piece average = {.kind = GROUP_ALL_REDUCE, .dtype = LS_I8, .op = LS_AVERAGE, .count = 10};
    const piece rows = {.kind = GROUP_ALL_GATHER, .count = 10}, half = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F16};
    const piece dealt = {.kind = GROUP_SCATTER, .count = 10}, crossed = {.kind = GROUP_ALL_TO_ALL, .count = 10};
    lay_out("0011");
    assert_false(has_plan(&average));
    assert_false(has_plan(&dealt));
    assert_false(has_plan(&crossed));
    assert_true(has_plan(&rows));
    assert_true(has_plan(&half));
    clear();
    lay_out("00011");
    assert_false(has_plan(&rows));
    assert_false(has_plan(&half));
    clear();
}

/* --- order ------------------------------------------------------------------------------------------------------------ */

/* Nobody is through a barrier before everyone has come to it. */
static void a_barrier_waits_for_every_rank(void **state) {
    (void)state;
    const piece barrier = {.kind = GROUP_BARRIER, .dtype = LS_U8};
    for (size_t i = 0; i < LAYOUTS + UNLIKE_LAYOUTS; i++) {
        lay_out(i < LAYOUTS ? alike[i] : unlike[i - LAYOUTS]);
        for (int late = 0; late < world.world_size; late++) {
            for (int rank = 0; rank < world.world_size; rank++) call_piece(&barrier, rank);
            const int steps = world.players[late].steps.count;
            world.players[late].steps.count = 0;
            run_while_possible();
            for (int rank = 0; rank < world.world_size; rank++)
                if (rank != late) assert_non_null(step_of(rank));
            world.players[late].steps.count = steps;
            run_all();
        }
        clear();
    }
}

/* In one piece, and in three. */
static void compare_with_pieces(piece p) {
    static const size_t borders[] = {0, 1, 700, 2001};
    const size_t size = ls_dtype_size(p.dtype);
    const int ranks = world.world_size;
    char *whole[MOST_RANKS];
    p.whole = p.count = borders[3];
    run_piece(&p);
    for (int rank = 0; rank < ranks; rank++) {
        whole[rank] = malloc(p.count * size);
        memcpy(whole[rank], world.players[rank].call.data, p.count * size);
        if (p.kind == GROUP_ALL_REDUCE) assert_memory_equal(whole[rank], whole[0], p.count * size);
    }
    for (int i = 0; i < 3; i++) {
        p.at = borders[i];
        p.count = borders[i + 1] - borders[i];
        run_piece(&p);
        for (int rank = 0; rank < ranks; rank++)
            assert_memory_equal(world.players[rank].call.data, whole[rank] + p.at * size, p.count * size);
    }
    for (int rank = 0; rank < ranks; rank++) free(whole[rank]);
}

static void a_message_has_the_same_bits_in_one_piece_and_in_several(void **state) {
    (void)state;
    static const ls_dtype dtypes[] = {LS_F32, LS_F64, LS_F16, LS_BF16};
    static const group_kind kinds[] = {GROUP_ALL_REDUCE, GROUP_REDUCE, GROUP_REDUCE_SCATTER};
    const uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t layout = 0; layout < LAYOUTS; layout++) {
        lay_out(alike[layout]);
        for (int line = 0; line < 3 * 4 * LS_OP_COUNT; line += LINES_AT_ONCE) {
            const piece p = {.kind = kinds[line % 3],
                             .dtype = dtypes[line / 3 % 4],
                             .op = (ls_op)(line / 12),
                             .root = line % world.world_size,
                             .seed = seed};
            if (is_defined(p.dtype, p.op)) compare_with_pieces(p);
        }
        clear();
    }
}

/* --- what goes between hosts ------------------------------------------------------------------------------------------ */

static void no_host_sends_more_than_the_formulas_say(void **state) {
    (void)state;
    enum { COUNT = 2400 };
    for (size_t layout = 0; layout < LAYOUTS; layout++) {
        lay_out(alike[layout]);
        const size_t hosts = (size_t)world.host_count, local = (size_t)world.size_of[0], f32 = COUNT * 4,
                     f16 = COUNT * 2;
        const struct {
            piece p;
            size_t most;
        } lines[] = {
            {{.kind = GROUP_ALL_REDUCE, .dtype = LS_F16}, 3 * (hosts - 1) * f16 / hosts},
            {{.kind = GROUP_REDUCE, .dtype = LS_F32}, f32},
            {{.kind = GROUP_REDUCE_SCATTER, .dtype = LS_F32}, (hosts - 1) * local * f32},
            {{.kind = GROUP_ALL_GATHER, .dtype = LS_F32}, (hosts - 1) * local * f32},
        };
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
            piece p = lines[i].p;
            p.whole = p.count = COUNT;
            memset(world.sent, 0, sizeof world.sent);
            run_piece(&p);
            for (int host = 0; host < world.host_count; host++) assert_in_range(world.sent[host], 1, lines[i].most);
        }
        clear();
    }
}

/* What the steps do not show of a call: all that ranks compare of it is in their tag. */
static void calls_that_differ_have_tags_that_differ(void **state) {
    (void)state;
    const piece calls[] = {
        {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .count = 10},
        {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .count = 10, .op = LS_AVERAGE},
        {.kind = GROUP_ALL_REDUCE, .dtype = LS_F16, .count = 9},
        {.kind = GROUP_ALL_REDUCE, .dtype = LS_F16, .count = 10},
        {.kind = GROUP_ALL_REDUCE, .dtype = LS_BF16, .count = 10},
        {.kind = GROUP_REDUCE, .dtype = LS_F16, .count = 10},
        {.kind = GROUP_REDUCE, .dtype = LS_F16, .count = 10, .root = 1},
        {.kind = GROUP_REDUCE_SCATTER, .dtype = LS_F16, .count = 10},
        {.kind = GROUP_BROADCAST, .dtype = LS_F32, .count = 10, .root = 2},
        {.kind = GROUP_BROADCAST, .dtype = LS_F32, .count = 10, .root = 3},
        {.kind = GROUP_ALL_GATHER, .dtype = LS_F32, .count = 10},
    };
    enum { CALLS = sizeof calls / sizeof calls[0] };
    uint64_t tags[CALLS];
    lay_out("0011");
    for (int rank = 0; rank < world.world_size; rank++)
        for (int i = 0; i < CALLS; i++) {
            call_piece(&calls[i], rank);
            const hosts_steps *steps = &world.players[rank].steps;
            int first = 0;
            while (steps->list[first].where >= HOSTS_PARTS) first++;
            tags[i] = steps->list[first].call.tag;
            for (int before = 0; before < i; before++) assert_true(tags[before] != tags[i]);
        }
    clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_ends_with_the_right_result_on_every_rank),
        cmocka_unit_test(a_plan_of_several_chunks_ends_with_the_right_result),
        cmocka_unit_test(parts_on_several_lanes_come_together_again),
        cmocka_unit_test(what_gains_nothing_has_no_plan),
        cmocka_unit_test(a_barrier_waits_for_every_rank),
        cmocka_unit_test(a_message_has_the_same_bits_in_one_piece_and_in_several),
        cmocka_unit_test(no_host_sends_more_than_the_formulas_say),
        cmocka_unit_test(calls_that_differ_have_tags_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
