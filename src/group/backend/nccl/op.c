/* op.c: an operation: up to three collectives, each put on the stream and waited for by asking.
 *
 *              issue                 NCCL has it                    the stream is through
 *   beginning ---------> issued ---------------------> running -----------------------------> done, or the next part
 *
 *   comparing   all ranks' calls, under LOCKSTEP_DEBUG=detail and where memory or a group is agreed on
 *   counting    what each rank has for this one, before an uneven all-to-all
 *   moving      the call itself
 *
 * Small host memory goes to the stage before and comes back behind. `poll` makes every call, so whoever drives has the GPU
 * current for as long as a poll takes, and no longer. */
#include "group/backend/nccl/state.h"

#include <string.h>

typedef enum nccl_part { PART_COMPARING, PART_COUNTING, PART_MOVING } nccl_part;
typedef enum nccl_phase { PHASE_BEGINNING, PHASE_ISSUED, PHASE_RUNNING } nccl_phase;

/* An operation's scratch. */
typedef struct nccl_scratch {
    nccl_part part;
    nccl_phase phase;
    group_call call; /* of this part, with memory of the GPU's */
    void *home;      /* host memory that what is in the stage goes back to; NULL: none */
    size_t home_bytes;
} nccl_scratch;

_Static_assert(sizeof(nccl_scratch) <= sizeof((backend_op *)0)->scratch, "an operation's scratch is too small");

/* --- parts ---------------------------------------------------------------------------------------------------------- */

static nccl_part first_part(const nccl_group *nccl, const group_call *call) {
    if (nccl->checks_calls || kind_is_agreement(call->kind)) return PART_COMPARING;
    return call->kind == GROUP_ALL_TO_ALL_UNEVEN ? PART_COUNTING : PART_MOVING;
}

static nccl_part part_behind(nccl_part part, const group_call *call) {
    return part == PART_COMPARING && call->kind == GROUP_ALL_TO_ALL_UNEVEN ? PART_COUNTING : PART_MOVING;
}

/* The collective that a part is. */
static group_call call_of_part(nccl_group *nccl, const backend_op *op, nccl_part part) {
    if (part == PART_COMPARING) {
        nccl->records[nccl->rank] = call_record_of(&op->call);
        return (group_call){.kind = GROUP_ALL_GATHER,
                            .dtype = LS_U8,
                            .count = sizeof(call_record),
                            .send = &nccl->records[nccl->rank],
                            .data = nccl->records};
    }
    if (part == PART_COUNTING)
        return (group_call){.kind = GROUP_ALL_TO_ALL,
                            .dtype = LS_U8,
                            .count = sizeof(size_t),
                            .send = op->call.send_counts,
                            .data = nccl->counts};
    group_call call = op->call;
    if (!kind_is_agreement(call.kind)) return call;
    call.kind = GROUP_ALL_GATHER; /* its count was compared */
    call.count = op->bytes;
    return call;
}

/* --- the stage ------------------------------------------------------------------------------------------------------ */

static cuda_result copy_to_stage(nccl_group *nccl, const nccl_stage *stage, const void *from, size_t bytes) {
    memcpy(stage->host, from, bytes);
    return nccl->cuda.copy_in(stage->device, stage->host, bytes, nccl->stream);
}

/* The part's call with the stage in place of host memory. */
static cuda_result stage_call(nccl_group *nccl, nccl_scratch *s) {
    group_call *call = &s->call;
    const size_t sent = nccl_send_bytes(nccl, call), moved = nccl_data_bytes(nccl, call);
    cuda_result result = CUDA_SUCCESS_CODE;
    s->home = NULL;
    if (sent && !nccl_is_on_device(nccl, call->send)) {
        result = copy_to_stage(nccl, &nccl->sent, call->send, sent);
        call->send = nccl_memory_at(nccl->sent.device);
    }
    if (result != CUDA_SUCCESS_CODE || !moved || nccl_is_on_device(nccl, call->data)) return result;
    if (nccl_reads_data(call)) result = copy_to_stage(nccl, &nccl->moved, call->data, moved);
    s->home = call->data;
    s->home_bytes = moved;
    call->data = nccl_memory_at(nccl->moved.device);
    return result;
}

/* --- phases --------------------------------------------------------------------------------------------------------- */

static ls_status fail_cuda(const nccl_group *nccl, const backend_op *op, cuda_result result) {
    char doing[CALL_TEXT_BYTES + 32];
    return cuda_failed(nccl, result, op_describe(op, doing));
}

/* Orders the stream behind what the program has put on the default stream, and thereby on those that block. */
static cuda_result await_default_stream(nccl_group *nccl) {
    const cuda_result result = nccl->cuda.record_event(nccl->before, CUDA_DEFAULT_STREAM);
    return result == CUDA_SUCCESS_CODE ? nccl->cuda.await_event(nccl->stream, nccl->before, 0) : result;
}

