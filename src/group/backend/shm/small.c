/* small.c: one phase: each rank's data stands beside its call, and everyone combines all of it, in rank order. */
#include "group/backend/shm/shm.h"

#include <string.h>

void shm_small_publish(const backend_op *op, unsigned char *payload, int rank) {
    const group_call *call = &op->call;
    const void *data = NULL;
    switch ((int)call->kind) {
    case GROUP_ALL_REDUCE: data = call->data; break;
    case GROUP_BROADCAST: data = call->root == rank ? call->data : NULL; break;
    case GROUP_BARRIER: break;
    default: data = call->send; break; /* all-gather, of users or of our own */
    }
    if (data && op->bytes) copy_for_peers(payload, data, op->bytes);
}

static const void *payload_of(const shm_group *shm, const backend_op *op, int rank) {
    return shm_slot_of(shm, rank, op->number)->payload;
}

static void combine_all(const shm_group *shm, const backend_op *op) {
    const group_call *call = &op->call;
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    kernel->combine(call->data, payload_of(shm, op, 0), payload_of(shm, op, 1), call->count);
    for (int rank = 2; rank < shm->world_size; rank++)
        kernel->combine(call->data, call->data, payload_of(shm, op, rank), call->count);
}

void shm_small_finish(const shm_group *shm, const backend_op *op) {
    const group_call *call = &op->call;
    if (op->bytes == 0) return;
    switch ((int)call->kind) {
    case GROUP_ALL_REDUCE: combine_all(shm, op); break;
    case GROUP_BROADCAST:
        if (call->root != shm->rank) memcpy(call->data, payload_of(shm, op, call->root), op->bytes);
        break;
    default:
        for (int rank = 0; rank < shm->world_size; rank++)
            memcpy((char *)call->data + (size_t)rank * op->bytes, payload_of(shm, op, rank), op->bytes);
        break;
    }
}
