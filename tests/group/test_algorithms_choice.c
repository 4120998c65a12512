/* test_algorithms_choice.c: which algorithm is chosen; that each sends as much as choose.c says; that large operations
 * keep the wire busy; and what algorithms refuse. */
#include "group/algorithm_world.h"

#include "group/backend.h"
#include "support/faults.h"

#include <time.h>

static const group_kind kinds[] = {GROUP_ALL_REDUCE, GROUP_BROADCAST, GROUP_ALL_GATHER,       GROUP_BARRIER,
                                   GROUP_REDUCE,     GROUP_GATHER,    GROUP_SCATTER,          GROUP_REDUCE_SCATTER,
                                   GROUP_ALL_TO_ALL, GROUP_ALLOCATE,  GROUP_ALL_TO_ALL_UNEVEN};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

/* --- the choice --------------------------------------------------------------------------------------------------- */

typedef struct expected_choice {
    collective_shape shape;
    algorithm_name name;
} expected_choice;

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct border {
    group_kind kind;
    int world_size;
    bool is_relaxed;
    size_t bytes;
    algorithm_name below, above;
} border;

/* The table of docs/process-groups.md: where the choice changes. */
static const border borders[] = {
    {GROUP_ALL_REDUCE, 2, false, 32 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_BRUCK},
    {GROUP_ALL_REDUCE, 2, false, 2 * MIB, ALGORITHM_BRUCK, ALGORITHM_EXCHANGE},
    {GROUP_ALL_REDUCE, 2, false, 9 * MIB / 2, ALGORITHM_EXCHANGE, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 4, false, 32 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 8, false, 16 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 16, false, 11 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 64, false, 13 * KIB, ALGORITHM_BRUCK, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 2, true, 32 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_DOUBLING},
    {GROUP_ALL_REDUCE, 2, true, 2 * MIB, ALGORITHM_DOUBLING, ALGORITHM_HALVING},
    {GROUP_ALL_REDUCE, 2, true, 4 * MIB, ALGORITHM_HALVING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 4, true, 23 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_DOUBLING},
    {GROUP_ALL_REDUCE, 4, true, 256 * KIB, ALGORITHM_PAIRWISE, ALGORITHM_HALVING},
    {GROUP_ALL_REDUCE, 4, true, 4 * MIB, ALGORITHM_HALVING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 8, true, 8 * KIB, ALGORITHM_EXCHANGE, ALGORITHM_DOUBLING},
    {GROUP_ALL_REDUCE, 8, true, 44 * KIB, ALGORITHM_DOUBLING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 8, true, 256 * KIB, ALGORITHM_PAIRWISE, ALGORITHM_HALVING},
    {GROUP_ALL_REDUCE, 8, true, 4 * MIB, ALGORITHM_HALVING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 8, true, 11 * MIB, ALGORITHM_PAIRWISE, ALGORITHM_RING},
    {GROUP_ALL_REDUCE, 16, true, 66 * KIB, ALGORITHM_DOUBLING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 16, true, 512 * KIB, ALGORITHM_PAIRWISE, ALGORITHM_HALVING},
    {GROUP_ALL_REDUCE, 16, true, 4 * MIB, ALGORITHM_HALVING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 16, true, 11 * MIB, ALGORITHM_PAIRWISE, ALGORITHM_RING},
    {GROUP_ALL_REDUCE, 64, true, 60 * KIB, ALGORITHM_DOUBLING, ALGORITHM_HALVING},
    {GROUP_ALL_REDUCE, 64, true, 4 * MIB, ALGORITHM_HALVING, ALGORITHM_PAIRWISE},
    {GROUP_ALL_REDUCE, 64, true, 7 * MIB, ALGORITHM_PAIRWISE, ALGORITHM_RING},
    {GROUP_BROADCAST, 4, false, 112 * KIB, ALGORITHM_BINOMIAL, ALGORITHM_CHAIN},
    {GROUP_BROADCAST, 8, false, 172 * KIB, ALGORITHM_BINOMIAL, ALGORITHM_CHAIN},
    {GROUP_BROADCAST, 16, false, 308 * KIB, ALGORITHM_BINOMIAL, ALGORITHM_CHAIN},
    {GROUP_BROADCAST, 64, false, 616 * KIB, ALGORITHM_BINOMIAL, ALGORITHM_CHAIN},
    {GROUP_ALL_GATHER, 64, false, 64 * KIB, ALGORITHM_BRUCK, ALGORITHM_DIRECT},
};

