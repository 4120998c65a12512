/* drive.c: running operations. `poll` of a backend never waits; here is where we wait for peers: a few polls, then spinning
 * (with a turn for others between two polls where ranks share processors), then sleeping in slices, between which we look
 * whether those we wait for are alive. */
#include "group/group.h"

#include "base/clock.h"
#include "group/describe.h"

#include <inttypes.h>

/* Polls before anything else is done: a peer that is in step answers within them. */
#define QUICK_POLLS 200
/* The same where ranks share processors: what we wait for is more likely done by one that waits for ours. */
#define QUICK_SHARED_POLLS 4
/* Clock readings, at most, between two polls while we spin. */
#define POLLS_PER_LOOK 16
/* How long we spin: about as long as the operation's own work takes, since ranks that are in step are apart by no more. */
#define SPIN_NS INT64_C(100000)
#define SPIN_BYTES_PER_NS 8
#define LONGEST_SPIN_NS (5 * LS_NS_PER_MS)
#define SLICE_NS (20 * LS_NS_PER_MS)

/* How long nothing has moved. */
typedef struct wait_state {
    uint32_t polls;
    int64_t since_ns; /* 0: the clock was not read yet */
} wait_state;

/* Release: the next driver sees all that we did. Then each side makes a barrier between its own word and the look at the
 * other's: we let go, then look who waits (group_await_driver) and who sleeps (a peer, in the backend), so that nobody sleeps
 * on what has happened already. Whoever drives next may be closing the group: it waits for us, as far as we are `inside`. */
void group_stop_driving(ls_group *group) {
    LS_ASSERT_DRIVER(group);
    atomic_store_explicit(&group->driver, 0, memory_order_release);
    ls_full_barrier();
    if (atomic_load_explicit(&group->waiters, memory_order_relaxed)) ls_word_advance(&group->event);
    group->backend->nudge(group->state);
}

/* The other side of that: we count ourselves, then look. `event` is read before we look: if it moves from then on, we do not
 * sleep. No wake is left to the slice; it bounds what a fault of ours would cost. */
void group_await_driver(ls_group *group, const ls_work *work, int64_t deadline_ns) {
    atomic_fetch_add(&group->waiters, 1);
    ls_full_barrier();
    const uint32_t seen = atomic_load_explicit(&group->event, memory_order_acquire);
    if (!(work && work_is_complete(work)) && atomic_load(&group->driver)) {
        /* The progress thread hands over: it may be asleep. */
        group->backend->wake(group->state);
        const int64_t slice_ns = ls_now_ns() + SLICE_NS;
        ls_word_wait(&group->event, seen, slice_ns < deadline_ns ? slice_ns : deadline_ns);
    }
    atomic_fetch_sub(&group->waiters, 1);
}

backend_progress drive_poll(ls_group *group, backend_op *op) {
    const backend_progress progress = group->backend->poll(group->state, op);
    if (progress == BACKEND_FAILED) group_lose(group, op->status);
    return progress;
}

/* `status` says why the operation cannot end; but what a rank did before it left or died counts. */
static backend_progress judge(ls_group *group, backend_op *op, ls_status status) {
    ls_error why;
    ls_error_capture(&why, status);
    const backend_progress progress = drive_poll(group, op);
    if (progress != BACKEND_PENDING) return progress;
    group_lose(group, ls_error_raise(&why));
    return BACKEND_FAILED;
}

static ls_status time_limit_reached(ls_group *group, const backend_op *op) {
    char missing[512], call[CALL_TEXT_BYTES + 32];
    group->backend->describe_missing(group->state, op, missing, sizeof missing);
    return ls_fail(LS_ERR_ABORTED,
                   "%s, was not complete within %" PRId64
                   " ms; missing: %s; the group is aborted: see what these ranks do, or raise timeout_ms",
                   op_describe(op, call), group->timeout_ms, missing);
}

static int64_t limit_of(const ls_group *group, const backend_op *op) {
    /* As ls_deadline_after_ms: a limit of centuries is none. */
    if (group->timeout_ms < 0 || group->timeout_ms > INT64_MAX / LS_NS_PER_MS / 2) return LS_DEADLINE_NEVER;
    return op->start_ns + group->timeout_ms * LS_NS_PER_MS;
}

