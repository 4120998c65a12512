/* stand_in_nccl.c: NCCL's functions: their arguments, and the order in which they may be called. */
#include "stand_in_parts.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int version = 22809;
static bool are_connections_held, are_endings_held;
static nccl_result async_errors[STAND_IN_RANKS];
static clique *cliques;
static nccl_comm comms;
static uint64_t ids;

/* The sends and receives of this thread's open group. */
static _Thread_local int group_depth, group_count;
static _Thread_local carried group_calls[2 * STAND_IN_RANKS];
static _Thread_local nccl_comm group_comm;
static _Thread_local cuda_stream group_stream;

nccl_result ncclGetVersion(int *code);
nccl_result ncclGetUniqueId(nccl_unique_id *id);
nccl_result ncclCommInitRankConfig(nccl_comm *comm, int size, nccl_unique_id id, int rank, nccl_config *config);
nccl_result ncclCommFinalize(nccl_comm comm);
nccl_result ncclCommDestroy(nccl_comm comm);
nccl_result ncclCommAbort(nccl_comm comm);
nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *state);
const char *ncclGetErrorString(nccl_result result);
const char *ncclGetLastError(nccl_comm comm);
nccl_result ncclAllReduce(const void *send, void *data, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
                          cuda_stream stream);
nccl_result ncclBroadcast(const void *send, void *data, size_t count, nccl_type type, int root, nccl_comm comm,
                          cuda_stream stream);
nccl_result ncclReduce(const void *send, void *data, size_t count, nccl_type type, nccl_op op, int root, nccl_comm comm,
                       cuda_stream stream);
nccl_result ncclAllGather(const void *send, void *data, size_t count, nccl_type type, nccl_comm comm,
                          cuda_stream stream);
nccl_result ncclReduceScatter(const void *send, void *data, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
                              cuda_stream stream);
nccl_result ncclSend(const void *send, size_t count, nccl_type type, int peer, nccl_comm comm, cuda_stream stream);
nccl_result ncclRecv(void *data, size_t count, nccl_type type, int peer, nccl_comm comm, cuda_stream stream);
nccl_result ncclGroupStart(void);
nccl_result ncclGroupEnd(void);

#define ENTER()                                             \
    const unsigned enter_result = stand_in_enter(__func__); \
    if (enter_result) return enter_result

void stand_in_set_version(int code) {
    version = code;
}

void stand_in_set_async_error(int rank, nccl_result result) {
    stand_in_acquire();
    async_errors[rank] = result;
    stand_in_let_go();
}

void stand_in_hold_connections(bool is_held) {
    stand_in_acquire();
    are_connections_held = is_held;
    stand_in_let_go();
}

void stand_in_hold_endings(bool is_held) {
    stand_in_acquire();
    are_endings_held = is_held;
    stand_in_let_go();
}

/* --- communicators -------------------------------------------------------------------------------------------------- */

nccl_result ncclGetVersion(int *code) {
    ENTER();
    *code = version;
    return NCCL_SUCCESS;
}

const char *ncclGetErrorString(nccl_result result) {
    static const char *const texts[] = {"no error",          "a CUDA error",        "a system error",
                                        "an internal error", "an invalid argument", "an invalid usage",
                                        "a remote error"};
    return result < sizeof texts / sizeof texts[0] ? texts[result] : "an unknown error";
}

const char *ncclGetLastError(nccl_comm comm) {
    (void)comm;
    return "the stand-in's last words";
}

nccl_result ncclGetUniqueId(nccl_unique_id *id) {
    ENTER();
    stand_in_acquire();
    ids++;
    memset(id, (int)(ids % 251), sizeof *id);
    memcpy(id, &ids, sizeof ids);
    stand_in_let_go();
    return NCCL_SUCCESS;
}

/* The lock is held from here on, in functions without ENTER. */
static clique *join(const nccl_unique_id *id, int size, int device) {
    clique *found = cliques;
    while (found && memcmp(&found->id, id, sizeof *id) != 0) found = found->next;
    if (!found) {
        if (!(found = calloc(1, sizeof *found))) abort();
        found->id = *id;
        found->size = size;
        found->next = cliques;
        cliques = found;
    }
    if (found->size != size) stand_in_complain("ranks of one id say sizes %d and %d", found->size, size);
    found->devices[found->joined++] = device;
    return found;
}

static void leave(clique *left) {
    if (++left->left < left->joined) return;
    clique **link = &cliques;
    while (*link != left) link = &(*link)->next;
    *link = left->next;
    clique_clear(left);
    free(left);
}

static bool shares_a_device(const clique *asked) {
    for (int i = 0; i < asked->joined; i++)
        for (int j = 0; j < i; j++)
            if (asked->devices[i] == asked->devices[j]) return true;
    return false;
}

