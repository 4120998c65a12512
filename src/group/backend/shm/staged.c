/* staged.c: large operations over ordinary memory, through a stage of a few chunks that each rank shares.
 *
 * A chunk goes through three steps, each counted on the board, each of which waits for the others' counts:
 *
 *   put in      what others need of our data, into our stage      once all have taken out what was in this place before
 *   combine     our share, over our data and the others' stages, into all of these (of a reduce: where the root looks for
 *               it)                                               once all have put the chunk in
 *   take out    the others' shares of our stage                   once all have combined them, where there are shares; else
 *               what we need of the others' stages                once they have put it in
 *
 * Several chunks are under way at once, so that ranks seldom wait for each other. The stage fits the second-level cache.
 * Only an all-reduce and a reduce have shares, and the second step; a reduce-scatter combines as it takes out. Where a rank sends each
 * other rank data of its own, a chunk has a slice for each. A broadcast's root only puts in, the others only take out; who
 * has nothing to do in a step counts along, so that all counts end at the same chunk.                               */
#include "group/backend/shm/flow.h"

#include "base/fault.h"

#include <string.h>

/* A small operation is one chunk: its steps would overlap less than more chunks cost. Of a chunk with slices this is one slice. */
static size_t chunk_bytes_for(size_t bytes, size_t slices) {
    const size_t whole = (bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE,
                 most = SHM_STAGE_CHUNK_BYTES / slices / SHM_LINE * SHM_LINE;
    return whole < most ? whole : most;
}

void shm_staged_start(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    const size_t bytes = shm_longest_part(shm, op);
    s->phase = SHM_STAGING;
    s->kernel = reduce_kernel_of(&op->call);
    s->chunk = s->staged = s->combined = s->taken = shm->chunks;
    s->chunk_bytes = chunk_bytes_for(bytes, shm_has_slices(op) ? (size_t)shm->world_size : 1);
    s->chunk_end = s->chunk + (bytes + s->chunk_bytes - 1) / s->chunk_bytes;
    shm->chunks = s->chunk_end;
}

/* Where there are shares, all put in, and all go through the last step, though of a reduce only the root takes anything. */
static bool puts_in(const backend_op *op, int rank) {
    return shm_has_shares(op) || shm_sends(op, rank);
}

static bool takes_out(const backend_op *op, int rank) {
    return shm_has_shares(op) || shm_receives(op, rank);
}

static unsigned char *stage_of(const shm_group *shm, int rank, uint64_t chunk) {
    return shm->boards[rank]->stage[chunk % SHM_STAGE_CHUNKS];
}

/* Where the chunk's data begin, and how many bytes it has. */
static size_t chunk_span(const backend_op *op, const shm_op *s, uint64_t chunk, size_t *bytes) {
    const size_t at = (size_t)(chunk - s->chunk) * s->chunk_bytes;
    *bytes = op->bytes - at < s->chunk_bytes ? op->bytes - at : s->chunk_bytes;
    return at;
}

/* Where a rank's share of a chunk begins: on a cache line. */
static size_t border(size_t bytes, int rank, int world_size) {
    if (rank == world_size) return bytes;
    return bytes / (size_t)world_size * (size_t)rank / SHM_LINE * SHM_LINE;
}

static uint64_t count_of(const shm_counter *counter) {
    return atomic_load_explicit(&counter->value, memory_order_acquire);
}

static void set_count(shm_counter *counter, uint64_t value) {
    atomic_store_explicit(&counter->value, value, memory_order_release);
}

/* Which of the three steps can be done now, as far as `peer` is concerned. */
static bool may_take(const shm_group *shm, const backend_op *op, const shm_op *s, int peer) {
    const shm_board *board = shm->boards[peer];
    if (shm_has_shares(op)) return count_of(&board->combined) > s->taken;
    return !shm_sends(op, peer) || count_of(&board->staged) > s->taken;
}

static bool may_combine(const shm_group *shm, const backend_op *op, const shm_op *s, int peer) {
    (void)op;
    return count_of(&shm->boards[peer]->staged) > s->combined;
}

static bool may_put(const shm_group *shm, const backend_op *op, const shm_op *s, int peer) {
    (void)op;
    return count_of(&shm->boards[peer]->taken) + SHM_STAGE_CHUNKS > s->staged;
}

/* The piece of a part that goes with a chunk: where it begins in the part. */
static size_t piece_of(const shm_op *s, const shm_part *part, uint64_t chunk, size_t *bytes) {
    const size_t at = (size_t)(chunk - s->chunk) * s->chunk_bytes, left = part->bytes > at ? part->bytes - at : 0;
    *bytes = left < s->chunk_bytes ? left : s->chunk_bytes;
    return at;
}

/* Where rank `to` finds its piece in the stage of rank `from`. */
static unsigned char *piece_in_stage(const shm_group *shm, const backend_op *op, const shm_op *s, int from, int to,
                                     uint64_t chunk) {
    return stage_of(shm, from, chunk) + (shm_has_slices(op) ? (size_t)to * s->chunk_bytes : 0);
}

/* Our own share is read where it is. */
static void put_shares(const shm_group *shm, const backend_op *op, const shm_op *s) {
    size_t bytes = 0;
    const size_t at = chunk_span(op, s, s->staged, &bytes);
    const char *data = (const char *)op->call.data + at;
    unsigned char *stage = stage_of(shm, shm->rank, s->staged);
    const size_t from = border(bytes, shm->rank, shm->world_size), to = border(bytes, shm->rank + 1, shm->world_size);
    memcpy(stage, data, from);
    memcpy(stage + to, data + to, bytes - to);
}

/* A piece that all others need is put in once. */
static void put_pieces(const shm_group *shm, const backend_op *op, const shm_op *s) {
    for (int to = 0; to < shm->world_size; to++) {
        if (to == shm->rank || !shm_receives(op, to)) continue;
        const shm_part part = shm_part_of(shm, op, shm->rank, to);
        size_t bytes = 0;
        const size_t at = piece_of(s, &part, s->staged, &bytes);
        const char *sent = (const char *)shm_sent(op) + part.at + at;
        copy_for_peers(piece_in_stage(shm, op, s, shm->rank, to, s->staged), sent, bytes);
        if (!shm_has_slices(op)) break;
    }
}

static void take_piece(const shm_group *shm, const backend_op *op, const shm_op *s, int from, uint64_t chunk) {
    const shm_part part = shm_part_of(shm, op, from, shm->rank);
    size_t bytes = 0;
    const size_t at = piece_of(s, &part, chunk, &bytes);
    char *into = (char *)op->call.data + part.into + at;
    const void *piece = from == shm->rank ? (const char *)shm_sent(op) + part.at + at
                                          : (const char *)piece_in_stage(shm, op, s, from, shm->rank, chunk);
    if (bytes && into != piece) memcpy(into, piece, bytes);
}

static void put_in(shm_group *shm, const backend_op *op, shm_op *s) {
    if (shm_has_shares(op))
        put_shares(shm, op, s);
    else
        put_pieces(shm, op, s);
    if (!takes_out(op, shm->rank)) {
        take_piece(shm, op, s, shm->rank, s->staged); /* a root that scatters keeps a part */
        s->taken = s->combined = s->staged + 1;
        set_count(&shm_own_board(shm)->combined, s->combined);
        set_count(&shm_own_board(shm)->taken, s->taken);
    }
    s->staged++;
    set_count(&shm_own_board(shm)->staged, s->staged);
    ls_point("shm.staged.put");
}

/* As in place, but over the others' stages: what we read of a stage we write at once, and its owner reads it back. So each
 * line has one reader at a time, who takes it over whole: writing a line that another still holds costs several times as
 * much as fetching it. */
static void combine(shm_group *shm, const backend_op *op, shm_op *s) {
    size_t bytes = 0;
    const size_t at = chunk_span(op, s, s->combined, &bytes);
    const size_t from = border(bytes, shm->rank, shm->world_size), to = border(bytes, shm->rank + 1, shm->world_size);
    for (int rank = 0; rank < shm->world_size; rank++) shm->copies[rank] = stage_of(shm, rank, s->combined);
    shm->copies[shm->rank] = (char *)op->call.data + at;
    shm_combine_share(shm, op, s->kernel, from, to - from);
    s->combined++;
    set_count(&shm_own_board(shm)->combined, s->combined);
    ls_point("shm.staged.combined");
}

/* The others' shares, which they have put into our stage. */
static void take_shares(const shm_group *shm, const backend_op *op, const shm_op *s) {
    size_t bytes = 0;
    const size_t at = chunk_span(op, s, s->taken, &bytes);
    char *data = (char *)op->call.data + at;
    const unsigned char *stage = stage_of(shm, shm->rank, s->taken);
    const size_t from = border(bytes, shm->rank, shm->world_size), to = border(bytes, shm->rank + 1, shm->world_size);
    memcpy(data, stage, from);
    memcpy(data + to, stage + to, bytes - to);
}

/* Our pieces of all ranks become one; our own is read where it is. */
static void combine_pieces(const shm_group *shm, const backend_op *op, const shm_op *s) {
    const shm_part part = shm_part_of(shm, op, shm->rank, shm->rank);
    const size_t element_bytes = ls_dtype_size(op->call.dtype);
    size_t bytes = 0;
    const size_t at = piece_of(s, &part, s->taken, &bytes);
    for (int rank = 0; rank < shm->world_size; rank++)
        shm->copies[rank] = piece_in_stage(shm, op, s, rank, shm->rank, s->taken);
    shm->copies[shm->rank] = (char *)shm_sent(op) + part.at + at;
    reduce_into(s->kernel, element_bytes, shm->copies, shm->world_size, 0, bytes / element_bytes,
                (char *)op->call.data + at);
}

static void take_out(shm_group *shm, const backend_op *op, shm_op *s) {
    if (shm_has_shares(op)) {
        if (shm_receives(op, shm->rank)) take_shares(shm, op, s);
    } else if (s->kernel) {
        combine_pieces(shm, op, s);
    } else {
        for (int rank = 0; rank < shm->world_size; rank++) take_piece(shm, op, s, rank, s->taken);
    }
    s->taken++;
    if (!shm_has_shares(op)) s->combined = s->taken;
    if (!puts_in(op, shm->rank)) set_count(&shm_own_board(shm)->staged, s->staged = s->taken);
    set_count(&shm_own_board(shm)->combined, s->combined);
    set_count(&shm_own_board(shm)->taken, s->taken);
    ls_point("shm.staged.taken");
}

typedef bool step_test(const shm_group *shm, const backend_op *op, const shm_op *s, int peer);

static bool all_allow(step_test *test, const shm_group *shm, const backend_op *op, const shm_op *s) {
    for (int peer = 0; peer < shm->world_size; peer++)
        if (!test(shm, op, s, peer)) return false;
    return true;
}

/* Which steps this rank has left, peers aside. */
static bool has_to_take(const shm_group *shm, const backend_op *op, const shm_op *s) {
    if (!takes_out(op, shm->rank)) return false;
    return s->taken < (shm_has_shares(op) ? s->combined : puts_in(op, shm->rank) ? s->staged : s->chunk_end);
}

static bool has_to_combine(const backend_op *op, const shm_op *s) {
    return shm_has_shares(op) && s->combined < s->staged;
}

static bool has_to_put(const shm_group *shm, const backend_op *op, const shm_op *s) {
    return s->staged < s->chunk_end && puts_in(op, shm->rank);
}

/* One step a poll: the latest first, since it frees what the others wait for. */
backend_progress shm_staged_poll(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    if (has_to_take(shm, op, s) && all_allow(may_take, shm, op, s))
        take_out(shm, op, s);
    else if (has_to_combine(op, s) && all_allow(may_combine, shm, op, s))
        combine(shm, op, s);
    else if (has_to_put(shm, op, s) && all_allow(may_put, shm, op, s))
        put_in(shm, op, s);
    else
        return BACKEND_PENDING;
    return s->taken == s->chunk_end ? BACKEND_DONE : BACKEND_MOVED;
}

/* The first step that is stuck says for whom we wait. */
bool shm_staged_waits_for(const shm_group *shm, const backend_op *op, int peer) {
    const shm_op *s = (const shm_op *)(const void *)op->scratch;
    if (has_to_combine(op, s)) return !may_combine(shm, op, s, peer);
    if (has_to_take(shm, op, s)) return !may_take(shm, op, s, peer);
    return has_to_put(shm, op, s) && !may_put(shm, op, s, peer);
}
