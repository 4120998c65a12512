/* flow.c: who gets what of whom: all that makes one collective differ from another, apart from how bytes travel. */
#include "group/backend/shm/flow.h"

#include <string.h>

bool shm_sends(const backend_op *op, int rank) {
    switch ((int)op->call.kind) {
    case GROUP_BROADCAST:
    case GROUP_SCATTER: return rank == op->call.root;
    case GROUP_REDUCE:
    case GROUP_GATHER: return rank != op->call.root;
    default: return true;
    }
}

bool shm_receives(const backend_op *op, int rank) {
    switch ((int)op->call.kind) {
    case GROUP_BROADCAST:
    case GROUP_SCATTER: return rank != op->call.root;
    case GROUP_REDUCE:
    case GROUP_GATHER: return rank == op->call.root;
    default: return true;
    }
}

bool shm_has_shares(const backend_op *op) {
    return op->call.kind == GROUP_ALL_REDUCE || op->call.kind == GROUP_REDUCE;
}

void shm_combine_share(const shm_group *shm, const backend_op *op, const reduce_kernel *kernel, size_t at,
                       size_t bytes) {
    const size_t element_bytes = ls_dtype_size(op->call.dtype), count = bytes / element_bytes;
    if (op->call.kind == GROUP_ALL_REDUCE)
        reduce_in_place(kernel, element_bytes, shm->copies, shm->world_size, at, count);
    else
        reduce_into(kernel, element_bytes, shm->copies, shm->world_size, at, count,
                    (char *)shm->copies[op->call.root] + at);
}

bool shm_has_slices(const backend_op *op) {
    switch ((int)op->call.kind) {
    case GROUP_SCATTER:
    case GROUP_REDUCE_SCATTER:
    case GROUP_ALL_TO_ALL:
    case GROUP_ALL_TO_ALL_UNEVEN: return true;
    default: return false;
    }
}

const void *shm_sent(const backend_op *op) {
    return op->call.send ? op->call.send : op->call.data;
}

/* --- the uneven all-to-all --------------------------------------------------------------------------------------------- */

size_t shm_head_bytes(const shm_group *shm, const backend_op *op) {
    if (op->call.kind != GROUP_ALL_TO_ALL_UNEVEN) return 0;
    return sizeof(shm_place) + 2 * (size_t)shm->world_size * sizeof(uint64_t);
}

/* Behind the place stand a rank's counts for all ranks, then those from all ranks. */
static uint64_t count_in(const shm_group *shm, const backend_op *op, int rank, int index) {
    uint64_t count;
    const unsigned char *payload = shm_slot_of(shm, rank, op->number)->payload;
    memcpy(&count, payload + sizeof(shm_place) + (size_t)index * sizeof count, sizeof count);
    return count;
}

uint64_t shm_count_for(const shm_group *shm, const backend_op *op, int from, int to) {
    return count_in(shm, op, from, to);
}

uint64_t shm_count_from(const shm_group *shm, const backend_op *op, int to, int from) {
    return count_in(shm, op, to, shm->world_size + from);
}

static shm_part uneven_part(const shm_group *shm, const backend_op *op, int from, int to) {
    const size_t element_bytes = ls_dtype_size(op->call.dtype);
    shm_part part = {.bytes = shm_count_for(shm, op, from, to) * element_bytes};
    for (int before = 0; before < to; before++) part.at += shm_count_for(shm, op, from, before) * element_bytes;
    for (int before = 0; before < from; before++) part.into += shm_count_from(shm, op, to, before) * element_bytes;
    return part;
}

/* --- all of them ------------------------------------------------------------------------------------------------------- */

size_t shm_sent_bytes(const shm_group *shm, const backend_op *op, int rank) {
    if (op->call.kind == GROUP_ALL_TO_ALL_UNEVEN) {
        size_t bytes = 0;
        for (int to = 0; to < shm->world_size; to++) bytes += op->call.send_counts[to] * ls_dtype_size(op->call.dtype);
        return bytes;
    }
    /* A root's own part goes nowhere. */
    if (!shm_sends(op, rank)) return 0;
    return shm_has_slices(op) ? op->bytes * (size_t)shm->world_size : op->bytes;
}

size_t shm_longest_part(const shm_group *shm, const backend_op *op) {
    if (op->call.kind != GROUP_ALL_TO_ALL_UNEVEN) return op->bytes;
    uint64_t most = 0;
    for (int from = 0; from < shm->world_size; from++)
        for (int to = 0; to < shm->world_size; to++) {
            const uint64_t count = shm_count_for(shm, op, from, to);
            most = count > most ? count : most;
        }
    return most * ls_dtype_size(op->call.dtype);
}

shm_part shm_part_of(const shm_group *shm, const backend_op *op, int from, int to) {
    const size_t bytes = op->bytes, slice = bytes * (size_t)to, place = bytes * (size_t)from;
    const bool is_from_root = from == op->call.root, is_to_root = to == op->call.root;
    switch ((int)op->call.kind) {
    case GROUP_BARRIER: return (shm_part){0};
    case GROUP_ALL_REDUCE: return (shm_part){.bytes = bytes};
    case GROUP_BROADCAST: return (shm_part){.bytes = is_from_root && !is_to_root ? bytes : 0};
    case GROUP_REDUCE: return (shm_part){.bytes = is_to_root ? bytes : 0};
    case GROUP_GATHER: return (shm_part){.into = place, .bytes = is_to_root ? bytes : 0};
    case GROUP_SCATTER: return (shm_part){.at = slice, .bytes = is_from_root ? bytes : 0};
    case GROUP_REDUCE_SCATTER: return (shm_part){.at = slice, .bytes = bytes};
    case GROUP_ALL_TO_ALL: return (shm_part){.at = slice, .into = place, .bytes = bytes};
    case GROUP_ALL_TO_ALL_UNEVEN: return uneven_part(shm, op, from, to);
    default: return (shm_part){.into = place, .bytes = bytes}; /* all-gather, of users or of our own */
    }
}
