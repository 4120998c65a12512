/* stand_in_carry.c: what a communicator carries, on the threads of streams: a collective is done by the last rank that comes
 * to it, as the oracle of the tests of groups does it; a message is copied by its receiver. */
#include "stand_in_parts.h"

#include "../group/oracle.h"

#include <stdlib.h>

/* One collective. Ranks that call different things wait, as NCCL's do, until they are aborted. */
struct meeting {
    meeting *next;
    unsigned long long number;
    int arrived, gone;
    bool is_done;
    carried calls[STAND_IN_RANKS];
};

/* A message on its way. */
struct letter {
    letter *next;
    int from, to;
    carried call;
    bool is_read;
};

/* What is put on a stream. */
struct errand {
    nccl_comm comm;
    cuda_stream stream;
    void (*run)(void *argument);
    unsigned long long number;
    int count;
    carried calls[2 * STAND_IN_RANKS];
};

static ls_dtype dtype_of(nccl_type type) {
    static const ls_dtype dtypes[] = {
        [NCCL_INT8] = LS_I8,     [NCCL_UINT8] = LS_U8,    [NCCL_INT32] = LS_I32,   [NCCL_INT64] = LS_I64,
        [NCCL_FLOAT16] = LS_F16, [NCCL_FLOAT32] = LS_F32, [NCCL_FLOAT64] = LS_F64, [NCCL_BFLOAT16] = LS_BF16};
    return dtypes[type];
}

size_t carried_element_bytes(nccl_type type) {
    return ls_dtype_size(dtype_of(type));
}

/* --- collectives ---------------------------------------------------------------------------------------------------- */

/* Combines row `row` of all ranks' input into a fresh array. */
static char *combine_row(const meeting *of, int size, int row) {
    static const ls_op ops[] = {LS_SUM, LS_PRODUCT, LS_MAX, LS_MIN, LS_AVERAGE}; /* in NCCL's order */
    const carried *call = &of->calls[0];
    const size_t element_bytes = carried_element_bytes(call->type);
    const void *sources[STAND_IN_RANKS];
    char *combined = malloc(call->count * element_bytes);
    if (!combined) abort();
    for (size_t i = 0; i < call->count; i++) {
        const size_t at = ((size_t)row * call->count + i) * element_bytes;
        for (int rank = 0; rank < STAND_IN_RANKS; rank++) sources[rank] = of->calls[rank % size].send + at;
        expect_element(combined + i * element_bytes, dtype_of(call->type), ops[call->op], sources, size);
    }
    return combined;
}

static void reduce_all(const meeting *of, int size, size_t row) {
    char *sum = combine_row(of, size, 0);
    for (int rank = 0; rank < size; rank++)
        if (of->calls[0].kind == CARRY_ALL_REDUCE || rank == of->calls[0].peer) memcpy(of->calls[rank].data, sum, row);
    free(sum);
}

/* Rows are all formed before the first is written: an output may be part of an input. */
static void reduce_scatter(const meeting *of, int size, size_t row) {
    char *sums[STAND_IN_RANKS] = {NULL};
    for (int rank = 0; rank < size; rank++) sums[rank] = combine_row(of, size, rank);
    for (int rank = 0; rank < size; rank++) {
        memcpy(of->calls[rank].data, sums[rank], row);
        free(sums[rank]);
    }
}

static void carry_out(const meeting *of, int size) {
    const carried *call = &of->calls[0];
    const size_t row = call->count * carried_element_bytes(call->type);
    if (call->kind == CARRY_ALL_REDUCE || call->kind == CARRY_REDUCE) reduce_all(of, size, row);
    if (call->kind == CARRY_REDUCE_SCATTER) reduce_scatter(of, size, row);
    for (int rank = 0; rank < size; rank++) {
        if (call->kind == CARRY_BROADCAST) memmove(of->calls[rank].data, of->calls[call->peer].send, row);
        for (int from = 0; from < size && call->kind == CARRY_ALL_GATHER; from++)
            memmove(of->calls[rank].data + (size_t)from * row, of->calls[from].send, row);
    }
}

static bool are_alike(const meeting *of, int size) {
    const carried *first = &of->calls[0];
    for (int rank = 1; rank < size; rank++) {
        const carried *call = &of->calls[rank];
        if (call->kind != first->kind || call->count != first->count || call->type != first->type ||
            call->op != first->op || call->peer != first->peer)
            return false;
    }
    return true;
}

static meeting *meeting_of(clique *ranks, unsigned long long number) {
    meeting *found = ranks->meetings;
    while (found && found->number != number) found = found->next;
    if (found) return found;
    if (!(found = calloc(1, sizeof *found))) abort();
    found->number = number;
    found->next = ranks->meetings;
    ranks->meetings = found;
    return found;
}

