/* tree.c: a broadcast down a tree: what comes from the parent goes on to the children as soon as it is there.
 *
 *   binomial    of small data, in one piece: in round i the 2^i ranks that have it send it on, so ceil(log2 N) rounds.
 *               Numbered from the root, rank v has the parent that is v without its lowest bit.
 *   chain       of large data, in segments: each rank sends everything once, while it still receives; the last rank has
 *               all N - 2 segments after the root has sent all. */
#include "group/algorithms/algorithm.h"

static message tree_outgoing(const collective *c, int peer, uint64_t index) {
    (void)peer;
    const int parent = c->tree.parent;
    return (message){.data = (char *)c->call.data + (size_t)index * c->tree.segment,
                     .bytes = segment_of(c->bytes, c->tree.segment, index),
                     .is_ready = parent < 0 || collective_done(c, parent, INCOMING) > index};
}

static message tree_incoming(const collective *c, int peer, uint64_t index) {
    (void)peer;
    return (message){.data = (char *)c->call.data + (size_t)index * c->tree.segment,
                     .bytes = segment_of(c->bytes, c->tree.segment, index),
                     .is_ready = true};
}

/* Numbered from the root. */
static int number_of(const collective *c) {
    return (c->rank - c->call.root + c->world_size) % c->world_size;
}

static int rank_of(const collective *c, int number) {
    return (number + c->call.root) % c->world_size;
}

static void take_parent(collective *c, int number, int parent_number) {
    c->tree.parent = number ? rank_of(c, parent_number) : -1;
    if (number) collective_open(c, c->tree.parent, 0, c->tree.segments);
}

static void binomial_start(collective *c) {
    const int number = number_of(c);
    c->tree.segment = c->bytes;
    c->tree.segments = c->bytes > 0;
    take_parent(c, number, number & (number - 1));
    /* Children of v: v + 2^i for each 2^i below its lowest bit; of the root: below N. */
    /* The child with most ranks below it first. */
    int lowest = number ? number & -number : 1;
    while (!number && lowest < c->world_size) lowest *= 2;
    for (int step = lowest / 2; step > 0; step /= 2)
        if (number + step < c->world_size) collective_open(c, rank_of(c, number + step), c->tree.segments, 0);
}

static void chain_start(collective *c) {
    const int number = number_of(c);
    c->tree.segment = segment_bytes(c->bytes, c->world_size);
    c->tree.segments = segments_of(c->bytes, c->tree.segment);
    take_parent(c, number, number - 1);
    if (number + 1 < c->world_size) collective_open(c, rank_of(c, number + 1), c->tree.segments, 0);
}

/* A tree only passes on: the streams do all of it. */
static bool tree_work(collective *c, bool *moved) {
    (void)c;
    (void)moved;
    return true;
}

const algorithm binomial_algorithm = {
    .start = binomial_start, .message = {tree_outgoing, tree_incoming}, .work = tree_work};
const algorithm chain_algorithm = {.start = chain_start, .message = {tree_outgoing, tree_incoming}, .work = tree_work};