static ls_status begin(nccl_group *nccl, const backend_op *op, nccl_scratch *s) {
    s->call = call_of_part(nccl, op, s->part);
    cuda_result result = await_default_stream(nccl);
    if (result == CUDA_SUCCESS_CODE) result = stage_call(nccl, s);
    if (result != CUDA_SUCCESS_CODE) return fail_cuda(nccl, op, result);
    s->phase = PHASE_ISSUED;
    return nccl_issue(nccl, &s->call, op);
}

/* Whether NCCL has taken in what it was called for. */
static ls_status ask_nccl(const nccl_group *nccl, const backend_op *op, bool *is_ready) {
    nccl_result state = NCCL_SUCCESS;
    nccl_result result = nccl->nccl.get_async_error(nccl->comm, &state);
    *is_ready = state == NCCL_SUCCESS;
    if (result == NCCL_SUCCESS && (state == NCCL_SUCCESS || state == NCCL_IN_PROGRESS)) return LS_OK;
    char doing[CALL_TEXT_BYTES + 32];
    return nccl_failed(nccl, result == NCCL_SUCCESS ? state : result, op_describe(op, doing));
}

/* Behind it on the stream come the way home and the mark. */
static ls_status mark_end(nccl_group *nccl, const backend_op *op, nccl_scratch *s) {
    cuda_result result = CUDA_SUCCESS_CODE;
    if (s->home) result = nccl->cuda.copy_out(nccl->moved.host, nccl->moved.device, s->home_bytes, nccl->stream);
    if (result == CUDA_SUCCESS_CODE) result = nccl->cuda.record_event(nccl->after, nccl->stream);
    if (result != CUDA_SUCCESS_CODE) return fail_cuda(nccl, op, result);
    s->phase = PHASE_RUNNING;
    return LS_OK;
}

static ls_status settle(nccl_group *nccl, const backend_op *op, nccl_scratch *s, backend_progress *progress) {
    if (s->home) memcpy(s->home, nccl->moved.host, s->home_bytes);
    if (s->part == PART_COMPARING) LS_TRY(compare_records(nccl->records, nccl->world_size, op->number));
    if (s->part == PART_COUNTING) LS_TRY(compare_counts(nccl->counts, nccl->rank, nccl->world_size, op));
    *progress = s->part == PART_MOVING ? BACKEND_DONE : BACKEND_MOVED;
    s->part = part_behind(s->part, &op->call);
    s->phase = PHASE_BEGINNING;
    /* Relaxed: tells peers, in a notice, which operations have our part. */
    if (*progress == BACKEND_DONE) atomic_store_explicit(&nccl->done, op->number, memory_order_relaxed);
    return LS_OK;
}

static ls_status advance(nccl_group *nccl, const backend_op *op, nccl_scratch *s, backend_progress *progress) {
    bool is_ready = false;
    *progress = BACKEND_MOVED;
    if (s->phase == PHASE_BEGINNING) return begin(nccl, op, s);
    LS_TRY(ask_nccl(nccl, op, &is_ready));
    if (s->phase == PHASE_ISSUED && is_ready) return mark_end(nccl, op, s);
    *progress = BACKEND_PENDING;
    if (s->phase == PHASE_ISSUED) return LS_OK;
    const cuda_result result = nccl->cuda.query_event(nccl->after);
    if (result == CUDA_SUCCESS_CODE) return settle(nccl, op, s, progress);
    return result == CUDA_NOT_READY ? LS_OK : fail_cuda(nccl, op, result);
}

void nccl_start(void *state, backend_op *op) {
    nccl_scratch *s = (nccl_scratch *)(void *)op->scratch;
    *s = (nccl_scratch){.part = first_part(state, &op->call), .phase = PHASE_BEGINNING};
}

/* Aborted, there is nothing to move: the group is lost, and whoever drives looks at that. */
backend_progress nccl_poll(void *state, backend_op *op) {
    nccl_group *nccl = state;
    cuda_context none = NULL;
    backend_progress progress = BACKEND_PENDING;
    const cuda_result result = nccl->cuda.push_context(nccl->context);
    if (result != CUDA_SUCCESS_CODE) {
        op->status = fail_cuda(nccl, op, result);
        return BACKEND_FAILED;
    }
    ls_mutex_lock(&nccl->lock);
    op->status = nccl->comm ? advance(nccl, op, (nccl_scratch *)(void *)op->scratch, &progress) : LS_OK;
    ls_mutex_unlock(&nccl->lock);
    nccl->cuda.pop_context(&none);
    return op->status == LS_OK ? progress : BACKEND_FAILED;
}
