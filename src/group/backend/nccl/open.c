/* open.c: a group opens and closes, and the backend's table. */
#include "group/backend/nccl/state.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"

#include <limits.h>
#include <stdio.h>

/* --- one rank's own ------------------------------------------------------------------------------------------------- */

/* The GPU that the calling thread has chosen; else, of those that the process sees, the one of its place on the host. A group
 * made of another is where that is. */
static ls_status choose_device(nccl_group *nccl, const backend_place *place) {
    int64_t local_rank = place->rank;
    cuda_context current = NULL;
    if (place->parent) {
        nccl->device = ((const nccl_group *)place->parent)->device;
        return LS_OK;
    }
    CUDA_TRY(nccl, current_context(&current), "asking for the current GPU");
    if (current) {
        CUDA_TRY(nccl, current_device(&nccl->device), "asking for the current GPU");
        return LS_OK;
    }
    const ls_status status = ls_env_integer("LOCAL_RANK", 0, INT_MAX, &local_rank);
    if (status != LS_OK && status != LS_END) return status;
    CUDA_TRY(nccl, get_device(&nccl->device, (int)(local_rank % nccl->device_count)), "choosing a GPU");
    return LS_OK;
}

static ls_status open_streams(nccl_group *nccl) {
    CUDA_TRY(nccl, create_stream(&nccl->stream, CUDA_STREAM_IS_NON_BLOCKING), "creating a stream");
    CUDA_TRY(nccl, create_event(&nccl->before, CUDA_EVENT_HAS_NO_TIME), "creating an event");
    CUDA_TRY(nccl, create_event(&nccl->after, CUDA_EVENT_HAS_NO_TIME), "creating an event");
    return nccl_open_stages(nccl);
}

/* Everything that can fail on one rank alone. */
static ls_status prepare(nccl_group *nccl, const backend_place *place) {
    const size_t ranks = (size_t)place->world_size;
    cuda_context context = NULL;
    nccl->records = ls_alloc_array(ranks, sizeof *nccl->records);
    nccl->counts = ls_alloc_array(ranks, sizeof *nccl->counts);
    if (!nccl->records || !nccl->counts) return LS_ERR_MEMORY;
    LS_TRY(read_compares_all_calls(&nccl->checks_calls));
    LS_TRY(nccl_load(nccl));
    LS_TRY(choose_device(nccl, place));
    CUDA_TRY(nccl, retain_context(&context, nccl->device), "opening the GPU");
    nccl->context = context;
    CUDA_TRY(nccl, push_context(context), "making the GPU current");
    const ls_status status = open_streams(nccl);
    nccl->cuda.pop_context(&context);
    return status;
}

static nccl_group *create(const backend_place *place) {
    nccl_group *nccl = ls_alloc(sizeof *nccl);
    if (!nccl) return NULL;
    nccl->group = place->group;
    nccl->store = place->world_size > 1 ? place->store : NULL;
    snprintf(nccl->prefix, sizeof nccl->prefix, "%s", place->prefix);
    nccl->rank = place->rank;
    nccl->world_size = place->world_size;
    ls_mutex_init(&nccl->lock);
    return nccl;
}

/* --- closing -------------------------------------------------------------------------------------------------------- */

/* What was sent may still be on its way when an operation is complete here: ending in order waits for that, but for no
 * peer's call. */
static void end_in_order(nccl_group *nccl) {
    const int64_t deadline_ns = ls_deadline_after_ms(NCCL_LOCAL_LIMIT_MS);
    nccl_result state = NCCL_IN_PROGRESS, result = nccl->nccl.finalize(nccl->comm);
    while ((result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) && state == NCCL_IN_PROGRESS) {
        result = nccl->nccl.get_async_error(nccl->comm, &state);
        if (state != NCCL_IN_PROGRESS) break;
        if (ls_now_ns() >= deadline_ns) return;
        ls_sleep_until(ls_now_ns() + LS_NS_PER_MS / 10);
    }
    if (result != NCCL_SUCCESS || state != NCCL_SUCCESS) return;
    nccl->nccl.destroy(nccl->comm);
    nccl->comm = NULL;
}

static void close_device(nccl_group *nccl) {
    cuda_context none = NULL;
    if (!nccl->context) return;
    nccl->cuda.push_context(nccl->context);
    if (nccl->comm) end_in_order(nccl);
    nccl_abort(nccl); /* what did not end */
    if (nccl->after) nccl_drain(nccl, "closing the group");
    nccl_close_memory(nccl);
    if (nccl->before) nccl->cuda.destroy_event(nccl->before);
    if (nccl->after) nccl->cuda.destroy_event(nccl->after);
    if (nccl->stream) nccl->cuda.destroy_stream(nccl->stream);
    nccl->cuda.pop_context(&none);
    nccl->cuda.release_context(nccl->device);
}

static void nccl_close(void *state) {
    nccl_group *nccl = state;
    if (!nccl) return;
    close_device(nccl);
    ls_mutex_destroy(&nccl->lock);
    ls_free(nccl->records);
    ls_free(nccl->counts);
    ls_free(nccl);
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

static ls_status make_id(const nccl_group *nccl, nccl_unique_id *id) {
    const nccl_result result = nccl->nccl.get_unique_id(id);
    return result == NCCL_SUCCESS ? LS_OK : nccl_failed(nccl, result, "making the ranks' common id");
}

static ls_status connect(nccl_group *nccl, const backend_place *place, const nccl_unique_id *id) {
    cuda_context none = NULL;
    ls_error failure;
    CUDA_TRY(nccl, push_context(nccl->context), "making the GPU current");
    const ls_status status = nccl_connect(nccl, place, id);
    nccl->cuda.pop_context(&none);
    if (status == LS_OK) return LS_OK;
    ls_error_capture(&failure, status);
    nccl_leave(nccl, &failure); /* the others are connecting */
    return ls_error_raise(&failure);
}

static ls_status nccl_open(const backend_place *place, void **state) {
    nccl_unique_id id = {{0}};
    ls_error failure;
    nccl_group *nccl = create(place);
    ls_status status = nccl ? prepare(nccl, place) : LS_ERR_MEMORY;
    if (status == LS_OK && place->rank == 0) status = make_id(nccl, &id);
    status = nccl_meet(place, status, nccl && nccl->checks_calls, &id);
    if (status == LS_OK) status = connect(nccl, place, &id);
    if (status == LS_OK) {
        *state = nccl;
        return LS_OK;
    }
    ls_error_capture(&failure, status);
    nccl_close(nccl);
    return ls_error_raise(&failure);
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

/* The GPU adds; a processor for each rank that polls is taken to be there, none to spare. */
static int nccl_spare_processors(const void *state) {
    (void)state;
    return 0;
}

static void nccl_nothing(void *state) {
    (void)state;
}

const ls_backend nccl_backend = {
    .version = LS_BACKEND_VERSION,
    .name = "nccl",
    .reach = LS_REACH_HOSTS,
    .survives_loss = false,
    .has_device_memory = true,
    .open = nccl_open,
    .close = nccl_close,
    .spare_processors = nccl_spare_processors,
    .allocate = nccl_allocate,
    .release = nccl_release,
    .carries = nccl_carries,
    .check = nccl_check,
    .start = nccl_start,
    .poll = nccl_poll,
    .examine = nccl_examine,
    .describe_missing = nccl_describe_missing,
    .bell = nccl_bell,
    .sleep = nccl_sleep,
    .wake = nccl_wake,
    .nudge = nccl_nothing,
    .leave = nccl_leave,
    .forked = nccl_nothing,
};
