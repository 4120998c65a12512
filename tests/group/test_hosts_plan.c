/* The plans of ranks that share hosts: every group beneath has the same steps in the same order on all its ranks, which come to
 * an end, with the right result on every rank; between hosts goes no more than the formulas of plan.c say; a message has
 * the same bits in one piece and in several. */
#include "group/hosts_world.h"

#include <time.h>

#define LINES_AT_ONCE (LS_UNDER_THREAD_SANITIZER ? 7 : 1) /* of the tables that are walked */

/* Hosts of as many ranks, in order and mixed; of different numbers; among them hosts of one rank. */
static const char *const layouts[] = {"0011",  "0101", "001122", "012012",  "000111", "00110011",
                                      "00011", "011",  "001",    "0120121", "01122",  "00000001"};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

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
    for (size_t layout = 0; layout < LAYOUTS; layout++) {
        lay_out(layouts[layout]);
        for (int line = 0; line < 5 * LS_DTYPE_COUNT * LS_OP_COUNT * 4; line += LINES_AT_ONCE) {
            piece p = {.kind = kinds[line % 5],
                       .dtype = (ls_dtype)(line / 5 % LS_DTYPE_COUNT),
                       .op = (ls_op)(line / 5 / LS_DTYPE_COUNT % LS_OP_COUNT),
                       .count = counts[line / 5 / LS_DTYPE_COUNT / LS_OP_COUNT]};
            p.whole = p.count;
            p.root = line % world.world_size;
            p.is_in_place = line / 7 % 2;
            if (!is_defined(p.dtype, p.op) || (!kind_combines(p.kind) && p.op != LS_SUM) || !has_plan(&p)) continue;
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
    static const char *const few[] = {"0011", "0120121"};
    for (size_t layout = 0; layout < sizeof few / sizeof few[0]; layout++) {
        lay_out(few[layout]);
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
    static const char *const several[] = {"000111", "012012", "00011", "0120121"};
    for (size_t layout = 0; layout < sizeof several / sizeof several[0]; layout++) {
        lay_out(several[layout]);
        piece p = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .op = LS_AVERAGE, .count = 60001, .whole = 60001};
        check(&p);
        p.kind = GROUP_BROADCAST;
        p.op = LS_SUM;
        for (p.root = 0; p.root < world.world_size; p.root++) check(&p);
        clear();
    }
}

/* Averages that would be formed in 64 bits, and what is dealt; rows where only one host has several ranks; more hosts than
 * scratch has room for. */
static void what_gains_nothing_has_no_plan(void **state) {
    (void)state;
    const piece average = {.kind = GROUP_ALL_REDUCE, .dtype = LS_I8, .op = LS_AVERAGE, .count = 10};
    const piece rows = {.kind = GROUP_ALL_GATHER, .count = 10}, half = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F16};
    const piece dealt = {.kind = GROUP_SCATTER, .count = 10}, crossed = {.kind = GROUP_ALL_TO_ALL, .count = 10};
    lay_out("00011");
    assert_false(has_plan(&average));
    assert_false(has_plan(&dealt));
    assert_false(has_plan(&crossed));
    assert_true(has_plan(&rows));
    assert_true(has_plan(&half));
    world.players[0].place.host_count = 20000;
    assert_false(has_plan(&half));
    clear();
    lay_out("00012");
    assert_false(has_plan(&rows));
    assert_true(has_plan(&half));
    clear();
}

/* --- order ------------------------------------------------------------------------------------------------------------ */

/* Nobody is through a barrier before everyone has come to it. */
static void a_barrier_waits_for_every_rank(void **state) {
    (void)state;
    const piece barrier = {.kind = GROUP_BARRIER, .dtype = LS_U8};
    for (size_t i = 0; i < LAYOUTS; i++) {
        lay_out(layouts[i]);
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
        lay_out(layouts[layout]);
        for (int line = 0; line < 3 * 4 * LS_OP_COUNT; line += LINES_AT_ONCE) {
            const piece p = {.kind = kinds[line % 3],
                             .dtype = dtypes[line / 3 % 4],
                             .op = (ls_op)(line / 12),
                             .root = line % world.world_size,
                             .seed = seed};
            if (is_defined(p.dtype, p.op) && has_plan(&p)) compare_with_pieces(p);
        }
        clear();
    }
}

/* --- what goes between hosts ------------------------------------------------------------------------------------------ */

static void no_host_sends_more_than_the_formulas_say(void **state) {
    (void)state;
    enum { COUNT = 2400 };
    for (size_t layout = 0; layout < LAYOUTS; layout++) {
        lay_out(layouts[layout]);
        const size_t hosts = (size_t)world.host_count, largest = (size_t)world.largest, f32 = COUNT * 4,
                     f16 = COUNT * 2;
        const struct {
            piece p;
            size_t most;
        } lines[] = {
            {{.kind = GROUP_ALL_REDUCE, .dtype = LS_F16}, 3 * (hosts - 1) * f16 / hosts},
            {{.kind = GROUP_REDUCE, .dtype = LS_F32}, f32},
            {{.kind = GROUP_REDUCE_SCATTER, .dtype = LS_F32}, (hosts - 1) * largest * f32},
            {{.kind = GROUP_ALL_GATHER, .dtype = LS_F32}, (hosts - 1) * largest * f32},
        };
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
            piece p = lines[i].p;
            p.whole = p.count = COUNT;
            if (!has_plan(&p)) continue;
            memset(world.sent, 0, sizeof world.sent);
            run_piece(&p);
            for (int host = 0; host < world.host_count; host++) assert_in_range(world.sent[host], 1, lines[i].most);
        }
        clear();
    }
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
