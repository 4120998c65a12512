/* group.c: a group opens, is held by several, is lost, and closes.
 *
 * What belongs to the group of ranks is in the backend's state; what stands here belongs to this rank: handles, the first
 * failure, the list of live groups. A group that is lost stays lost, and says why to every later call.                */
#include "group/group.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/environment.h"
#include "base/memory.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- failure -------------------------------------------------------------------------------------------------------- */

ls_status group_check_thread(const ls_group *group) {
    if (group->drivers != DRIVEN_BY_OPENER || pthread_equal(group->opener, pthread_self())) return LS_OK;
    return ls_fail(LS_ERR_STATE,
                   "rank %d: only the thread that opened this group may use it, since %s allows calls from one thread "
                   "alone; call from that thread",
                   group->rank, group->backend->name);
}

ls_status group_check(ls_group *group) {
    if (atomic_load_explicit(&group->is_forked, memory_order_relaxed))
        return ls_fail(LS_ERR_FORKED,
                       "rank %d: this group was opened before fork and belongs to the parent process; a child opens "
                       "one of its own",
                       group->rank);
    if (atomic_load_explicit(&group->is_lost, memory_order_acquire)) return ls_error_raise(&group->failure);
    return group_check_thread(group);
}

/* Makes this thread's last error the failure, if there is none yet. Release: who sees that the group is lost may read why,
 * without the lock, since it does not change again. */
static bool keep_failure(ls_group *group, ls_status status) {
    ls_mutex_lock(&group->lock);
    const bool is_first = !atomic_load_explicit(&group->is_lost, memory_order_relaxed);
    if (is_first) {
        ls_error_capture(&group->failure, status);
        atomic_store_explicit(&group->is_lost, true, memory_order_release);
    }
    ls_mutex_unlock(&group->lock);
    return is_first;
}

ls_status group_lose(ls_group *group, ls_status status) {
    if (keep_failure(group, status)) {
        if (!group->is_stranger) flight_write(group);
        group->backend->leave(group->state, &group->failure);
        /* Whoever drives sees `is_lost`, ends what is queued, and thereby wakes those who wait for that. */
        group->backend->wake(group->state);
    }
    return ls_error_raise(&group->failure);
}

