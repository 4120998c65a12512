/* solo.c: the backend of a world of one: every operation is done as it starts. No store, no segment, no thread. */
#include "group/backend.h"

#include "base/memory.h"

#include <string.h>
#include <unistd.h>

typedef struct solo_memory {
    struct solo_memory *next;
    void *base;
    void *block;
} solo_memory;

typedef struct solo {
    solo_memory *memories; /* one thread allocates at a time (group_claim) */
} solo;

static ls_status solo_open(const backend_place *place, void **state) {
    (void)place;
    *state = ls_alloc(sizeof(solo));
    return *state ? LS_OK : LS_ERR_MEMORY;
}

static void solo_release(void *state, void *base) {
    for (solo_memory **link = &((solo *)state)->memories; *link; link = &(*link)->next) {
        if ((*link)->base != base) continue;
        solo_memory *found = *link;
        *link = found->next;
        ls_free(found->block);
        ls_free(found);
        return;
    }
}

static void solo_close(void *state) {
    solo *alone = state;
    if (!alone) return;
    while (alone->memories) solo_release(alone, alone->memories->base);
    ls_free(alone);
}

static int solo_spare_processors(const void *state) {
    (void)state;
    return 0;
}

static ls_status solo_allocate(void *state, size_t bytes, void **base) {
    solo *alone = state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    solo_memory *memory = ls_alloc(sizeof *memory);
    if (!memory) return LS_ERR_MEMORY;
    memory->block = ls_alloc(bytes + page < bytes ? SIZE_MAX : bytes + page);
    if (!memory->block) {
        ls_free(memory);
        return LS_ERR_MEMORY;
    }
    memory->base = (char *)memory->block + (page - (uintptr_t)memory->block % page) % page;
    memory->next = alone->memories;
    alone->memories = memory;
    *base = memory->base;
    return LS_OK;
}

/* Whatever is sent comes back. */
static void solo_start(void *state, backend_op *op) {
    (void)state;
    const group_call *call = &op->call;
    const size_t bytes =
        call->kind == GROUP_ALL_TO_ALL_UNEVEN ? call->send_counts[0] * ls_dtype_size(call->dtype) : op->bytes;
    if (call->send && bytes && call->data != call->send) memcpy(call->data, call->send, bytes);
}

static backend_progress solo_poll(void *state, backend_op *op) {
    (void)state;
    (void)op;
    return BACKEND_DONE;
}

static void solo_nothing(void *state) {
    (void)state;
}

static void solo_leave(void *state, const ls_error *why) {
    (void)state;
    (void)why;
}

const ls_backend solo_backend = {
    .version = LS_BACKEND_VERSION,
    .name = "solo",
    .reach = LS_REACH_SELF,
    .survives_loss = false,
    .open = solo_open,
    .close = solo_close,
    .spare_processors = solo_spare_processors,
    .allocate = solo_allocate,
    .release = solo_release,
    .start = solo_start,
    .poll = solo_poll,
    .wake = solo_nothing,
    .nudge = solo_nothing,
    .leave = solo_leave,
    .forked = solo_nothing,
};
