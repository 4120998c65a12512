/* hypercube.c: all-reduces in relaxed order in which a rank meets one partner in each round, whose number differs in
 * one bit ("Optimization of collective communication operations in MPICH", Thakur and others, 2005).
 *
 *   doubling    everyone gives and gets all of it in each of log2 P rounds: of little data
 *   halving     half as much in each round, so that after log2 P rounds everyone has the whole of one of P shares;
 *               then the results back the same way, twice as much in each round
 *
 * P is the largest power of two that is not above N. Of the first 2 (N - P) ranks each odd one gives its data to the
 * even one before it, takes no part, and gets the result at the end. Ranks that take part have numbers 0 to P - 1.
 *
 *   step 0: what the odd one gives ---> 1 ... log2 P: rounds ---> the end (an average's division) ---> results
 *
 * Replicas are equal because of a pair of partners both put the lower one's data first. */
#include "group/algorithms/algorithm.h"

/* Combined in one go: some 50 us. */
#define GO_BYTES ((size_t)256 << 10)

static bool is_halving(const collective *c) {
    return c->algorithm == &halving_algorithm;
}

/* --- who meets whom ----------------------------------------------------------------------------------------------- */

/* Odd ranks that take no part have number -1. */
static int number_of(const collective *c, int rank) {
    const int odd = c->world_size - c->cube.ranks;
    if (rank >= 2 * odd) return rank - odd;
    return rank % 2 ? -1 : rank / 2;
}

static int rank_of(const collective *c, int number) {
    const int odd = c->world_size - c->cube.ranks;
    return number < odd ? 2 * number : number + odd;
}

/* The other of an even and an odd rank; -1: this rank has none. */
static int neighbour_of(const collective *c) {
    return c->rank < 2 * (c->world_size - c->cube.ranks) ? c->rank ^ 1 : -1;
}

/* By how much partners differ in a step, and in which step we meet one who differs by so much. A halving meets the farthest
 * first, so that the shares which are left to each are always one stretch. */
static int distance_at(const collective *c, int step) {
    return is_halving(c) ? c->cube.ranks >> step : 1 << (step - 1);
}

static int step_at(const collective *c, int distance) {
    const int log = __builtin_ctz((unsigned)distance);
    return is_halving(c) ? c->cube.rounds - log : log + 1;
}

static int partner_at(const collective *c, int step) {
    return step ? rank_of(c, c->cube.number ^ distance_at(c, step)) : neighbour_of(c);
}

/* --- what they give each other ------------------------------------------------------------------------------------ */

typedef struct span {
    size_t at, bytes;
} span;

static span all_of(const collective *c) {
    const span all = {.bytes = c->bytes};
    return all;
}

/* The shares of the `distance` ranks around `number`: which of them a halving step leaves to that half. */
static span span_of(const collective *c, int number, int distance) {
    if (!is_halving(c)) return all_of(c);
    const int first = number & -distance;
    const size_t at = share_border(c->bytes, first, c->cube.ranks);
    return (span){.at = at, .bytes = share_border(c->bytes, first + distance, c->cube.ranks) - at};
}

/* What this rank combines in a step. */
static span combined_at(const collective *c, int step) {
    return step ? span_of(c, c->cube.number, distance_at(c, step)) : all_of(c);
}

/* Where it is received: of a doubling in two places in turn, of a halving at its place in the data. */
static char *slot_of(const collective *c, int step) {
    if (is_halving(c)) return c->scratch + combined_at(c, step).at;
    return c->scratch + (size_t)(step % 2) * (COLLECTIVE_SCRATCH_BYTES / 2);
}

static bool is_combined(const collective *c) {
    return c->cube.step > c->cube.rounds + 1;
}

/* Whether results have come from all partners nearer than that. */
static bool has_results_below(const collective *c, int distance) {
    if (!is_combined(c)) return false;
    for (int nearer = 1; is_halving(c) && nearer < distance; nearer *= 2)
        if (collective_done(c, rank_of(c, c->cube.number ^ nearer), INCOMING) < 2) return false;
    return true;
}

static message message_at(const collective *c, span s, bool is_ready) {
    return (message){.data = (char *)c->call.data + s.at, .bytes = s.bytes, .is_ready = is_ready};
}

