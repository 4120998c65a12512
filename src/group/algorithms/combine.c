/* combine.c: all-reduce, reduce and reduce-scatter in the order of the ranks: whoever combines a share of the data
 * gets that share of all ranks, a segment at a time, and combines a segment once all its copies are there. So the bits
 * do not depend on timing, on how data is cut, or on which of the two algorithms ran.
 *
 *   exchange    whoever wants the result combines everything: one round, but (N-1) n bytes to each
 *   pairwise    rank r combines the r-th of N shares (of a reduce-scatter its row) and sends the result to whoever
 *               wants it: two rounds, 2 n (N-1)/N bytes, as many as a ring, without its 2 (N-1) rounds
 *
 * Between rank r and peer p goes, in this order, for k = 0, 1, ...: segment k of r's copy of p's share, then
 * segment k - LEAD of the result of r's own share. Results lag, so that while the first pieces are awaited and combined
 * the wire has more to carry; both directions are busy from the first piece to the last result.
 *
 *   piece k --> slot k mod SLOTS at the share's rank --> combined once all ranks' pieces k are there --> result k
 *
 * 1. A piece is received once the slot's former piece is combined; so pieces are never more than SLOTS ahead.
 * 2. The data is overwritten with a result only once our own piece from there is out of our hands.
 * 3. No cycle: a message waits for messages of an earlier segment, a result for its segment's pieces. */
#include "group/algorithms/algorithm.h"

/* Segments by which results lag behind pieces. */
#define LEAD 2

/* --- what each algorithm and kind comes to ------------------------------------------------------------------------ */

static bool is_pairwise(const collective *c) {
    return c->algorithm == &pairwise_algorithm;
}

typedef struct share {
    size_t at, bytes;
} share;

/* What a rank combines. */
static share share_of(const collective *c, int rank) {
    const size_t bytes = c->bytes;
    if (c->call.kind == GROUP_REDUCE_SCATTER) return (share){.at = bytes * (size_t)rank, .bytes = bytes};
    if (is_pairwise(c)) {
        const size_t at = share_border(bytes, rank, c->world_size);
        return (share){.at = at, .bytes = share_border(bytes, rank + 1, c->world_size) - at};
    }
    const bool wants = c->call.kind == GROUP_ALL_REDUCE || rank == c->call.root;
    return (share){.bytes = wants ? bytes : 0};
}

/* Whether the ranks that combine send `to` their results. */
static bool sends_result(const collective *c, int to) {
    if (!is_pairwise(c) || c->call.kind == GROUP_REDUCE_SCATTER) return false;
    return c->call.kind == GROUP_ALL_REDUCE || to == c->call.root;
}

/* Slots of pieces for each peer, then, for ranks whose data stays as it is, of results. */
static char *slot_of(const collective *c, int rank, uint64_t index) {
    const size_t slot = (size_t)(index % COLLECTIVE_SLOTS) * (size_t)c->world_size + (size_t)rank;
    return c->scratch + slot * c->combine.segment;
}

/* Where a segment of what we combine goes. */
static char *result_of(const collective *c, uint64_t index) {
    const size_t at = (size_t)index * c->combine.segment;
    if (c->call.kind == GROUP_REDUCE_SCATTER) return (char *)c->call.data + at;
    if (c->call.kind == GROUP_REDUCE && c->rank != c->call.root) return slot_of(c, c->rank, index);
    return (char *)c->call.data + share_of(c, c->rank).at + at;
}

static char *own_piece(const collective *c, int of_rank, uint64_t index) {
    return collective_sent(c) + share_of(c, of_rank).at + (size_t)index * c->combine.segment;
}

/* --- messages: index 2k is piece k, index 2k + 1 is result k - LEAD ----------------------------------------------- */

static uint64_t index_of_result(uint64_t segment) {
    return 2 * (segment + LEAD) + 1;
}

static size_t bytes_of(const collective *c, int piece_of, int result_of_rank, bool has_result, uint64_t index) {
    const uint64_t k = index / 2;
    if (index % 2 == 0) return segment_of(share_of(c, piece_of).bytes, c->combine.segment, k);
    if (!has_result || k < LEAD) return 0;
    return segment_of(share_of(c, result_of_rank).bytes, c->combine.segment, k - LEAD);
}

