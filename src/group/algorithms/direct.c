/* direct.c: everyone sends each what is for it, in one message, and copies its own part. Ranks begin with their next
 * neighbour, so that not all of them turn to rank 0 first.
 *
 * An uneven all-to-all says in a message before each part how many elements it has: the peer expects a number of its
 * own, and a difference is found here, before a byte is written. */
#include "group/algorithms/algorithm.h"

#include "group/compare.h"

#include <string.h>

/* Copied in one go: some 50 us. */
#define COPY_BYTES ((size_t)256 << 10)

/* What one rank has for another: where it lies in what is sent, where it goes in what is received. */
typedef struct part {
    size_t at, into, bytes;
} part;

static bool is_uneven(const collective *c) {
    return c->call.kind == GROUP_ALL_TO_ALL_UNEVEN;
}

/* Of this rank's parts for a peer (`at`) and from it (`into`); the counts of the two differ. */
static part uneven_part(const collective *c, int peer, const size_t *counts) {
    const size_t element_bytes = ls_dtype_size(c->call.dtype);
    part p = {.bytes = counts[peer] * element_bytes};
    for (int before = 0; before < peer; before++) {
        p.at += c->call.send_counts[before] * element_bytes;
        p.into += c->call.receive_counts[before] * element_bytes;
    }
    return p;
}

static part part_of(const collective *c, int from, int to) {
    const size_t bytes = c->bytes, slice = bytes * (size_t)to, place = bytes * (size_t)from;
    const bool is_from_root = from == c->call.root, is_to_root = to == c->call.root;
    switch ((int)c->call.kind) {
    case GROUP_GATHER: return (part){.into = place, .bytes = is_to_root ? bytes : 0};
    case GROUP_SCATTER: return (part){.at = slice, .bytes = is_from_root ? bytes : 0};
    case GROUP_ALL_TO_ALL: return (part){.at = slice, .into = place, .bytes = bytes};
    case GROUP_ALL_TO_ALL_UNEVEN:
        return from == c->rank ? uneven_part(c, to, c->call.send_counts) : uneven_part(c, from, c->call.receive_counts);
    default: return (part){.into = place, .bytes = bytes}; /* an all-gather; among one rank everything */
    }
}

/* Who has no bytes there may have no memory. */
static void *place_in(void *base, size_t at, size_t bytes) {
    return bytes ? (char *)base + at : NULL;
}

static message direct_outgoing(const collective *c, int peer, uint64_t index) {
    if (is_uneven(c) && index == 0)
        return (message){.data = (void *)&c->call.send_counts[peer], .bytes = sizeof(uint64_t), .is_ready = true};
    const part p = part_of(c, c->rank, peer);
    return (message){.data = place_in(collective_sent(c), p.at, p.bytes), .bytes = p.bytes, .is_ready = true};
}

static bool is_count_known(const collective *c, int peer) {
    return collective_done(c, peer, INCOMING) > 0;
}

static message direct_incoming(const collective *c, int peer, uint64_t index) {
    if (is_uneven(c) && index == 0)
        return (message){.data = &c->counts[peer], .bytes = sizeof(uint64_t), .is_ready = true};
    const part p = part_of(c, peer, c->rank);
    const bool is_ready = !is_uneven(c) || (is_count_known(c, peer) && c->counts[peer] == c->call.receive_counts[peer]);
    return (message){.data = place_in(c->call.data, p.into, p.bytes), .bytes = p.bytes, .is_ready = is_ready};
}

static void direct_start(collective *c) {
    const uint64_t messages = is_uneven(c) ? 2 : c->bytes > 0;
    c->direct.copied = 0;
    for (int step = 1; step < c->world_size; step++) {
        const int peer = (c->rank + step) % c->world_size;
        const bool sends = is_uneven(c) || part_of(c, c->rank, peer).bytes > 0;
        const bool receives = is_uneven(c) || part_of(c, peer, c->rank).bytes > 0;
        collective_open(c, peer, sends ? messages : 0, receives ? messages : 0);
    }
}

static bool are_counts_alike(collective *c) {
    for (int peer = 0; peer < c->world_size; peer++) {
        if (peer == c->rank || !is_count_known(c, peer)) continue;
        const uint64_t sent = c->counts[peer], expected = c->call.receive_counts[peer];
        if (sent == expected) continue;
        counts_differ(peer, sent, c->rank, expected, c->number);
        c->has_failed = true;
        return false;
    }
    return true;
}

static bool direct_work(collective *c, bool *moved) {
    if (is_uneven(c) && !are_counts_alike(c)) return false;
    const part own = part_of(c, c->rank, c->rank);
    const char *from = place_in(collective_sent(c), own.at, own.bytes);
    char *into = place_in(c->call.data, own.into, own.bytes);
    if (into == from || c->direct.copied == own.bytes) return true;
    const size_t now = least(own.bytes - c->direct.copied, COPY_BYTES);
    memcpy(into + c->direct.copied, from + c->direct.copied, now);
    c->direct.copied += now;
    *moved = true;
    return c->direct.copied == own.bytes;
}

const algorithm direct_algorithm = {
    .start = direct_start, .message = {direct_outgoing, direct_incoming}, .work = direct_work};
