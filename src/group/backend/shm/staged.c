/* staged.c: large operations over ordinary memory, through a stage of a few chunks that each rank shares.
 *
 * A chunk goes through three steps, each counted on the board, each of which waits for the others' counts:
 *
 *   put in      what others need of our data, into our stage      once all have taken out what was in this place before
 *   combine     our share, over all stages and our data, into our data and our stage    once all have put the chunk in
 *   take out    what we need of the others' stages                once all have combined it (all-reduce), or put it in
 *
 * Several chunks are under way at once, so that ranks seldom wait for each other. The stage fits the second-level cache.
 * A broadcast's root only puts in, the others only take out.                                                        */
#include "group/backend/shm/shm.h"

#include "base/fault.h"

#include <string.h>

/* Even a small operation has some chunks, so that its steps overlap. */
static size_t chunk_bytes_for(size_t bytes) {
    const size_t quarter = (bytes / 4 + 4095) / 4096 * 4096;
    return quarter < SHM_STAGE_CHUNK_BYTES ? quarter : SHM_STAGE_CHUNK_BYTES;
}

void shm_staged_start(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    s->phase = SHM_STAGING;
    s->kernel = op->call.kind == GROUP_ALL_REDUCE ? reduce_kernel_for(op->call.dtype, op->call.op) : NULL;
    s->chunk = s->staged = s->combined = s->taken = shm->chunks;
    s->chunk_bytes = chunk_bytes_for(op->bytes);
    s->chunk_end = s->chunk + (op->bytes + s->chunk_bytes - 1) / s->chunk_bytes;
    shm->chunks = s->chunk_end;
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

static bool is_root(const shm_group *shm, const backend_op *op) {
    return op->call.kind == GROUP_BROADCAST && op->call.root == shm->rank;
}

static bool is_receiver(const shm_group *shm, const backend_op *op) {
    return op->call.kind == GROUP_BROADCAST && op->call.root != shm->rank;
}

/* Which of the three steps can be done now, as far as `peer` is concerned. */
static bool may_take(const shm_group *shm, const backend_op *op, const shm_op *s, int peer) {
    const shm_board *board = shm->boards[peer];
    if (op->call.kind == GROUP_ALL_REDUCE) return count_of(&board->combined) > s->taken;
    if (op->call.kind == GROUP_BROADCAST && peer != op->call.root) return true;
    return count_of(&board->staged) > s->taken;
}

static bool may_combine(const shm_group *shm, const backend_op *op, const shm_op *s, int peer) {
    (void)op;
    return count_of(&shm->boards[peer]->staged) > s->combined;
}

static bool may_put(const shm_group *shm, const backend_op *op, const shm_op *s, int peer) {
    (void)op;
    return count_of(&shm->boards[peer]->taken) + SHM_STAGE_CHUNKS > s->staged;
}

static void put_in(shm_group *shm, const backend_op *op, shm_op *s) {
    size_t bytes = 0;
    const size_t at = chunk_span(op, s, s->staged, &bytes);
    const char *data = op->call.kind == GROUP_ALL_GATHER ? op->call.send : op->call.data;
    unsigned char *stage = stage_of(shm, shm->rank, s->staged);
    /* Our own share of a sum is read where it is. */
    const size_t from = s->kernel ? border(bytes, shm->rank, shm->world_size) : bytes;
    const size_t to = s->kernel ? border(bytes, shm->rank + 1, shm->world_size) : bytes;
    copy_for_peers(stage, data + at, from);
    copy_for_peers(stage + to, data + at + to, bytes - to);
    s->staged++;
    if (is_root(shm, op)) {
        set_count(&shm_own_board(shm)->taken, s->taken = s->staged);
        set_count(&shm_own_board(shm)->combined, s->combined = s->staged);
    }
    set_count(&shm_own_board(shm)->staged, s->staged);
    ls_point("shm.staged.put");
}

static void combine(shm_group *shm, const backend_op *op, shm_op *s) {
    size_t bytes = 0;
    const size_t at = chunk_span(op, s, s->combined, &bytes);
    const size_t from = border(bytes, shm->rank, shm->world_size), to = border(bytes, shm->rank + 1, shm->world_size);
    const size_t element_bytes = ls_dtype_size(op->call.dtype);
    char *data = (char *)op->call.data + at;
    for (int rank = 0; rank < shm->world_size; rank++) shm->copies[rank] = stage_of(shm, rank, s->combined);
    unsigned char *stage = shm->copies[shm->rank];
    shm->copies[shm->rank] = data;
    reduce_into(s->kernel, element_bytes, shm->copies, shm->world_size, from, (to - from) / element_bytes, data + from);
    copy_for_peers(stage + from, data + from, to - from);
    s->combined++;
    set_count(&shm_own_board(shm)->combined, s->combined);
    ls_point("shm.staged.combined");
}

static void take_share(const shm_group *shm, const backend_op *op, const shm_op *s, int rank) {
    size_t bytes = 0;
    const size_t at = chunk_span(op, s, s->taken, &bytes);
    const unsigned char *stage = stage_of(shm, rank, s->taken);
    char *data = op->call.data;
    if (op->call.kind == GROUP_ALL_REDUCE) {
        if (rank == shm->rank) return;
        const size_t from = border(bytes, rank, shm->world_size), to = border(bytes, rank + 1, shm->world_size);
        memcpy(data + at + from, stage + from, to - from);
    } else if (op->call.kind == GROUP_ALL_GATHER) {
        memcpy(data + (size_t)rank * op->bytes + at, stage, bytes);
    } else if (rank == op->call.root) {
        memcpy(data + at, stage, bytes);
    }
}

static void take_out(shm_group *shm, const backend_op *op, shm_op *s) {
    for (int rank = 0; rank < shm->world_size; rank++) take_share(shm, op, s, rank);
    s->taken++;
    /* Who has nothing to put in or to combine counts along, so that all counts end at the same chunk. */
    if (op->call.kind != GROUP_ALL_REDUCE) s->combined = s->taken;
    if (is_receiver(shm, op)) set_count(&shm_own_board(shm)->staged, s->staged = s->taken);
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
    const uint64_t ready = s->kernel ? s->combined : is_receiver(shm, op) ? s->chunk_end : s->staged;
    return s->taken < ready;
}

static bool has_to_combine(const shm_op *s) {
    return s->kernel && s->combined < s->staged;
}

static bool has_to_put(const shm_group *shm, const backend_op *op, const shm_op *s) {
    return s->staged < s->chunk_end && !is_receiver(shm, op);
}

/* One step a poll: the latest first, since it frees what the others wait for. */
backend_progress shm_staged_poll(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    if (has_to_take(shm, op, s) && all_allow(may_take, shm, op, s))
        take_out(shm, op, s);
    else if (has_to_combine(s) && all_allow(may_combine, shm, op, s))
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
    if (has_to_combine(s)) return !may_combine(shm, op, s, peer);
    if (has_to_take(shm, op, s)) return !may_take(shm, op, s, peer);
    return has_to_put(shm, op, s) && !may_put(shm, op, s, peer);
}