nccl_result ncclCommInitRankConfig(nccl_comm *comm, int size, nccl_unique_id id, int rank, nccl_config *config) {
    ENTER();
    const int device = stand_in_current_device(__func__);
    if (config->size != sizeof *config || config->magic != NCCL_CONFIG_MAGIC || config->version != 21400 ||
        config->blocking != 0)
        stand_in_complain("a configuration of %zu bytes, version %u, blocking %d", config->size, config->version,
                          config->blocking);
    if (rank < 0 || rank >= size || size > STAND_IN_RANKS || group_depth)
        stand_in_complain("rank %d of %d, in %d groups", rank, size, group_depth);
    stand_in_acquire();
    nccl_comm made = calloc(1, sizeof *made);
    if (!made) abort();
    *made = (struct ncclComm){.clique = join(&id, size, device),
                              .rank = rank,
                              .size = size,
                              .device = device,
                              .asks_left = STAND_IN_CALLS_BEFORE_NCCL_IS_READY};
    made->next = comms;
    comms = made;
    stand_in_let_go();
    stand_in_count_live(1);
    *comm = made;
    return NCCL_IN_PROGRESS;
}

static bool is_there(nccl_comm comm, const char *function) {
    nccl_comm found = comms;
    while (found && found != comm) found = found->next;
    if (!found) stand_in_complain("%s on a communicator that is none", function);
    return found;
}

static void free_comm(nccl_comm comm) {
    nccl_comm *link = &comms;
    while (*link != comm) link = &(*link)->next;
    *link = comm->next;
    leave(comm->clique);
    free(comm);
    stand_in_count_live(-1);
}

static nccl_result state_of(nccl_comm comm) {
    if (async_errors[comm->rank]) return async_errors[comm->rank];
    if (!comm->is_connected) {
        if (shares_a_device(comm->clique)) return NCCL_INVALID_USAGE;
        if (are_connections_held || comm->clique->joined < comm->size) return NCCL_IN_PROGRESS;
    }
    if (comm->is_finalized && (comm->running || are_endings_held)) return NCCL_IN_PROGRESS;
    if (comm->asks_left > 0) {
        comm->asks_left--;
        return NCCL_IN_PROGRESS;
    }
    comm->is_connected = true;
    carry_planned(comm);
    return NCCL_SUCCESS;
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *state) {
    ENTER();
    nccl_result result = NCCL_INVALID_ARGUMENT;
    stand_in_acquire();
    if (is_there(comm, __func__)) {
        *state = state_of(comm);
        result = NCCL_SUCCESS;
    }
    stand_in_let_go();
    return result;
}

nccl_result ncclCommFinalize(nccl_comm comm) {
    ENTER();
    stand_in_acquire();
    if (is_there(comm, __func__)) {
        if (!comm->is_connected || comm->is_finalized) stand_in_complain("a communicator was finalized out of turn");
        comm->is_finalized = true;
        comm->asks_left = STAND_IN_CALLS_BEFORE_NCCL_IS_READY;
    }
    stand_in_let_go();
    return NCCL_IN_PROGRESS;
}

nccl_result ncclCommDestroy(nccl_comm comm) {
    ENTER();
    stand_in_acquire();
    if (is_there(comm, __func__)) {
        if (!comm->is_finalized || comm->running || comm->asks_left)
            stand_in_complain("a communicator was destroyed that has not ended");
        free_comm(comm);
    }
    stand_in_let_go();
    return NCCL_SUCCESS;
}

/* What runs on streams ends with it. */
nccl_result ncclCommAbort(nccl_comm comm) {
    ENTER();
    stand_in_acquire();
    if (is_there(comm, __func__)) {
        comm->is_aborted = true;
        carry_nothing(comm);
        pthread_cond_broadcast(&stand_in_changed);
        while (comm->running) pthread_cond_wait(&stand_in_changed, &stand_in_lock);
        free_comm(comm);
    }
    stand_in_let_go();
    return NCCL_SUCCESS;
}

/* --- collectives ---------------------------------------------------------------------------------------------------- */

/* Whether such a call may be made now. */
static bool may_call(const char *function, nccl_comm comm, const carried *call, cuda_stream stream) {
    if (!is_there(comm, function)) return false;
    const int device = stand_in_current_device(function);
    const char *why = NULL;
    if (!comm->is_connected || comm->asks_left || comm->is_finalized) why = "a communicator that is not ready";
    if (device != comm->device || stand_in_stream_device(stream) != device) why = "another device current";
    if (call->type == 3 || call->type == 5 || call->type > 9 || call->op > 4) why = "a type or op that is none";
    if (call->peer < 0 || call->peer >= comm->size) why = "a rank that is none";
    if (call->count == 0) why = "nothing to do";
    if (why) stand_in_complain("%s with %s", function, why);
    return !why;
}

