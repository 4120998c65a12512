/* op.c: an operation's steps, one after the other, each an operation of a group beneath or work of this rank's own, which is
 * never awaited. All ranks of a group beneath have the same steps on it in the same order; ranks that have no part in a
 * step go on to the next. */
#include "group/backend/hosts/hosts.h"

#include "base/clock.h"
#include "group/backend/shm/shm.h"
#include "group/backend/tcp/tcp.h"
#include "group/group.h"

static const hosts_step *step_of(const hosts_group *hosts) {
    return &hosts->steps.list[hosts->step];
}

/* Whether what `op` does now is a step of ours; else it runs on `whole`. */
static bool is_step(const hosts_group *hosts, const backend_op *op) {
    return !kind_is_message(op->call.kind) && hosts->steps.count > 0;
}

/* The group beneath that `op` waits in, and the operation that waits there. */
static const hosts_part *part_for(const hosts_group *hosts, const backend_op *op) {
    return &hosts->parts[is_step(hosts, op) ? step_of(hosts)->where : HOSTS_WHOLE];
}

static backend_op *inner_of(hosts_group *hosts, backend_op *op) {
    return is_step(hosts, op) ? &hosts->inner : op;
}

static bool is_own_work(const hosts_group *hosts, const backend_op *op) {
    return is_step(hosts, op) && step_of(hosts)->where >= HOSTS_PARTS;
}

static void start_step(hosts_group *hosts, const backend_op *op) {
    const hosts_step *step = step_of(hosts);
    hosts->done = 0;
    if (step->where >= HOSTS_PARTS) return;
    hosts_part *part = &hosts->parts[step->where];
    hosts->inner.call = step->call;
    hosts->inner.number = ++part->number;
    hosts->inner.bytes = call_bytes(&step->call);
    hosts->inner.status = LS_OK;
    hosts->inner.whole = op;
    part->backend->start(part->state, &hosts->inner);
}

/* Steps for what lies behind element `at`. */
static void plan_from(hosts_group *hosts, const backend_op *op, size_t at) {
    hosts->step = 0;
    hosts_plan(&hosts->place, &op->call, hosts->scratch, at, &hosts->steps);
}

static tcp_group *whole_of(const hosts_group *hosts) {
    return hosts->parts[HOSTS_WHOLE].state;
}

void hosts_start(void *state, backend_op *op) {
    hosts_group *hosts = state;
    const hosts_part *whole = &hosts->parts[HOSTS_WHOLE];
    if (!kind_is_message(op->call.kind) && hosts_have_plans(hosts)) plan_from(hosts, op, 0);
    if (is_step(hosts, op)) {
        tcp_lanes_pass(whole_of(hosts), op);
        start_step(hosts, op);
    } else {
        whole->backend->start(whole->state, op);
    }
}

/* How far we have come, which peers are told when we leave, and those of this host look up when they miss us. */
static void say_done(const hosts_group *hosts, const backend_op *op) {
    atomic_store_explicit(&whole_of(hosts)->done, op->number, memory_order_relaxed);
    if (hosts->parts[HOSTS_WITHIN].state) shm_say_done(hosts->parts[HOSTS_WITHIN].state, op->number);
}

/* What came of a step comes of the operation. */
static backend_progress go_on(hosts_group *hosts, backend_op *op, backend_progress progress) {
    if (progress != BACKEND_PENDING) whole_of(hosts)->has_moved = true;
    if (progress == BACKEND_FAILED) op->status = hosts->inner.status;
    if (progress != BACKEND_DONE) return progress;
    if (++hosts->step == hosts->steps.count) {
        if (hosts->steps.next == op->call.count) return BACKEND_DONE;
        plan_from(hosts, op, hosts->steps.next);
    }
    start_step(hosts, op);
    return BACKEND_MOVED;
}

/* What came of a poll beneath. */
static backend_progress take(hosts_group *hosts, backend_op *op, backend_progress progress) {
    if (is_step(hosts, op)) progress = go_on(hosts, op, progress);
    if (progress == BACKEND_DONE && !kind_is_message(op->call.kind)) say_done(hosts, op);
    return progress;
}

backend_progress hosts_poll(void *state, backend_op *op) {
    hosts_group *hosts = state;
    if (is_own_work(hosts, op)) {
        const bool is_done = hosts_work(&hosts->place, step_of(hosts), &hosts->done);
        return take(hosts, op, is_done ? BACKEND_DONE : BACKEND_MOVED);
    }
    const hosts_part *part = part_for(hosts, op);
    return take(hosts, op, part->backend->poll(part->state, inner_of(hosts, op)));
}

/* Who aborts, or finds that another rank is lost, may be none of those that the step waits for. */
ls_status hosts_examine(void *state, backend_op *op) {
    const hosts_part *part = part_for(state, op);
    LS_TRY(part->backend->examine(part->state, inner_of(state, op)));
    return is_step(state, op) ? tcp_heed(whole_of(state), op) : LS_OK;
}

void hosts_describe_missing(void *state, const backend_op *op, char *text, size_t bytes) {
    const hosts_group *hosts = state;
    const hosts_part *part = part_for(hosts, op);
    part->backend->describe_missing(part->state, is_step(hosts, op) ? &hosts->inner : op, text, bytes);
}

uint32_t hosts_bell(void *state) {
    return atomic_load_explicit(&((hosts_group *)state)->bell, memory_order_acquire);
}

/* Sleeps where the step under way waits. The bell beneath is read before ours: who rings, rings ours first. A message comes
 * over `whole`, and rings no bell of a step's: where one is awaited the sleep is short. */
backend_progress hosts_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    hosts_group *hosts = state;
    const hosts_part *part = part_for(hosts, op);
    const uint32_t beneath = part->backend->bell(part->state);
    if (hosts_bell(hosts) != bell) return BACKEND_PENDING;
    const int64_t soon_ns = ls_now_ns() + LS_NS_PER_MS;
    const bool is_short = is_step(hosts, op) && group_has_mail(hosts->group) && soon_ns < deadline_ns;
    const int64_t until_ns = is_short ? soon_ns : deadline_ns;
    return take(hosts, op, part->backend->sleep(part->state, inner_of(hosts, op), beneath, until_ns));
}

void hosts_wake(void *state) {
    hosts_group *hosts = state;
    atomic_fetch_add_explicit(&hosts->bell, 1, memory_order_release);
    for (int i = 0; i < HOSTS_PARTS; i++)
        if (hosts->parts[i].state) hosts->parts[i].backend->wake(hosts->parts[i].state);
}
