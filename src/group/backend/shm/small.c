/* small.c: one phase: each rank's data stands beside its call, and everyone takes or combines what it needs, in rank
 * order. */
#include "group/backend/shm/flow.h"

#include <string.h>

void shm_small_publish(const shm_group *shm, const backend_op *op, unsigned char *payload) {
    const size_t bytes = shm_sent_bytes(shm, op, shm->rank);
    if (bytes) memcpy(payload + shm_head_bytes(shm, op), shm_sent(op), bytes);
}

/* What `rank` has sent; our own where it is. */
static const char *sent_by(const shm_group *shm, const backend_op *op, int rank) {
    if (rank == shm->rank) return shm_sent(op);
    return (const char *)shm_slot_of(shm, rank, op->number)->payload + shm_head_bytes(shm, op);
}

/* Where we alone read the peer's slot, we may write there, too: its lines become ours, and the peer writes them anew sooner
 * than lines that two hold. Below some lines it makes no difference. Our own data is in place, and receives the result. */
#define TAKEN_OVER_BYTES 2048

static bool is_worth_taking_over(const shm_group *shm, const backend_op *op) {
    return op->call.kind == GROUP_ALL_REDUCE && shm->world_size == 2 && op->bytes >= TAKEN_OVER_BYTES;
}

static void combine_all(const shm_group *shm, const backend_op *op) {
    const group_call *call = &op->call;
    const shm_part part = shm_part_of(shm, op, shm->rank, shm->rank);
    if (part.bytes == 0) return;
    for (int rank = 0; rank < shm->world_size; rank++) shm->copies[rank] = (char *)sent_by(shm, op, rank) + part.at;
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    const size_t element_bytes = ls_dtype_size(call->dtype);
    if (is_worth_taking_over(shm, op))
        reduce_in_place(kernel, element_bytes, shm->copies, shm->world_size, 0, call->count);
    else
        reduce_into(kernel, element_bytes, shm->copies, shm->world_size, 0, call->count, call->data);
}

void shm_small_finish(const shm_group *shm, const backend_op *op) {
    if (kind_combines(op->call.kind)) {
        combine_all(shm, op);
        return;
    }
    for (int from = 0; from < shm->world_size; from++) {
        const shm_part part = shm_part_of(shm, op, from, shm->rank);
        if (part.bytes == 0) continue;
        char *into = (char *)op->call.data + part.into;
        const char *sent = sent_by(shm, op, from) + part.at;
        if (into != sent) memcpy(into, sent, part.bytes);
    }
}