static message combine_outgoing(const collective *c, int peer, uint64_t index) {
    const uint64_t k = index / 2;
    message m = {.bytes = bytes_of(c, peer, c->rank, sends_result(c, peer), index), .is_ready = true};
    if (m.bytes == 0) return m;
    if (index % 2 == 0) {
        m.data = own_piece(c, peer, k);
    } else {
        m.data = result_of(c, k - LEAD);
        m.is_ready = c->combine.combined > k - LEAD;
    }
    return m;
}

static message combine_incoming(const collective *c, int peer, uint64_t index) {
    const uint64_t k = index / 2;
    message m = {.bytes = bytes_of(c, c->rank, peer, sends_result(c, c->rank), index), .is_ready = true};
    if (m.bytes == 0) return m;
    if (index % 2 == 0) {
        m.data = slot_of(c, peer, k);
        /* Rule 1. */
        m.is_ready = k < c->combine.combined + COLLECTIVE_SLOTS;
    } else {
        m.data = (char *)c->call.data + share_of(c, peer).at + (size_t)(k - LEAD) * c->combine.segment;
        /* Rule 2: that index is our own piece from there. */
        m.is_ready = collective_done(c, peer, OUTGOING) > 2 * (k - LEAD);
    }
    return m;
}

static void combine_start(collective *c) {
    size_t longest = c->bytes;
    if (is_pairwise(c) && c->call.kind != GROUP_REDUCE_SCATTER) longest = share_longest(c->bytes, c->world_size);
    c->combine.segment = segment_bytes(longest, c->world_size);
    c->combine.segments = segments_of(longest, c->combine.segment);
    c->combine.combined = 0;
    if (c->bytes == 0) return;
    for (int step = 1; step < c->world_size; step++) {
        /* The last results go LEAD indices behind the last piece; pieces there have no bytes. */
        const uint64_t messages = 2 * (c->combine.segments + LEAD);
        collective_open(c, (c->rank + step) % c->world_size, messages, messages);
    }
}

/* --- combining ---------------------------------------------------------------------------------------------------- */

/* Whether the place of a segment's result is free as far as a peer goes. In an exchange everyone gets our data from
 * there. In pairwise nobody does, as the share is ours; but a result in a slot has to be out before the slot's next. */
static bool may_overwrite(const collective *c, int peer, uint64_t segment) {
    if (is_pairwise(c)) {
        const bool uses_slot = c->call.kind == GROUP_REDUCE && c->rank != c->call.root && peer == c->call.root;
        if (!uses_slot || segment < COLLECTIVE_SLOTS) return true;
        return collective_done(c, peer, OUTGOING) > index_of_result(segment - COLLECTIVE_SLOTS);
    }
    return collective_done(c, peer, OUTGOING) > 2 * segment;
}

static bool may_combine(const collective *c, uint64_t segment) {
    for (int i = 0; i < c->peer_count; i++) {
        const int peer = c->peers[i];
        if (collective_done(c, peer, INCOMING) <= 2 * segment || !may_overwrite(c, peer, segment)) return false;
    }
    return true;
}

static bool combine_work(collective *c, bool *moved) {
    const uint64_t segment = c->combine.combined;
    const size_t ours = share_of(c, c->rank).bytes, bytes = segment_of(ours, c->combine.segment, segment);
    if (bytes == 0) return true;
    if (!may_combine(c, segment)) return false;
    for (int rank = 0; rank < c->world_size; rank++)
        c->sources[rank] = rank == c->rank ? own_piece(c, rank, segment) : slot_of(c, rank, segment);
    const size_t element_bytes = ls_dtype_size(c->call.dtype);
    reduce_into(c->kernel, element_bytes, c->sources, c->world_size, 0, bytes / element_bytes, result_of(c, segment));
    /* One segment a call: a poll takes a moment only. */
    c->combine.combined++;
    *moved = true;
    return segment_of(ours, c->combine.segment, segment + 1) == 0;
}

const algorithm exchange_algorithm = {
    .start = combine_start, .message = {combine_outgoing, combine_incoming}, .work = combine_work};
const algorithm pairwise_algorithm = {
    .start = combine_start, .message = {combine_outgoing, combine_incoming}, .work = combine_work};
