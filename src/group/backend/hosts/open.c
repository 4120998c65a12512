/* open.c: a group over several hosts opens and closes; its memory; and the backend's table. */
#include "group/backend/hosts/hosts.h"

#include "base/clock.h"
#include "base/memory.h"
#include "group/backend/tcp/cards.h"
#include "group/backend/tcp/tcp.h"
#include "group/group.h"

#include <inttypes.h>
#include <stdio.h>

#define SLICE_NS (20 * LS_NS_PER_MS)

/* --- who is where ------------------------------------------------------------------------------------------------- */

static void take_place(hosts_group *hosts, const int *host_of, int rank) {
    hosts_place *place = &hosts->place;
    place->host_of = host_of;
    place->host = host_of[rank];
    place->lanes = place->world_size;
    for (int i = 0; i < place->world_size; i++)
        if (host_of[i] >= place->host_count) place->host_count = host_of[i] + 1;
    for (int host = 0; host < place->host_count; host++) {
        int size = 0;
        for (int i = 0; i < place->world_size; i++)
            if (host_of[i] == host) place->index_of[i] = size++;
        if (host == place->host) place->local_size = size;
        if (size < place->lanes) place->lanes = size;
        if (size > place->largest) place->largest = size;
    }
    place->index = place->index_of[rank];
}

static bool shares_hosts(const hosts_place *place) {
    return place->host_count > 1 && place->host_count < place->world_size;
}