/* And at the ends, and for the kinds that are not in it. */
static const expected_choice choices[] = {
    {{GROUP_ALL_REDUCE, 4, 2, false}, ALGORITHM_EXCHANGE},
    {{GROUP_ALL_REDUCE, 4 * MIB, 2, false}, ALGORITHM_EXCHANGE},
    {{GROUP_ALL_REDUCE, 8 * MIB, 2, false}, ALGORITHM_PAIRWISE},
    {{GROUP_ALL_REDUCE, KIB, 8, false}, ALGORITHM_EXCHANGE},
    {{GROUP_ALL_REDUCE, MIB, 4, false}, ALGORITHM_PAIRWISE},
    {{GROUP_ALL_REDUCE, 1024 * MIB, 3, false}, ALGORITHM_PAIRWISE},
    {{GROUP_ALL_REDUCE, 64, 64, false}, ALGORITHM_BRUCK},
    {{GROUP_ALL_REDUCE, 100 * MIB, 64, false}, ALGORITHM_PAIRWISE},
    {{GROUP_ALL_REDUCE, 16 * KIB, 8, true}, ALGORITHM_DOUBLING},
    {{GROUP_ALL_REDUCE, MIB, 64, true}, ALGORITHM_HALVING},
    {{GROUP_ALL_REDUCE, 400 * MIB, 64, true}, ALGORITHM_RING},
    {{GROUP_BROADCAST, 25 * MIB, 2, false}, ALGORITHM_BINOMIAL},
    {{GROUP_BROADCAST, KIB, 16, false}, ALGORITHM_BINOMIAL},
    {{GROUP_BROADCAST, 25 * MIB, 8, false}, ALGORITHM_CHAIN},
    {{GROUP_REDUCE, KIB, 4, false}, ALGORITHM_EXCHANGE},
    {{GROUP_REDUCE, 25 * MIB, 4, false}, ALGORITHM_PAIRWISE},
    {{GROUP_ALL_GATHER, 25 * MIB, 4, false}, ALGORITHM_DIRECT},
    {{GROUP_ALL_GATHER, 64, 64, false}, ALGORITHM_BRUCK},
    {{GROUP_SUBGROUP, sizeof(group_agreement), 4, false}, ALGORITHM_DIRECT},
    {{GROUP_BARRIER, 0, 5, false}, ALGORITHM_DISSEMINATION},
    {{GROUP_BARRIER, 0, 1, false}, ALGORITHM_DIRECT},
};

static void sizes_and_rank_counts_choose_the_algorithm(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        assert_int_equal(algorithm_choose(&choices[i].shape), choices[i].name);
    /* A page rounds: a tenth to both sides. */
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        const border *at = &borders[i];
        collective_shape shape = {at->kind, at->bytes - at->bytes / 10, at->world_size, at->is_relaxed};
        assert_int_equal(algorithm_choose(&shape), at->below);
        shape.bytes = at->bytes + at->bytes / 10;
        assert_int_equal(algorithm_choose(&shape), at->above);
    }
}

static void every_call_has_an_algorithm(void **state) {
    (void)state;
    static const int rank_counts[] = {1, 2, 3, 7, 64, 1000, 10000};
    for (int kind = 0; kind < KINDS; kind++)
        for (int ranks = 0; ranks < 7; ranks++)
            for (size_t bytes = 0; bytes < (size_t)1 << 50; bytes = bytes * 3 + 1)
                for (int relaxed = 0; relaxed < 2; relaxed++) {
                    const collective_shape shape = {kinds[kind], bytes, rank_counts[ranks], relaxed};
                    const algorithm_name name = algorithm_choose(&shape);
                    assert_in_range(name, 0, ALGORITHM_COUNT - 1);
                    assert_true(relaxed ||
                                (name != ALGORITHM_DOUBLING && name != ALGORITHM_HALVING && name != ALGORITHM_RING));
                }
}