static message cube_outgoing(const collective *c, int peer, uint64_t index) {
    if (c->cube.number < 0) return message_at(c, all_of(c), true);
    if (peer == neighbour_of(c)) return message_at(c, all_of(c), has_results_below(c, c->cube.ranks));
    const int other = number_of(c, peer), distance = c->cube.number ^ other;
    if (index == 0) return message_at(c, span_of(c, other, distance), c->cube.step >= step_at(c, distance));
    return message_at(c, span_of(c, c->cube.number, distance), has_results_below(c, distance));
}

static message cube_incoming(const collective *c, int peer, uint64_t index) {
    if (c->cube.number < 0 || index == 1) {
        /* A result, over what we sent from there. */
        const int other = number_of(c, peer);
        const span s = c->cube.number < 0 ? all_of(c) : span_of(c, other, c->cube.number ^ other);
        return message_at(c, s, collective_done(c, peer, OUTGOING) > 0);
    }
    /* A doubling has two slots, so one step may come ahead; a halving's lie within each other, so none may. */
    const int step = peer == neighbour_of(c) ? 0 : step_at(c, c->cube.number ^ number_of(c, peer));
    return (message){.data = slot_of(c, step),
                     .bytes = combined_at(c, step).bytes,
                     .is_ready = is_halving(c) ? c->cube.step >= step : c->cube.step + 1 >= step};
}

static void cube_start(collective *c) {
    int rounds = 0;
    while (2 << rounds <= c->world_size) rounds++;
    c->cube = (cube_state){.rounds = rounds, .ranks = 1 << rounds};
    c->cube.number = number_of(c, c->rank);
    const int neighbour = neighbour_of(c);
    /* Step 0 is for those alone who have a neighbour. */
    c->cube.step = neighbour < 0;
    if (neighbour >= 0) collective_open(c, neighbour, 1, 1);
    if (c->cube.number < 0) return;
    const uint64_t messages = is_halving(c) ? 2 : 1;
    for (int step = 1; step <= rounds; step++) collective_open(c, partner_at(c, step), messages, messages);
}

/* --- combining ---------------------------------------------------------------------------------------------------- */

static void combine(const collective *c, int step, size_t at, size_t bytes) {
    char *own = (char *)c->call.data + combined_at(c, step).at + at, *theirs = slot_of(c, step) + at;
    const bool is_lower = partner_at(c, step) < c->rank;
    const size_t count = bytes / ls_dtype_size(c->call.dtype);
    c->kernel->begin(own, is_lower ? theirs : own, is_lower ? own : theirs, count);
}

/* Goes on with a step, or after the last one with its end; steps are cut, as a poll takes a moment only. */
static void go_on(collective *c, int step) {
    const bool is_end = step > c->cube.rounds;
    const span s = is_end ? span_of(c, c->cube.number, 1) : combined_at(c, step);
    const size_t at = c->cube.combined, bytes = least(s.bytes - at, GO_BYTES);
    if (!is_end) {
        combine(c, step, at, bytes);
    } else if (c->kernel->end) {
        char *own = (char *)c->call.data + s.at + at;
        c->kernel->end(own, own, bytes / ls_dtype_size(c->call.dtype), c->world_size);
    }
    c->cube.combined += bytes;
    if (c->cube.combined < s.bytes) return;
    c->cube.combined = 0;
    c->cube.step++;
}

static bool cube_work(collective *c, bool *moved) {
    const int step = c->cube.step;
    if (c->cube.number < 0 || is_combined(c)) return true;
    if (step <= c->cube.rounds) {
        const int partner = partner_at(c, step);
        if (collective_done(c, partner, INCOMING) == 0) return false;
        /* In a doubling all of our data is still wanted by the partner. */
        if (step > 0 && collective_done(c, partner, OUTGOING) == 0) return false;
    }
    go_on(c, step);
    *moved = true;
    return is_combined(c);
}

const algorithm doubling_algorithm = {
    .start = cube_start, .message = {cube_outgoing, cube_incoming}, .work = cube_work};
const algorithm halving_algorithm = {.start = cube_start, .message = {cube_outgoing, cube_incoming}, .work = cube_work};