/* Which ranks of the group those of `within` and of the lane are. */
static void name_ranks(hosts_group *hosts) {
    const hosts_place *place = &hosts->place;
    for (int rank = 0; rank < place->world_size; rank++) {
        if (place->host_of[rank] == place->host) hosts->within_names[place->index_of[rank]] = rank;
        if (place->index_of[rank] == place->index) hosts->lane_names[place->host_of[rank]] = rank;
    }
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void hosts_close(void *state) {
    hosts_group *hosts = state;
    if (!hosts) return;
    for (int i = 0; i < HOSTS_PARTS; i++)
        if (hosts->parts[i].state) hosts->parts[i].backend->close(hosts->parts[i].state);
    ls_free(hosts->scratch);
    ls_free(hosts->place.index_of);
    ls_free(hosts);
}

static ls_status prepare(const backend_place *place, hosts_group **state) {
    hosts_group *hosts = *state = ls_alloc(sizeof *hosts);
    if (!hosts) return LS_ERR_MEMORY;
    hosts->parts[HOSTS_WHOLE].backend = hosts->parts[HOSTS_LANE].backend = &tcp_backend;
    hosts->parts[HOSTS_WITHIN].backend = &shm_backend;
    hosts->group = place->group;
    /* Three tables in one. */
    const size_t world_size = (size_t)place->world_size;
    int *tables = ls_alloc_array(3 * world_size, sizeof *tables);
    if (!tables) return LS_ERR_MEMORY;
    hosts->place = (hosts_place){.world_size = place->world_size, .index_of = tables};
    hosts->within_names = tables + world_size;
    hosts->lane_names = tables + 2 * world_size;
    /* Takes no memory until a plan touches it. */
    hosts->scratch = ls_alloc_raw(2 * HOSTS_HALF_BYTES);
    return hosts->scratch ? LS_OK : LS_ERR_MEMORY;
}

#define PREFIX_BYTES (LS_STORE_KEY_BYTES / 2)

/* Where a group beneath opens: some of the ranks, under keys of their own. */
typedef struct beneath {
    backend_place place;
    char prefix[PREFIX_BYTES], stale[PREFIX_BYTES];
} beneath;

static ls_status place_beneath(beneath *made, const backend_place *place, const char *kind, int number,
                               const int *names, int rank, int world_size) {
    const char *former = place->stale_prefix ? place->stale_prefix : "";
    if ((size_t)snprintf(made->prefix, PREFIX_BYTES, "%s/%s%d", place->prefix, kind, number) >= PREFIX_BYTES ||
        (size_t)snprintf(made->stale, PREFIX_BYTES, "%s/%s%d", former, kind, number) >= PREFIX_BYTES)
        return ls_fail(LS_ERR_STATE, "a group made of a group, too many times over");
    made->place = *place;
    made->place.prefix = made->prefix;
    made->place.stale_prefix = place->stale_prefix ? made->stale : NULL;
    made->place.names = names;
    made->place.rank = rank;
    made->place.world_size = world_size;
    made->place.parent = NULL;
    made->place.ranks = NULL;
    return LS_OK;
}

/* Where the ranks of one host fail together, their peers on the lanes must not wait for them. */
static ls_status open_within_and_lane(hosts_group *hosts, const backend_place *place) {
    const hosts_place *own = &hosts->place;
    hosts_part *parts = hosts->parts;
    beneath within = {0}, lane = {0};
    name_ranks(hosts);
    LS_TRY(place_beneath(&within, place, "host", own->host, hosts->within_names, own->index, own->local_size));
    LS_TRY(place_beneath(&lane, place, "lane", own->index, hosts->lane_names, own->host, own->host_count));
    const ls_status status = own->local_size > 1 ? shm_backend.open(&within.place, &parts[HOSTS_WITHIN].state) : LS_OK;
    if (own->index >= own->lanes) return status;
    if (status != LS_OK) return tcp_cards_withdraw(&lane.place, status);
    return tcp_backend.open(&lane.place, &parts[HOSTS_LANE].state);
}

/* Runs an operation of all ranks to its end, before there is a group to drive it. */
static ls_status run(const hosts_part *part, backend_op *op, const backend_place *place) {
    part->backend->start(part->state, op);
    for (;;) {
        const uint32_t bell = part->backend->bell(part->state);
        const backend_progress progress = part->backend->poll(part->state, op);
        if (progress == BACKEND_DONE) return LS_OK;
        if (progress == BACKEND_FAILED) return op->status;
        if (progress == BACKEND_MOVED) continue;
        LS_TRY(part->backend->examine(part->state, op));
        if (ls_now_ns() >= place->deadline_ns) {
            char missing[512];
            part->backend->describe_missing(part->state, op, missing, sizeof missing);
            return ls_fail(LS_ERR_TIMEOUT, "the group was not open within %" PRId64 " ms; missing: %s",
                           place->timeout_ms, missing);
        }
        const int64_t slice_ns = ls_now_ns() + SLICE_NS;
        if (part->backend->sleep(part->state, op, bell, slice_ns) == BACKEND_FAILED) return op->status;
    }
}

/* All ranks are open, or the peers of one that is not have been told. Among few ranks an all-gather hears from each itself, a
 * barrier from its neighbours alone: at the limit one that only waits would be named. It has number 0: the group begins with 1. */
static ls_status await_all(hosts_group *hosts, const backend_place *place) {
    const char here = 1;
    char *all = ls_alloc((size_t)place->world_size);
    if (!all) return LS_ERR_MEMORY;
    const group_call call = {.kind = GROUP_ALL_GATHER, .dtype = LS_U8, .count = 1, .send = &here, .data = all};
    backend_op op = {.call = call, .bytes = 1};
    const ls_status status = run(&hosts->parts[HOSTS_WHOLE], &op, place);
    ls_free(all);
    return status;
}

static ls_status open_parts(hosts_group *hosts, const backend_place *place) {
    LS_TRY(tcp_backend.open(place, &hosts->parts[HOSTS_WHOLE].state));
    const tcp_group *tcp = hosts->parts[HOSTS_WHOLE].state;
    take_place(hosts, tcp->host_of, place->rank);
    if (!shares_hosts(&hosts->place) || tcp->checks_calls) return LS_OK;
    LS_TRY(open_within_and_lane(hosts, place));
    return await_all(hosts, place);
}

static void hosts_leave(void *state, const ls_error *why) {
    const hosts_group *hosts = state;
    for (int i = 0; i < HOSTS_PARTS; i++)
        if (hosts->parts[i].state) hosts->parts[i].backend->leave(hosts->parts[i].state, why);
}

static ls_status hosts_open(const backend_place *place, void **state) {
    hosts_group *hosts = NULL;
    ls_status status = prepare(place, &hosts);
    if (status != LS_OK) {
        hosts_close(hosts);
        ls_fail_within(status, "rank %d", place->rank);
        return tcp_cards_withdraw(place, status);
    }
    status = open_parts(hosts, place);
    if (status != LS_OK) {
        ls_error why;
        ls_error_capture(&why, status);
        hosts_leave(hosts, &why);
        hosts_close(hosts);
        return ls_error_raise(&why);
    }
    *state = hosts;
    return LS_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static const hosts_part *memory_part(const hosts_group *hosts) {
    const hosts_part *within = &hosts->parts[HOSTS_WITHIN];
    return within->state ? within : &hosts->parts[HOSTS_WHOLE];
}

static void hosts_release(void *state, void *memory) {
    const hosts_part *part = memory_part(state);
    part->backend->release(part->state, memory);
}

/* Where it is shared, it is shared within the host; whether all hosts have it they tell each other. What became of it within
 * the host has been agreed on already, or names who failed; all ranks come to the second agreement whatever it is. */
static ls_status hosts_allocate(void *state, size_t bytes, void **memory) {
    hosts_group *hosts = state;
    const hosts_part *part = memory_part(hosts);
    ls_status status = part->backend->allocate(part->state, bytes, memory);
    if (!hosts_have_plans(hosts)) return status;
    uint64_t number = 0;
    status = group_agree_as_said(hosts->group, GROUP_ALLOCATE, bytes, status, &number);
    if (status != LS_OK && *memory) hosts_release(hosts, *memory);
    if (status != LS_OK) *memory = NULL;
    return status;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static int hosts_spare_processors(const void *state) {
    const hosts_part *whole = &((const hosts_group *)state)->parts[HOSTS_WHOLE];
    return whole->backend->spare_processors(whole->state);
}

static void hosts_nudge(void *state) {
    const hosts_group *hosts = state;
    for (int i = 0; i < HOSTS_PARTS; i++)
        if (hosts->parts[i].state) hosts->parts[i].backend->nudge(hosts->parts[i].state);
}

static void hosts_forked(void *state) {
    const hosts_group *hosts = state;
    for (int i = 0; i < HOSTS_PARTS; i++)
        if (hosts->parts[i].state) hosts->parts[i].backend->forked(hosts->parts[i].state);
}

const ls_backend hosts_backend = {
    .version = LS_BACKEND_VERSION,
    .name = "tcp",
    .reach = LS_REACH_HOSTS,
    .survives_loss = true,
    .open = hosts_open,
    .close = hosts_close,
    .spare_processors = hosts_spare_processors,
    .allocate = hosts_allocate,
    .release = hosts_release,
    .start = hosts_start,
    .poll = hosts_poll,
    .examine = hosts_examine,
    .describe_missing = hosts_describe_missing,
    .bell = hosts_bell,
    .sleep = hosts_sleep,
    .wake = hosts_wake,
    .nudge = hosts_nudge,
    .leave = hosts_leave,
    .forked = hosts_forked,
};