static void shares_cover_the_data_and_segments_fit_the_scratch(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 1000; ranks = ranks * 2 + 1)
        for (size_t bytes = 0; bytes < (size_t)1 << 40; bytes = bytes * 5 + 1) {
            assert_int_equal(share_border(bytes, 0, ranks), 0);
            assert_int_equal(share_border(bytes, ranks, ranks), bytes);
            for (int rank = 0; rank < ranks; rank++) {
                const size_t from = share_border(bytes, rank, ranks), to = share_border(bytes, rank + 1, ranks);
                assert_true(from <= to && to - from <= share_longest(bytes, ranks) &&
                            from % 8 == (from == bytes ? from % 8 : 0));
            }
            const size_t segment = segment_bytes(bytes, ranks);
            assert_true(segment > 0 && segment % 64 == 0);
            assert_true(segment * COLLECTIVE_SLOTS * (size_t)ranks <= COLLECTIVE_SCRATCH_BYTES);
        }
}

/* --- what travels ------------------------------------------------------------------------------------------------- */

/* Memory for a call of any kind, of bytes. */
typedef struct memories {
    char *send[MOST_RANKS], *data[MOST_RANKS];
    group_call calls[MOST_RANKS];
} memories;

static void make_calls(memories *m, group_kind kind, int ranks, size_t bytes) {
    const bool is_ours = kind == GROUP_ALLOCATE,
               is_one = kind == GROUP_ALL_REDUCE || kind == GROUP_BROADCAST || kind == GROUP_REDUCE;
    const size_t rows = (is_ours ? sizeof(group_agreement) : bytes) * (size_t)ranks;
    for (int rank = 0; rank < ranks; rank++) {
        m->send[rank] = calloc(rows + 1, 1);
        m->data[rank] = calloc(rows + 1, 1);
        assert_non_null(m->send[rank]);
        assert_non_null(m->data[rank]);
        m->calls[rank] = (group_call){.kind = kind,
                                      .dtype = LS_U8,
                                      .op = LS_SUM,
                                      .root = ranks / 2,
                                      .count = bytes,
                                      .send = is_one ? NULL : m->send[rank],
                                      .data = m->data[rank]};
    }
}

static void free_calls(memories *m, int ranks) {
    for (int rank = 0; rank < ranks; rank++) {
        free(m->send[rank]);
        free(m->data[rank]);
    }
}

/* The largest of what ranks sent and received. */
static uint64_t busiest(const uint64_t *out, const uint64_t *in, int ranks) {
    uint64_t most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        if (out[rank] > most) most = out[rank];
        if (in[rank] > most) most = in[rank];
    }
    return most;
}

static void check_cost(algorithm_name name, group_kind kind, int ranks, size_t bytes, bool is_relaxed) {
    const collective_shape shape = {kind, kind == GROUP_ALLOCATE ? sizeof(group_agreement) : bytes, ranks, is_relaxed};
    if (!algorithm_carries(name, &shape)) return;
    collective_cost cost = algorithm_cost(name, &shape);
    /* The time in which the last rank still waits for the first segment is no traffic. */
    if (name == ALGORITHM_CHAIN) cost.bytes -= (double)((size_t)(ranks - 2) * segment_bytes(shape.bytes, ranks));
    memories m;
    world w;
    make_calls(&m, kind, ranks, bytes);
    world_open(&w, ranks, is_relaxed, bytes);
    world_run(&w, m.calls, name);
    const memory_network *n = &w.network;
    assert_int_equal(busiest(n->messages_out, n->messages_in, ranks), (uint64_t)cost.messages);
    assert_int_equal(busiest(n->bytes_out, n->bytes_in, ranks), (uint64_t)cost.bytes);
    world_close(&w);
    free_calls(&m, ranks);
}

/* Where the data divides evenly. */
static void what_travels_is_what_the_formulas_say(void **state) {
    (void)state;
    static const int rank_counts[] = {2, 3, 4, 5, 8, 13, 16};
    for (int i = 0; i < 7; i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int name = 0; name < ALGORITHM_COUNT; name++) {
                const size_t unit = (size_t)rank_counts[i] * 16 * 64;
                if (kinds[kind] == GROUP_ALL_TO_ALL_UNEVEN) continue; /* of each size what it is, and the counts */
                check_cost((algorithm_name)name, kinds[kind], rank_counts[i], unit, false);
                check_cost((algorithm_name)name, kinds[kind], rank_counts[i], unit, true);
                if (rank_counts[i] > 5) continue;
                check_cost((algorithm_name)name, kinds[kind], rank_counts[i], unit * 50, true);
            }
}

