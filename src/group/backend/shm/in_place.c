/* in_place.c: large operations over memory of the group, which every rank maps of every rank.
 *
 * All-reduce and reduce: each rank combines its share of the elements, reading every rank's copy in rank order, and writes the
 * result into every copy, or into the root's. A share's bytes are read and written by one rank only, and shares meet on cache lines' borders: so
 * nothing is synchronised in between, and the bits are the same everywhere.
 *
 * All others: each rank reads, or combines, what it needs where it lies. Then all say that they have finished, since the
 * memory must stay untouched until the last has read it.                                                            */
#include "group/backend/shm/flow.h"

#include "base/fault.h"

#include <string.h>

/* What one poll does at most: some tens of microseconds. */
#define POLL_BYTES (256u << 10)

static shm_place place_of(const shm_group *shm, const backend_op *op, int rank) {
    shm_place place;
    memcpy(&place, shm_slot_of(shm, rank, op->number)->payload, sizeof place);
    return place;
}

/* All ranks decide alike, from what all have published: the same memory, and where there are shares at the same place, so
 * that their borders are the same. */
bool shm_in_place_is_possible(const shm_group *shm, const backend_op *op) {
    const shm_place first = place_of(shm, op, 0);
    for (int rank = 0; rank < shm->world_size; rank++)
        if (!shm_slot_has_place(shm_slot_of(shm, rank, op->number))) return false;
    for (int rank = 1; rank < shm->world_size; rank++) {
        const shm_place place = place_of(shm, op, rank);
        if (place.memory != first.memory) return false;
        if (shm_has_shares(op) && place.offset != first.offset) return false;
    }
    return true;
}

/* Where share `rank` begins, in bytes of the data; share `world_size` is the end. */
static size_t border(const shm_group *shm, const backend_op *op, uint64_t offset, int rank) {
    if (rank == shm->world_size) return op->bytes;
    const size_t even = op->bytes / (size_t)shm->world_size * (size_t)rank;
    const size_t past = (offset + even) % SHM_LINE;
    return past > even ? 0 : even - past;
}

void shm_in_place_start(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    for (int rank = 0; rank < shm->world_size; rank++)
        shm->copies[rank] = shm_memory_copy(s->memory, rank) + place_of(shm, op, rank).offset;
    s->kernel = reduce_kernel_of(&op->call);
    if (shm_has_shares(op)) {
        s->phase = SHM_COMBINING;
        s->next = border(shm, op, s->offset, shm->rank);
        s->end = border(shm, op, s->offset, shm->rank + 1);
        return;
    }
    s->phase = SHM_COPYING;
    s->from = 0;
    s->next = 0;
}

static backend_progress begin_finishing(shm_group *shm, backend_op *op) {
    shm_op_of(op)->phase = SHM_FINISHING;
    /* Release: what we wrote and that we have read. */
    atomic_store_explicit(&shm_own_board(shm)->finished.value, op->number, memory_order_release);
    ls_point("shm.in_place.finished");
    return shm_in_place_finish(shm, op) == BACKEND_DONE ? BACKEND_DONE : BACKEND_MOVED;
}

backend_progress shm_in_place_combine(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    const size_t left = s->end - s->next, now = left < POLL_BYTES ? left : POLL_BYTES;
    if (now) shm_combine_share(shm, op, s->kernel, s->next, now);
    s->next += now;
    ls_point("shm.in_place.combined");
    return s->next < s->end ? BACKEND_MOVED : begin_finishing(shm, op);
}

/* Our part of every rank's data becomes one. Returns its bytes. */
static size_t combine_part(const shm_group *shm, backend_op *op, shm_op *s) {
    const shm_part part = shm_part_of(shm, op, shm->rank, shm->rank);
    const size_t left = part.bytes - s->next, now = left < POLL_BYTES ? left : POLL_BYTES;
    const size_t element_bytes = ls_dtype_size(op->call.dtype);
    if (now)
        reduce_into(s->kernel, element_bytes, shm->copies, shm->world_size, part.at + s->next, now / element_bytes,
                    (char *)op->call.data + s->next);
    s->next += now;
    return part.bytes;
}

static size_t copy_part(const shm_group *shm, backend_op *op, shm_op *s) {
    const shm_part part = shm_part_of(shm, op, s->from, shm->rank);
    const size_t left = part.bytes - s->next, now = left < POLL_BYTES ? left : POLL_BYTES;
    const char *sent = s->from == shm->rank ? shm_sent(op) : shm->copies[s->from];
    const char *source = sent + part.at + s->next;
    char *into = (char *)op->call.data + part.into + s->next;
    if (now && into != source) memcpy(into, source, now);
    s->next += now;
    return part.bytes;
}

backend_progress shm_in_place_copy(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    const size_t bytes = s->kernel ? combine_part(shm, op, s) : copy_part(shm, op, s);
    ls_point("shm.in_place.copied");
    if (s->next < bytes) return BACKEND_MOVED;
    s->next = 0;
    s->from++;
    return !s->kernel && s->from < shm->world_size ? BACKEND_MOVED : begin_finishing(shm, op);
}

/* Whether we wait until `peer` has read our memory. */
static bool is_read_by(const shm_group *shm, const backend_op *op, int peer) {
    return shm_has_shares(op) || (shm_sends(op, shm->rank) && shm_receives(op, peer));
}

bool shm_in_place_waits_for(const shm_group *shm, const backend_op *op, int peer) {
    return is_read_by(shm, op, peer) &&
           atomic_load_explicit(&shm->boards[peer]->finished.value, memory_order_acquire) < op->number;
}

backend_progress shm_in_place_finish(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    /* A broadcast's receiver has all it wants: only the root waits for those who read its memory. */
    for (; s->peer < shm->world_size; s->peer++)
        if (shm_in_place_waits_for(shm, op, s->peer)) return BACKEND_PENDING;
    return BACKEND_DONE;
}
