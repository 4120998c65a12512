/* solo.c: the backend of a world of one: every operation is done as it starts. No store, no segment, no thread. */
#include "group/backend.h"

#include "base/memory.h"
#include "base/thread.h"

#include <string.h>
#include <unistd.h>

typedef struct solo_memory {
    struct solo_memory *next;
    void *base;
    void *block;
} solo_memory;

typedef struct solo {
    ls_mutex lock; /* one thread may release while another allocates */
    solo_memory *memories;
} solo;

static ls_status solo_open(const backend_place *place, void **state) {
    (void)place;
    solo *alone = ls_alloc(sizeof *alone);
    *state = alone;
    if (!alone) return LS_ERR_MEMORY;
    ls_mutex_init(&alone->lock);
    return LS_OK;
}

static solo_memory *take_out(solo *alone, const void *base) {
    ls_mutex_lock(&alone->lock);
    solo_memory **link = &alone->memories;
    while (*link && (*link)->base != base) link = &(*link)->next;
    solo_memory *found = *link;
    if (found) *link = found->next;
    ls_mutex_unlock(&alone->lock);
    return found;
}

static void solo_release(void *state, void *base) {
    solo_memory *found = take_out(state, base);
    if (!found) return;
    ls_free(found->block);
    ls_free(found);
}

static void solo_close(void *state) {
    solo *alone = state;
    if (!alone) return;
    while (alone->memories) solo_release(alone, alone->memories->base);
    ls_mutex_destroy(&alone->lock);
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
    ls_mutex_lock(&alone->lock);
    memory->next = alone->memories;
    alone->memories = memory;
    ls_mutex_unlock(&alone->lock);
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