/* --- the wire ----------------------------------------------------------------------------------------------------- */

#define TICK_BYTES ((size_t)16 << 10)
#define LATENCY 4 /* 0.5 ms at 1 Gbit/s */

/* In a tick each rank sends and receives at most TICK_BYTES, in turn to and from each peer: only what is awaited. A
 * message arrives LATENCY ticks after its last byte was sent. */
static void tick(memory_network *n, size_t *progress, size_t now) {
    size_t out[MOST_RANKS], in[MOST_RANKS];
    for (int rank = 0; rank < n->ranks; rank++) out[rank] = in[rank] = TICK_BYTES;
    for (int step = 0; step < n->ranks - 1; step++)
        for (int from = 0; from < n->ranks; from++) {
            const int to = (from + 1 + (step + (int)(now % 1000)) % (n->ranks - 1)) % n->ranks;
            wire *w = wire_of(n, from, to);
            size_t *done = &progress[from * n->ranks + to];
            while (w->held_count && w->held[0].due <= now) arrive_first(w);
            while (out[from] && in[to] && w->sent < w->send_count && w->sent < w->receive_count) {
                const size_t left = w->sends[w->sent % TRANSPORT_WINDOW].bytes - *done;
                const size_t room = least(out[from], in[to]), moved = least(left, room);
                out[from] -= moved;
                in[to] -= moved;
                *done += moved;
                if (moved < left) break;
                *done = 0;
                posted sent = leave_sender(w);
                sent.due = now + LATENCY;
                hold(w, sent);
            }
        }
}

/* Runs to the end; returns the ticks it took. */
static size_t ticks_of(world *w, const group_call *calls, algorithm_name name) {
    const int ranks = w->network.ranks;
    size_t progress[MOST_RANKS * MOST_RANKS] = {0}, ticks = 0;
    bool is_done[MOST_RANKS] = {false};
    network_begin(&w->network);
    for (int rank = 0; rank < ranks; rank++) world_start(w, rank, &calls[rank], name);
    for (int done = 0; done < ranks; ticks++) {
        assert_true(ticks < 100000);
        for (int rank = 0; rank < ranks; rank++) {
            collective_progress last = is_done[rank] ? COLLECTIVE_PENDING : COLLECTIVE_MOVED;
            while (last == COLLECTIVE_MOVED) last = collective_poll(w->ranks[rank]);
            if (last == COLLECTIVE_DONE) done += is_done[rank] = true;
        }
        tick(&w->network, progress, ticks);
    }
    return ticks;
}

typedef struct busy_case {
    group_kind kind;
    algorithm_name name;
    int ranks;
    size_t bytes;
} busy_case;