static void leave_meeting(clique *ranks, meeting *left, int size) {
    if (++left->gone < size) return;
    meeting **link = &ranks->meetings;
    while (*link != left) link = &(*link)->next;
    *link = left->next;
    free(left);
}

static void end_errand(errand *ended) {
    ended->comm->running--;
    stand_in_let_go();
    free(ended);
}

static void run_collective(void *argument) {
    errand *run = argument;
    nccl_comm comm = run->comm;
    stand_in_acquire();
    meeting *met = meeting_of(comm->clique, run->number);
    met->calls[comm->rank] = run->calls[0];
    /* Who was aborted has its memory back. */
    if (++met->arrived == comm->size && met->gone == 0 && are_alike(met, comm->size)) {
        carry_out(met, comm->size);
        met->is_done = true;
        pthread_cond_broadcast(&stand_in_changed);
    }
    while (!met->is_done && !comm->is_aborted) pthread_cond_wait(&stand_in_changed, &stand_in_lock);
    leave_meeting(comm->clique, met, comm->size);
    end_errand(run);
}

static errand *plan(nccl_comm comm, const carried *calls, int count, cuda_stream stream, void (*run)(void *argument)) {
    errand *made = calloc(1, sizeof *made);
    if (!made) abort();
    if (comm->planned) stand_in_complain("a call before the last one was taken in");
    made->comm = comm;
    made->stream = stream;
    made->run = run;
    made->count = count;
    memcpy(made->calls, calls, (size_t)count * sizeof *calls);
    comm->running++;
    comm->planned = made;
    return made;
}

void carry_planned(nccl_comm comm) {
    errand *planned = comm->planned;
    comm->planned = NULL;
    if (planned) stand_in_put(planned->stream, planned->run, planned);
}

void carry_nothing(nccl_comm comm) {
    if (comm->planned) comm->running--;
    free(comm->planned);
    comm->planned = NULL;
}

void carry_collective(nccl_comm comm, const carried *call, cuda_stream stream) {
    plan(comm, call, 1, stream, run_collective)->number = ++comm->issued;
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

static letter *post(nccl_comm comm, const carried *call) {
    letter *posted = calloc(1, sizeof *posted), **link = &comm->clique->letters;
    if (!posted) abort();
    *posted = (letter){.from = comm->rank, .to = call->peer, .call = *call};
    while (*link) link = &(*link)->next;
    *link = posted;
    return posted;
}

/* False: it has not come yet. */
static bool read_letter(nccl_comm comm, const carried *call) {
    letter *found = comm->clique->letters;
    while (found && (found->is_read || found->from != call->peer || found->to != comm->rank)) found = found->next;
    if (!found) return false;
    if (found->call.count != call->count || found->call.type != call->type)
        stand_in_complain("rank %d sends %zu elements, rank %d receives %zu", found->from, found->call.count,
                          comm->rank, call->count);
    else
        memcpy(call->data, found->call.send, call->count * carried_element_bytes(call->type));
    found->is_read = true;
    pthread_cond_broadcast(&stand_in_changed);
    return true;
}

static void take_letter(clique *ranks, letter *taken) {
    letter **link = &ranks->letters;
    while (*link != taken) link = &(*link)->next;
    *link = taken->next;
    free(taken);
}

/* All sends are offered first: those of a group wait for none of its others. */
static void run_messages(void *argument) {
    errand *run = argument;
    nccl_comm comm = run->comm;
    letter *sent[2 * STAND_IN_RANKS] = {NULL};
    stand_in_acquire();
    for (int i = 0; i < run->count; i++)
        if (run->calls[i].kind == CARRY_SEND) sent[i] = post(comm, &run->calls[i]);
    pthread_cond_broadcast(&stand_in_changed);
    for (int i = 0; i < run->count; i++)
        while (run->calls[i].kind == CARRY_RECEIVE && !read_letter(comm, &run->calls[i]) && !comm->is_aborted)
            pthread_cond_wait(&stand_in_changed, &stand_in_lock);
    for (int i = 0; i < run->count; i++) {
        if (!sent[i]) continue;
        while (!sent[i]->is_read && !comm->is_aborted) pthread_cond_wait(&stand_in_changed, &stand_in_lock);
        take_letter(comm->clique, sent[i]);
    }
    end_errand(run);
}

void carry_messages(nccl_comm comm, const carried *calls, int count, cuda_stream stream) {
    plan(comm, calls, count, stream, run_messages);
}

void clique_clear(clique *cleared) {
    while (cleared->meetings) {
        meeting *next = cleared->meetings->next;
        free(cleared->meetings);
        cleared->meetings = next;
    }
}
