/* ring.c: an all-reduce round a ring, in relaxed order ("Bandwidth optimal all-reduce algorithms", Patarasuk and Yuan,
 * 2009): each rank talks to two others only, however many there are.
 *
 * The data is N blocks. In step t rank r sends block r - t to its right and hears of block r - t - 1 from its left. In
 * the first N - 1 steps what comes is the sum of the ranks passed so far: this rank's own data is added, and it goes
 * on; block b is whole on rank b - 1. In the N - 1 steps that follow it goes round once more and is written. A block
 * is cut into segments, and each goes on as soon as it is there: index i of both streams is segment i mod S of
 * step i / S.
 *
 * 1. A segment is received once its slot's former content is added.
 * 2. A whole block overwrites ours once what we sent from there, N - 1 steps earlier, is out of our hands. */
#include "group/algorithms/algorithm.h"

static size_t block_at(const collective *c, int64_t block, size_t *bytes) {
    const int64_t ranks = c->world_size;
    /* Blocks count down with the steps, past zero. */
    const int rank = (int)((block % ranks + ranks) % ranks);
    const size_t at = share_border(c->bytes, rank, c->world_size);
    *bytes = share_border(c->bytes, rank + 1, c->world_size) - at;
    return at;
}

/* The segment of data that comes (or, one block before, goes) with an index. */
static message segment_at(const collective *c, int64_t first_block, uint64_t index) {
    const uint64_t step = index / c->ring.segments, segment = index % c->ring.segments;
    size_t bytes = 0;
    const size_t at = block_at(c, first_block - (int64_t)step, &bytes);
    return (message){.data = (char *)c->call.data + at + (size_t)segment * c->ring.segment,
                     .bytes = segment_of(bytes, c->ring.segment, segment)};
}

static int right_of(const collective *c) {
    return (c->rank + 1) % c->world_size;
}

static int left_of(const collective *c) {
    return (c->rank + c->world_size - 1) % c->world_size;
}

/* Indices of the steps that add. */
static uint64_t additions(const collective *c) {
    return (uint64_t)(c->world_size - 1) * c->ring.segments;
}

/* As many slots as messages may be under way, so that the window is never short. */
static char *slot_of(const collective *c, uint64_t index) {
    return c->scratch + (size_t)(index % TRANSPORT_WINDOW) * c->ring.segment;
}

static message ring_outgoing(const collective *c, int peer, uint64_t index) {
    (void)peer;
    message m = segment_at(c, c->rank, index);
    if (index < c->ring.segments)
        m.is_ready = true;
    else if (index - c->ring.segments < additions(c))
        m.is_ready = c->ring.added > index - c->ring.segments;
    else
        m.is_ready = collective_done(c, left_of(c), INCOMING) > index - c->ring.segments;
    return m;
}

static message ring_incoming(const collective *c, int peer, uint64_t index) {
    (void)peer;
    message m = segment_at(c, c->rank - 1, index);
    if (index < additions(c)) {
        m.data = slot_of(c, index);
        m.is_ready = index < c->ring.added + TRANSPORT_WINDOW;
    } else {
        m.is_ready = collective_done(c, right_of(c), OUTGOING) > index - additions(c);
    }
    return m;
}

static void ring_start(collective *c) {
    const size_t longest = share_longest(c->bytes, c->world_size);
    c->ring.segment = ring_segment_bytes(longest);
    c->ring.segments = segments_of(longest, c->ring.segment);
    c->ring.added = 0;
    const uint64_t messages = 2 * additions(c);
    collective_open(c, right_of(c), messages, 0);
    collective_open(c, left_of(c), 0, messages);
}

static bool ring_work(collective *c, bool *moved) {
    const uint64_t index = c->ring.added, last = additions(c);
    if (index == last) return true;
    if (collective_done(c, left_of(c), INCOMING) <= index) return false;
    const message own = segment_at(c, c->rank - 1, index);
    const size_t count = own.bytes / ls_dtype_size(c->call.dtype);
    c->kernel->begin(own.data, slot_of(c, index), own.data, count);
    /* In the last of the adding steps the block is whole: divided once, here, and then sent to all. */
    if (c->kernel->end && index + c->ring.segments >= last) c->kernel->end(own.data, own.data, count, c->world_size);
    c->ring.added++;
    *moved = true;
    return index + 1 == last;
}

const algorithm ring_algorithm = {.start = ring_start, .message = {ring_outgoing, ring_incoming}, .work = ring_work};