void ls_group_abort(ls_group *group, const char *reason) {
    if (!group || atomic_load_explicit(&group->is_forked, memory_order_relaxed)) return;
    /* A thread whose wait ends by this may close the group before we are through. */
    atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
    group_enter(group);
    for (int i = 0; i < group->lane_count; i++) ls_group_abort(group->lanes[i], reason);
    group_lose(group, ls_fail(LS_ERR_ABORTED, "rank %d aborted the group: %s", group->rank,
                              reason && *reason ? reason : "no reason was given"));
    group_exit(group);
    group_drop_user(group);
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

/* In a forked child: the group is the parent's. Nothing is freed, since others may have held its locks. */
static void forked(ls_live *self) {
    ls_group *group = LS_LIVE_OWNER(ls_group, self);
    atomic_store_explicit(&group->is_forked, true, memory_order_relaxed);
    group->backend->forked(group->state);
}

ls_group *group_of_live(ls_live *live) {
    return live->forked == forked ? LS_LIVE_OWNER(ls_group, live) : NULL;
}

static void free_group(ls_group *group) {
    work_free_pool(group);
    ls_mutex_destroy(&group->lock);
    ls_store_close(&group->store);
    ls_free(group->agreements);
    ls_free(group->lanes);
    flight_close(&group->flight);
    ls_free(group);
}

/* Acquire and release: who frees the group comes after all that others did with it. */
void group_drop_user(ls_group *group) {
    if (atomic_fetch_sub_explicit(&group->users, 1, memory_order_acq_rel) == 1) free_group(group);
}

ls_group *group_create(const ls_group_options *options, const ls_backend *backend) {
    ls_group *group = ls_alloc(sizeof *group);
    if (!group) return NULL;
    group->backend = backend;
    group->rank = options->rank;
    group->world_size = options->world_size;
    group->timeout_ms = options->timeout_ms ? options->timeout_ms : GROUP_DEFAULT_TIMEOUT_MS;
    group->relaxed_order = options->relaxed_order;
    group->store = options->store ? ls_store_keep(options->store) : NULL;
    group->live.forked = forked;
    group->opener = pthread_self();
    group->holders = 1;
    atomic_init(&group->users, 1);
    ls_mutex_init(&group->lock);
    group->agreements = ls_alloc_array((size_t)group->world_size, sizeof *group->agreements);
    if (group->agreements && flight_open(&group->flight) == LS_OK) return group;
    free_group(group);
    return NULL;
}

/* Lists the group once the backend is open; where that fails the peers are told. */
static ls_status enlist(ls_group *group) {
    const ls_status status = ls_live_enlist(&group->live);
    if (status != LS_OK) {
        ls_fail_within(status, "rank %d", group->rank);
        group_lose(group, status);
        group->backend->close(group->state);
    }
    return status;
}

/* What names a group apart from all others of its ranks: its keys in the store, its file of the flight recorder. */
#define GROUP_PREFIX "lockstep/group/%" PRIu64

ls_status group_open_state(ls_group *group, const char *stale_prefix, const group_origin *origin) {
    const backend_place place = {.group = group,
                                 .store = group->store,
                                 .rank = group->rank,
                                 .world_size = group->world_size,
                                 .prefix = group->prefix,
                                 .stale_prefix = stale_prefix,
                                 .timeout_ms = group->timeout_ms,
                                 .relaxed_order = group->relaxed_order,
                                 .deadline_ns = ls_deadline_after_ms(group->timeout_ms),
                                 .parent = origin ? origin->parent->state : NULL,
                                 .ranks = origin ? origin->ranks : NULL,
                                 .number = origin ? origin->number : 0};
    LS_TRY(group->backend->open(&place, &group->state));
    /* Without a store nobody has counted these ranks' openings. */
    if (group->backend->needs_no_store && !origin)
        snprintf(group->prefix, sizeof group->prefix, GROUP_PREFIX, group->backend->number(group->state));
    if (group->backend->drivers) group->drivers = group->backend->drivers(group->state);
    LS_TRY(enlist(group));
    const int spare = group->backend->spare_processors(group->state);
    group->may_spin = spare >= 0;
    group->progress_may_spin = spare > 0;
    if (group->backend->reach != LS_REACH_SELF) flight_watch(group);
    return LS_OK;
}

/* Every opening of these ranks has keys of its own: each rank counts how often it has opened, and all come to the same
 * number, since an opening that fails on one fails on all. */
static ls_status open_counted(ls_group *group) {
    if (group->world_size == 1 || group->backend->needs_no_store) return group_open_state(group, NULL, NULL);
    char key[LS_STORE_KEY_BYTES], stale_prefix[LS_STORE_KEY_BYTES];
    int64_t count = 0;
    snprintf(key, sizeof key, "lockstep/group/opened/%d", group->rank);
    LS_TRY(ls_store_add(group->store, key, 1, &count));
    snprintf(group->prefix, sizeof group->prefix, GROUP_PREFIX, (uint64_t)count);
    snprintf(stale_prefix, sizeof stale_prefix, GROUP_PREFIX, (uint64_t)count - 1);
    return group_open_state(group, stale_prefix, NULL);
}

static ls_status check_options(const ls_group_options *options, const ls_backend *backend) {
    if (options->world_size < 1 || options->rank < 0 || options->rank >= options->world_size)
        return ls_fail(LS_ERR_ARGUMENT, "cannot open a group: rank %d of %d ranks; a rank is from 0 to world size - 1",
                       options->rank, options->world_size);
    if (options->world_size > 1 && !options->store && !backend->needs_no_store)
        return ls_fail(LS_ERR_ARGUMENT,
                       "cannot open a group of %d ranks without a store: pass store, rank and world_size "
                       "together, or none of them",
                       options->world_size);
    return LS_OK;
}

/* A trace that the environment asks for, unless the program has begun one. */
static ls_status start_trace(bool *owns_trace) {
    const char *folder = ls_env_text("LOCKSTEP_TRACE");
    *owns_trace = false;
    if (!folder || trace_is_on()) return LS_OK;
    LS_TRY(ls_trace_start(folder));
    *owns_trace = true;
    return LS_OK;
}

ls_status group_open_backend(ls_group **group, const ls_group_options *options, const ls_backend *backend) {
    *group = NULL;
    LS_TRY(check_options(options, backend));
    ls_context *context = ls_context_here();
    const ls_context before = *context;
    context->rank = options->rank;
    context->world_size = options->world_size;
    bool owns_trace = false;
    ls_group *opened = NULL;
    ls_status status = start_trace(&owns_trace);
    if (status == LS_OK && !(opened = group_create(options, backend))) status = LS_ERR_MEMORY;
    if (opened) {
        context->deadline_ns = ls_deadline_after_ms(opened->timeout_ms);
        status = open_counted(opened);
        context->deadline_ns = before.deadline_ns;
    }
    if (status == LS_OK) {
        opened->owns_trace = owns_trace;
        *group = opened;
        return LS_OK;
    }
    if (opened) group_drop_user(opened);
    if (owns_trace) ls_trace_stop();
    context->rank = before.rank;
    context->world_size = before.world_size;
    return status;
}

ls_status ls_group_open(ls_group **group, const ls_group_options *options) {
    static const ls_group_options defaults = {0};
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "cannot open a group: the place for its handle is NULL");
    *group = NULL;
    if (options && options->timeout_ms < LS_FOREVER)
        return ls_fail(LS_ERR_ARGUMENT,
                       "cannot open a group: timeout_ms is %" PRId64
                       "; it is 1 or more, 0 for 30 minutes, or LS_FOREVER",
                       options->timeout_ms);
    ls_group_options found;
    const ls_backend *backend = NULL;
    LS_TRY(group_choose(options ? options : &defaults, &found, &backend));
    if (found.rank == 0) ls_env_warn_unknown();
    const ls_status status = group_open_backend(group, &found, backend);
    if (status != LS_OK && (!options || !options->store)) store_settle(found.store);
    ls_store_close(&found.store);
    return status;
}