/* At least 95% of what a stream moves that has nothing to wait for. */
static void large_operations_keep_both_directions_of_the_wire_busy(void **state) {
    (void)state;
    static const busy_case cases[] = {
        {GROUP_ALL_REDUCE, ALGORITHM_EXCHANGE, 2, 25 * MIB},    {GROUP_ALL_REDUCE, ALGORITHM_PAIRWISE, 2, 25 * MIB},
        {GROUP_ALL_REDUCE, ALGORITHM_PAIRWISE, 3, 25 * MIB},    {GROUP_ALL_REDUCE, ALGORITHM_PAIRWISE, 4, 25 * MIB},
        {GROUP_ALL_REDUCE, ALGORITHM_PAIRWISE, 8, 25 * MIB},    {GROUP_ALL_REDUCE, ALGORITHM_RING, 4, 25 * MIB},
        {GROUP_REDUCE_SCATTER, ALGORITHM_PAIRWISE, 4, 6 * MIB}, {GROUP_REDUCE, ALGORITHM_PAIRWISE, 4, 25 * MIB},
        {GROUP_ALL_GATHER, ALGORITHM_DIRECT, 4, 6 * MIB},       {GROUP_BROADCAST, ALGORITHM_CHAIN, 4, 25 * MIB},
        {GROUP_ALL_REDUCE, ALGORITHM_PAIRWISE, 4, 4 * MIB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const busy_case *b = &cases[i];
        const collective_shape shape = {b->kind, b->bytes, b->ranks, true};
        const double least_ticks = algorithm_cost(b->name, &shape).bytes / (double)TICK_BYTES;
        memories m;
        world w;
        make_calls(&m, b->kind, b->ranks, b->bytes);
        world_open(&w, b->ranks, true, 1);
        const size_t ticks = ticks_of(&w, m.calls, b->name);
        assert_true(least_ticks / (double)ticks >= 0.95);
        world_close(&w);
        free_calls(&m, b->ranks);
    }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void counts_that_differ_are_a_mismatch_and_nothing_is_written(void **state) {
    (void)state;
    const size_t zero_sends[] = {0, 3}, zero_expects[] = {0, 0}, one_sends[] = {0, 1}, one_expects[] = {5, 1};
    uint8_t from_zero[3] = {1, 2, 3}, into_one[6] = {0}, from_one[1] = {9};
    const group_call calls[] = {{.kind = GROUP_ALL_TO_ALL_UNEVEN,
                                 .dtype = LS_U8,
                                 .send = from_zero,
                                 .send_counts = zero_sends,
                                 .receive_counts = zero_expects},
                                {.kind = GROUP_ALL_TO_ALL_UNEVEN,
                                 .dtype = LS_U8,
                                 .send = from_one,
                                 .data = into_one,
                                 .send_counts = one_sends,
                                 .receive_counts = one_expects}};
    world w;
    world_open(&w, 2, false, 1);
    network_begin(&w.network);
    for (int rank = 0; rank < 2; rank++) world_start(&w, rank, &calls[rank], ALGORITHM_COUNT);
    collective_progress progress = COLLECTIVE_PENDING;
    for (int i = 0; i < 1000 && progress != COLLECTIVE_FAILED; i++) {
        network_move(&w.network);
        progress = collective_poll(w.ranks[1]);
        assert_int_not_equal(progress, COLLECTIVE_DONE);
    }
    assert_int_equal(progress, COLLECTIVE_FAILED);
    assert_string_equal(ls_last_error(),
                        "rank 0 sends 3 elements to rank 1, which expects 5 of it, operation 7, "
                        "uneven all-to-all; send_counts of one have to equal receive_counts of the other");
    for (int i = 0; i < 5; i++) assert_int_equal(into_one[i], 0);
    world_close(&w);
}

static void memory_that_is_refused_leaves_nothing(void **state) {
    (void)state;
    const transport network = {.world_size = 3};
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        collective *c = NULL;
        const ls_status status = collective_create(&c, &network, false);
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(c);
        }
        collective_close(&c);
    }
    assert_nothing_left();
}

/* The last count whose segments are of whole lines, and the first whose would be empty. */
static void more_ranks_than_scratch_has_lines_for_are_refused(void **state) {
    (void)state;
    collective *c = NULL;
    transport network = {.world_size = COLLECTIVE_MOST_RANKS};
    assert_int_equal(segment_bytes(1 << 20, network.world_size), COLLECTIVE_LINE_BYTES);
    assert_int_equal(collective_create(&c, &network, false), LS_OK);
    collective_close(&c);
    network.world_size++;
    assert_int_equal(collective_create(&c, &network, false), LS_ERR_UNSUPPORTED);
    assert_null(c);
    assert_non_null(strstr(ls_last_error(), "16385 ranks"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_rank_counts_choose_the_algorithm),
        cmocka_unit_test(every_call_has_an_algorithm),
        cmocka_unit_test(shares_cover_the_data_and_segments_fit_the_scratch),
        cmocka_unit_test(what_travels_is_what_the_formulas_say),
        cmocka_unit_test(large_operations_keep_both_directions_of_the_wire_busy),
        cmocka_unit_test(counts_that_differ_are_a_mismatch_and_nothing_is_written),
        cmocka_unit_test(memory_that_is_refused_leaves_nothing),
        cmocka_unit_test(more_ranks_than_scratch_has_lines_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