/* Turns the GPU's addresses into the host's. */
static bool reach(const char *function, nccl_comm comm, carried *call, size_t send_rows, size_t data_rows) {
    const size_t row = call->count * carried_element_bytes(call->type);
    if (send_rows && !(call->send = stand_in_reach(function, comm->device, call->send, send_rows * row))) return false;
    return !data_rows || (call->data = stand_in_reach(function, comm->device, call->data, data_rows * row));
}

static nccl_result collect(const char *function, nccl_comm comm, cuda_stream stream, carried call, size_t send_rows,
                           size_t data_rows) {
    nccl_result result = NCCL_INVALID_ARGUMENT;
    if (group_depth) stand_in_complain("%s in a group", function);
    stand_in_acquire();
    if (may_call(function, comm, &call, stream) && reach(function, comm, &call, send_rows, data_rows)) {
        carry_collective(comm, &call, stream);
        comm->asks_left = STAND_IN_CALLS_BEFORE_NCCL_IS_READY;
        result = NCCL_IN_PROGRESS;
    }
    stand_in_let_go();
    return result;
}

nccl_result ncclAllReduce(const void *send, void *data, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
                          cuda_stream stream) {
    ENTER();
    const carried call = {.kind = CARRY_ALL_REDUCE, .send = send, .data = data, .count = count, .type = type, .op = op};
    return collect(__func__, comm, stream, call, 1, 1);
}

nccl_result ncclBroadcast(const void *send, void *data, size_t count, nccl_type type, int root, nccl_comm comm,
                          cuda_stream stream) {
    ENTER();
    const carried call = {
        .kind = CARRY_BROADCAST, .send = send, .data = data, .count = count, .type = type, .peer = root};
    return collect(__func__, comm, stream, call, 1, 1);
}

nccl_result ncclReduce(const void *send, void *data, size_t count, nccl_type type, nccl_op op, int root, nccl_comm comm,
                       cuda_stream stream) {
    ENTER();
    const carried call = {
        .kind = CARRY_REDUCE, .send = send, .data = data, .count = count, .type = type, .op = op, .peer = root};
    return collect(__func__, comm, stream, call, 1, 1);
}

nccl_result ncclAllGather(const void *send, void *data, size_t count, nccl_type type, nccl_comm comm,
                          cuda_stream stream) {
    ENTER();
    const carried call = {.kind = CARRY_ALL_GATHER, .send = send, .data = data, .count = count, .type = type};
    return collect(__func__, comm, stream, call, 1, (size_t)comm->size);
}

nccl_result ncclReduceScatter(const void *send, void *data, size_t count, nccl_type type, nccl_op op, nccl_comm comm,
                              cuda_stream stream) {
    ENTER();
    const carried call = {
        .kind = CARRY_REDUCE_SCATTER, .send = send, .data = data, .count = count, .type = type, .op = op};
    return collect(__func__, comm, stream, call, (size_t)comm->size, 1);
}

/* --- sends and receives, in groups ---------------------------------------------------------------------------------- */

nccl_result ncclGroupStart(void) {
    ENTER();
    group_depth++;
    group_comm = NULL;
    return NCCL_SUCCESS;
}

static nccl_result append(const char *function, nccl_comm comm, cuda_stream stream, carried call) {
    nccl_result result = NCCL_INVALID_ARGUMENT;
    if (!group_depth) stand_in_complain("%s outside of a group", function);
    stand_in_acquire();
    if (may_call(function, comm, &call, stream) && reach(function, comm, &call, call.send ? 1 : 0, call.data ? 1 : 0)) {
        if (call.peer == comm->rank) stand_in_complain("%s with itself", function);
        group_comm = comm;
        group_stream = stream;
        group_calls[group_count++] = call;
        result = NCCL_SUCCESS;
    }
    stand_in_let_go();
    return result;
}

nccl_result ncclSend(const void *send, size_t count, nccl_type type, int peer, nccl_comm comm, cuda_stream stream) {
    ENTER();
    const carried call = {.kind = CARRY_SEND, .send = send, .count = count, .type = type, .peer = peer};
    return append(__func__, comm, stream, call);
}

nccl_result ncclRecv(void *data, size_t count, nccl_type type, int peer, nccl_comm comm, cuda_stream stream) {
    ENTER();
    const carried call = {.kind = CARRY_RECEIVE, .data = data, .count = count, .type = type, .peer = peer};
    return append(__func__, comm, stream, call);
}

/* The group is over, even where ending it fails. */
nccl_result ncclGroupEnd(void) {
    if (--group_depth < 0) stand_in_complain("a group was ended that nobody began");
    const int count = group_count;
    group_count = 0;
    ENTER();
    if (!group_comm) return NCCL_SUCCESS;
    stand_in_acquire();
    carry_messages(group_comm, group_calls, count, group_stream);
    group_comm->asks_left = STAND_IN_CALLS_BEFORE_NCCL_IS_READY;
    stand_in_let_go();
    return NCCL_IN_PROGRESS;
}