/* --- closing -------------------------------------------------------------------------------------------------------- */

ls_group *group_keep(ls_group *group) {
    ls_mutex_lock(&group->lock);
    group->holders++;
    ls_mutex_unlock(&group->lock);
    return group;
}

/* Relaxed, and no barrier: who then drives lets go of the driver's flag after it, and who does not makes a barrier before it
 * believes that somebody drives (group_await_driver). Either way closing, which keeps the flag, has the count. */
void group_enter(ls_group *group) {
    atomic_fetch_add_explicit(&group->inside, 1, memory_order_relaxed);
}

void group_exit(ls_group *group) {
    /* Release: what we did in the backend is over before it closes. */
    if (atomic_fetch_sub_explicit(&group->inside, 1, memory_order_release) != 1) return;
    /* Who closes has made the group lost, then looks at the count. */
    ls_full_barrier();
    if (atomic_load_explicit(&group->is_lost, memory_order_relaxed)) ls_word_advance(&group->event);
}

/* The group is lost and nothing is queued: so whoever is inside finds nothing to wait for, and nobody comes after them. */
static void await_empty(ls_group *group) {
    ls_full_barrier();
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&group->event, memory_order_acquire);
        if (!atomic_load_explicit(&group->inside, memory_order_acquire)) return;
        ls_word_wait(&group->event, seen, LS_DEADLINE_NEVER);
    }
}

/* Takes the driver for good, and fails what is still queued: whoever drives sees that the group is lost. */
static void take_over(ls_group *group) {
    while (!group_try_drive(group)) group_await_driver(group, NULL, LS_DEADLINE_NEVER);
    drive_once(group);
}

static void close_for_good(ls_group *group) {
    static const ls_error leaving = {.status = LS_OK};
    mail_see_off(group);
    flight_unwatch(&group->flight);
    /* Later waits of this rank on work of the group end like this; the peers are told that we left. */
    if (keep_failure(group, ls_fail(LS_ERR_ABORTED, "rank %d closed the group", group->rank))) {
        group->backend->leave(group->state, &leaving);
        group->backend->wake(group->state);
    }
    take_over(group);
    progress_stop(group);
    /* From here on nobody new finds it: others.c counts itself inside under this lock. */
    ls_live_lock();
    ls_live_remove(&group->live);
    ls_live_unlock();
    await_empty(group);
    group->backend->close(group->state);
    for (int i = 0; i < group->lane_count; i++) ls_group_close(&group->lanes[i]);
    if (group->owns_trace) ls_trace_stop();
    group_drop_user(group);
}

void ls_group_close(ls_group **group) {
    if (!group || !*group) return;
    ls_group *held = *group;
    *group = NULL;
    if (atomic_load_explicit(&held->is_forked, memory_order_relaxed)) return;
    ls_mutex_lock(&held->lock);
    const bool is_last = --held->holders == 0;
    ls_mutex_unlock(&held->lock);
    if (!is_last) return;
    ls_error last; /* closing is clean-up: the failure that led to it stays this thread's last */
    ls_error_capture(&last, LS_ERR_ABORTED);
    close_for_good(held);
    ls_error_raise(&last);
}

/* --- what a group has ----------------------------------------------------------------------------------------------- */

int ls_group_rank(const ls_group *group) {
    return group->rank;
}

int ls_group_world_size(const ls_group *group) {
    return group->world_size;
}

ls_status ls_group_alloc(ls_group *group, size_t bytes, void **memory) {
    if (!group || !memory)
        return ls_fail(LS_ERR_ARGUMENT, "cannot allocate group memory: the group or the place is NULL");
    *memory = NULL;
    LS_TRY(group_check(group));
    if (group->lanes) return ls_group_alloc(group->lanes[0], bytes, memory);
    LS_TRY(group_claim(group));
    const ls_status status = group->backend->allocate(group->state, bytes, memory);
    group_unclaim(group);
    return status;
}

ls_status group_check_host_memory(const ls_group *group) {
    const ls_backend *backend = group->lanes ? group->lanes[0]->backend : group->backend;
    if (!backend->has_device_memory) return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "rank %d: memory of a group over %s is a GPU's, and gradients are computed on the host: use a group "
                   "over shm, tcp or mpi",
                   group->rank, backend->name);
}

void ls_group_free(ls_group *group, void *memory) {
    if (!group || !memory || atomic_load_explicit(&group->is_forked, memory_order_relaxed)) return;
    if (group->lanes)
        ls_group_free(group->lanes[0], memory);
    else
        group->backend->release(group->state, memory);
}