static int64_t earliest(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t spin_ns_for(const backend_op *op) {
    return earliest(SPIN_NS + (int64_t)(op->bytes / SPIN_BYTES_PER_NS), LONGEST_SPIN_NS);
}

/* Whether messages can still come, and in time. MOVED when one was, after all. */
static backend_progress examine_mail(ls_group *group, int64_t now_ns) {
    const backend_progress progress = mail_poll(group);
    if (progress != BACKEND_PENDING) return progress;
    for (ls_work *work = group->mail; work; work = work->next) {
        const ls_status status = now_ns >= limit_of(group, &work->op)
                                     ? time_limit_reached(group, &work->op)
                                     : group->backend->examine(group->state, &work->op);
        if (status == LS_OK) continue;
        ls_error why;
        ls_error_capture(&why, status);
        /* What a rank did before it left or died counts. */
        if (mail_poll(group) == BACKEND_MOVED) return BACKEND_MOVED;
        group_lose(group, ls_error_raise(&why));
        return BACKEND_FAILED;
    }
    return BACKEND_PENDING;
}

/* Nothing moved for some polls: wait a little, in the way that fits how long it has been. */
static backend_progress wait_a_little(ls_group *group, backend_op *op, wait_state *waited, bool yields,
                                      int64_t deadline_ns) {
    if (atomic_load_explicit(&group->is_lost, memory_order_acquire)) return BACKEND_FAILED;
    const int64_t now_ns = ls_now_ns();
    if (!waited->since_ns) {
        waited->since_ns = now_ns;
        if (!op->start_ns) {
            op->start_ns = now_ns;
            flight_started(&group->flight, op->record, now_ns);
        }
        /* What we published may be what a sleeping peer waits for. */
        ls_full_barrier();
        group->backend->nudge(group->state);
    }
    /* The progress thread would spin on the processor that computes. */
    const bool may_spin = !yields || group->progress_may_spin;
    if (may_spin && now_ns - waited->since_ns < spin_ns_for(op)) return BACKEND_PENDING;

    if (now_ns >= limit_of(group, op)) return judge(group, op, time_limit_reached(group, op));
    const uint32_t bell = group->backend->bell(group->state);
    /* After the bell was read: a message rings it. */
    if (group_has_mail(group)) {
        const backend_progress progress = examine_mail(group, now_ns);
        if (progress != BACKEND_PENDING) return progress;
    }
    /* So does a collective that was posted while we wait for a message: it begins first. */
    if (kind_is_message(op->call.kind) && atomic_load_explicit(&group->first, memory_order_acquire))
        return BACKEND_PENDING;
    const ls_status status = group->backend->examine(group->state, op);
    if (status != LS_OK) return judge(group, op, status);
    /* And who loses the group, or (of the progress thread) wants to drive: all look after the bell was read. */
    if (atomic_load_explicit(&group->is_lost, memory_order_acquire)) return BACKEND_FAILED;
    if (yields && atomic_load(&group->waiters)) return BACKEND_PENDING;
    /* Their peers ring bells of their own: so the sleep is short. */
    const int64_t slice_ns = !yields && group_poll_others(group) ? LS_NS_PER_MS : SLICE_NS;
    const int64_t until_ns = earliest(now_ns + slice_ns, earliest(deadline_ns, limit_of(group, op)));
    const backend_progress progress = group->backend->sleep(group->state, op, bell, until_ns);
    if (progress == BACKEND_FAILED) group_lose(group, op->status);
    return progress;
}

/* A poll was in vain. */
static backend_progress pause_or_wait(ls_group *group, backend_op *op, wait_state *waited, bool yields,
                                      int64_t deadline_ns) {
    const uint32_t quick = group->may_spin ? QUICK_POLLS : QUICK_SHARED_POLLS;
    if (++waited->polls >= quick && waited->polls % POLLS_PER_LOOK == 0)
        return wait_a_little(group, op, waited, yields, deadline_ns);
    if (waited->polls >= quick && !group->may_spin)
        ls_yield();
    else
        ls_spin_hint();
    return BACKEND_PENDING;
}

/* One poll, and the waiting that it calls for. `yields`: the driver is the progress thread. */
static backend_progress step(ls_group *group, backend_op *op, wait_state *waited, bool yields, int64_t deadline_ns) {
    if (group_has_mail(group) && mail_poll(group) == BACKEND_MOVED) *waited = (wait_state){0};
    backend_progress progress = drive_poll(group, op);
    if (progress == BACKEND_PENDING) progress = pause_or_wait(group, op, waited, yields, deadline_ns);
    if (progress == BACKEND_MOVED) *waited = (wait_state){0};
    return progress;
}

/* The same where there is no collective, but messages. */
static backend_progress step_mail(ls_group *group, wait_state *waited, bool yields, int64_t deadline_ns) {
    backend_progress progress = mail_poll(group);
    if (progress == BACKEND_PENDING && group->mail)
        progress = pause_or_wait(group, &group->mail->op, waited, yields, deadline_ns);
    if (progress == BACKEND_DONE) mail_complete(&group->mail, LS_OK);
    if (progress == BACKEND_MOVED || progress == BACKEND_DONE) *waited = (wait_state){0};
    return progress;
}

ls_status drive_alone(ls_group *group, backend_op *op) {
    LS_ASSERT_DRIVER(group);
    op->number = ++group->launched;
    group->backend->start(group->state, op);
    op->record = flight_begin(&group->flight, op, 0); /* while our part travels */
    wait_state waited = {0};
    backend_progress progress = BACKEND_PENDING;
    while (progress != BACKEND_DONE && progress != BACKEND_FAILED)
        progress = step(group, op, &waited, false, LS_DEADLINE_NEVER);
    flight_end(&group->flight, op->record, op->start_ns, 0, progress == BACKEND_DONE);
    return progress == BACKEND_DONE ? LS_OK : ls_error_raise(&group->failure);
}

/* The operation at the head of the queue, started by whoever drives first, gone on with by the next; NULL: there is none. */
static ls_work *head(ls_group *group) {
    LS_ASSERT_DRIVER(group);
    if (group->current) return group->current;
    ls_work *work = atomic_load_explicit(&group->first, memory_order_acquire);
    if (!work) return NULL;
    work_begin(work, ++group->launched);
    group->current = work;
    return work;
}

/* The group is lost: what is queued is not started any more. */
static void fail_queue(ls_group *group) {
    ls_work *work = NULL;
    while ((work = atomic_load_explicit(&group->first, memory_order_acquire)))
        work_complete(work, group->failure.status);
    mail_fail(group);
}

bool drive_queue(ls_group *group, const ls_work *until, int64_t deadline_ns) {
    wait_state waited = {0};
    for (;;) {
        /* The progress thread makes way for who waits to drive: it sees them here or, before it sleeps, in wait_a_little. */
        if (until ? work_is_complete(until) : atomic_load(&group->waiters) > 0) return true;
        if (atomic_load_explicit(&group->is_lost, memory_order_acquire)) {
            fail_queue(group);
            return true;
        }
        ls_work *work = head(group);
        if (!work && !group_has_mail(group)) return true;
        /* Messages are polled beside a collective; by themselves they are waited for in the name of the first. */
        const backend_progress progress = work ? step(group, &work->op, &waited, until == NULL, deadline_ns)
                                               : step_mail(group, &waited, until == NULL, deadline_ns);
        if (work && progress == BACKEND_DONE) {
            work_complete(work, LS_OK);
            waited = (wait_state){0};
        }
        /* The clock is read when it has to be: after work was done, or in a wait. */
        if (deadline_ns != LS_DEADLINE_NEVER && (progress == BACKEND_MOVED || waited.since_ns) &&
            ls_now_ns() >= deadline_ns)
            return false;
    }
}

void drive_once(ls_group *group) {
    if (atomic_load_explicit(&group->is_lost, memory_order_acquire)) {
        fail_queue(group);
        return;
    }
    if (group_has_mail(group)) mail_poll(group);
    ls_work *work = head(group);
    if (work && drive_poll(group, &work->op) == BACKEND_DONE) work_complete(work, LS_OK);
}

bool drive_unless_driven(ls_group *group) {
    if (!atomic_load_explicit(&group->first, memory_order_acquire) && !group_has_mail(group)) return true;
    if (!group_try_drive(group)) return false;
    drive_once(group);
    group_stop_driving(group);
    return true;
}

void ls_group_progress(ls_group *group) {
    if (!group || atomic_load_explicit(&group->is_forked, memory_order_relaxed)) return;
    for (int i = 0; i < group->lane_count; i++) ls_group_progress(group->lanes[i]);
    if (group_check_thread(group) == LS_OK) drive_unless_driven(group);
}
