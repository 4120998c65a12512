/* group.h: a group from inside: one queue, one driver at a time.
 *
 * Whoever holds `driver` runs operations: a thread that waits or blocks, one that polls, else the progress thread, which
 * takes over when nobody has driven for a moment and hands over to whoever waits. A blocking call on a group whose queue
 * is empty runs its operation from the caller's stack, without a lock, a clock or an allocation (post.c).
 *
 *   lock       guards the queue's order and its tail, `mail_posted`, `pool`, `failure`, `holders`; never held across a wait,
 *              and innermost (flight.writing comes before it): nothing else is locked under it but to start the progress
 *              thread
 *   driver     1 while someone drives (acquire to take, release to let go); `waiters` counts those who sleep on `event` until
 *              the driver stops or completes something. Who drives looks at them after a full barrier, as they look at the
 *              driver after theirs: so one sees the other.
 *   under the driver    launched, current, mail, flight's operations; functions that need it assert LS_ASSERT_DRIVER
 *   first      written under lock, each work whole before it (release); read by all (acquire)
 *   is_lost    set once, after `failure`; read by all (acquire)
 *   posted     as `event`, of the progress thread, which says in `progress_sleeps` that somebody has to advance it
 *   fixed before the group is handed out    backend, state, rank, world_size, store, prefix, timeout_ms,
 *              relaxed_order, may_spin, drivers, opener
 *
 * Closing: the last handle's thread joins the recorder's watcher, makes the group lost, takes the driver for good, fails what is
 * queued, joins the progress thread and waits until nobody is `inside`; then the backend closes. The memory stays until the last
 * of `users` lets go.
 *
 * No wait in here is for another thread of ours that waits for us: who sleeps holds no lock, and the driver, when it sleeps, is
 * woken by its peers, by who wants to drive (`wake`), and by what is posted for it. tests/models walks every interleaving. */
#ifndef LS_GROUP_GROUP_H
#define LS_GROUP_GROUP_H

#include "base/error.h"
#include "base/live.h"
#include "base/thread.h"
#include "base/wait.h"
#include "group/backend.h"
#include "group/flight.h"

#define GROUP_DEFAULT_TIMEOUT_MS (INT64_C(30) * 60 * 1000)

/* An operation that somebody may wait for. Goes back to its group's pool when it is complete and let go. */
struct ls_work {
    backend_op op;
    ls_group *group;
    size_t *counts; /* that the call refers to; NULL: none */
    ls_work *next;  /* in the queue or the pool: the group's lock */
    int64_t posted_ns;
    _Atomic bool is_begun;    /* by the driver */
    int64_t end_ns;           /* before `is_complete` */
    ls_status status;         /* before `is_complete` */
    _Atomic bool is_complete; /* release, after the fields above */
    _Atomic int holders;      /* the queue until it is complete, and the user's handle */
};

struct ls_group {
    const ls_backend *backend;
    void *state;
    int rank, world_size;
    int64_t timeout_ms;
    bool relaxed_order;
    bool may_spin;          /* the host has a processor for every rank */
    bool progress_may_spin; /* and one to spare */
    bool owns_trace;
    bool is_stranger; /* this rank is no member: lost from the beginning */
    ls_group **lanes; /* a round-robin group's, each held; NULL: it is none */
    int lane_count;   /* fixed with `lanes` */
    backend_drivers drivers;
    pthread_t opener;
    ls_store *store;
    char prefix[LS_STORE_KEY_BYTES / 2];
    ls_live live;

    /* What every call touches, apart from what other threads write. */
    _Alignas(64) _Atomic uint32_t driver;
    _Atomic bool is_lost;
    _Atomic bool is_forked;   /* this process is a child of the one that opened the group */
    _Atomic(ls_work *) first; /* the queue's head: changed under lock, read by all */
    _Atomic int waiters;
    uint64_t launched;
    ls_work *current;       /* the head, once it is started */
    _Atomic uint64_t turns; /* how often someone began to drive: written by the driver, read by the progress thread */

    _Alignas(64) ls_word event;
    ls_mutex lock;
    ls_work *tail;
    ls_work *pool;
    ls_error failure;
    int holders;       /* handles; the group closes with the last */
    _Atomic int users; /* 1 for all handles, and 1 for each work handed out: the memory goes with the last */
    /* Calls that may be in the backend though they neither drive nor have a handle that nobody closes meanwhile: waits for
     * work, polls from another group, aborts. Closing waits until there is none. */
    _Atomic int inside;
    _Atomic clockid_t poster; /* the processor time of the thread that posted last */

    ls_work *mail_posted;   /* messages not begun yet: the lock */
    ls_work *mail;          /* begun: the driver's */
    _Atomic int mail_count; /* both */
    _Atomic int sends;      /* of both, those that this rank sends */

    flight_recorder flight; /* operations are written by the driver */

    _Atomic uint64_t next_lane;
    _Atomic uint64_t monitored; /* barriers so far, the same on all ranks */

    ls_thread progress;
    ls_word posted; /* wakes the progress thread */
    _Atomic bool progress_sleeps, is_closing;

    _Atomic bool is_claimed;     /* by a thread that sets up something with the other ranks (agree.c) */
    uint64_t agreed;             /* under is_claimed: how often, the same on all ranks */
    group_agreement *agreements; /* [world_size], under is_claimed */
};

#ifdef NDEBUG
#define LS_ASSERT_DRIVER(group) ((void)0)
#else
#define LS_ASSERT_DRIVER(group) assert(atomic_load(&(group)->driver) != 0)
#endif

/* group.c: makes this thread's last error, under `status`, the group's failure, unless it has one; tells all who wait and all
 * peers. Any thread. Returns the group's failure as group_check does. */
ls_status group_lose(ls_group *group, ls_status status);
/* Fails with the group's failure when it is lost, with LS_ERR_FORKED in a child, with LS_ERR_STATE on a thread that may not
 * drive it. */
ls_status group_check(ls_group *group);
ls_status group_check_thread(const ls_group *group);
void group_drop_user(ls_group *group);
/* Around what may still be under way when another thread closes the group; the caller holds its memory. Who has entered looks
 * once more whether the group has something for it, before it goes on. */
void group_enter(ls_group *group);
void group_exit(ls_group *group);
/* The group that is listed there; NULL: it is something else. */
ls_group *group_of_live(ls_live *live);
/* others.c: polls what calls alone drive, besides `waiting`. Returns whether there was such a group. */
bool group_poll_others(const ls_group *waiting);
/* What a group is made of; the fields as in backend_place. */
typedef struct group_origin {
    const ls_group *parent;
    const int *ranks;
    uint64_t number;
} group_origin;

/* A group without a state; NULL: memory was refused. Then its state is opened, and it is listed; `origin` NULL: it is made of
 * no other. On error the caller drops it. */
ls_group *group_create(const ls_group_options *options, const ls_backend *backend);
ls_status group_open_state(ls_group *group, const char *stale_prefix, const group_origin *origin);
/* related.c: the group that carries the next operation: itself, or of several taken in turn the next. */
ls_group *group_next_lane(ls_group *group);

/* agree.c: around all that one thread sets up with the other ranks, which may be several operations. Fails with LS_ERR_STATE
 * where another thread of this rank is at that. */
ls_status group_claim(ls_group *group);
void group_unclaim(ls_group *group);

/* post.c: posts a call that was checked, and waits. */
ls_status group_run(ls_group *group, const group_call *call);
/* The steps of posting: a call is checked; whoever drives when nobody waits is there; what was appended, a chain, is begun, and
 * its last work, held, becomes the caller's, or is waited for (`work` NULL). */
ls_status post_check(const ls_group *group, const group_call *call);
ls_status post_prepare(ls_group *group);
ls_status post_begin(ls_group *group, const ls_work *first, ls_work *last, ls_work **work);

/* work.c */
ls_status work_take(ls_group *group, const group_call *call, ls_work **work);
/* Appends a chain of works, linked by `next`, whose last is `last`. */
void work_append(ls_work *first, ls_work *last);
/* Takes `work`, the head of the queue, off it; the caller drives. */
void work_complete(ls_work *work, ls_status status);
/* Begins an operation, or with number 0 a message; the caller drives. */
void work_begin(ls_work *work, uint64_t number);
/* Tells whoever waits for it, and lets go of it. */
void work_end(ls_work *work, ls_status status);
void work_drop(ls_work *work);
/* Adds `count` to what the pool has. */
ls_status work_fill_pool(ls_group *group, int count);
void work_free_pool(ls_group *group);
size_t call_bytes(const group_call *call);

static inline bool work_is_complete(const ls_work *work) {
    return atomic_load_explicit(&work->is_complete, memory_order_acquire);
}

/* drive.c */
static inline bool group_try_drive(ls_group *group) {
    uint32_t nobody = 0;
    if (!atomic_compare_exchange_strong_explicit(&group->driver, &nobody, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    const uint64_t turns = atomic_load_explicit(&group->turns, memory_order_relaxed);
    atomic_store_explicit(&group->turns, turns + 1, memory_order_relaxed);
    return true;
}

void group_stop_driving(ls_group *group);
/* Sleeps until the driver stops or completes something, or a moment has passed. */
void group_await_driver(ls_group *group, const ls_work *work, int64_t deadline_ns);
/* Runs one operation of the caller's own to its end; the queue is empty. The caller drives. */
ls_status drive_alone(ls_group *group, backend_op *op);
/* Runs the queue: until `until` is complete, or (NULL) until it is empty or someone waits to drive. Returns false when the
 * deadline came first. The caller drives. */
bool drive_queue(ls_group *group, const ls_work *until, int64_t deadline_ns);
/* Polls once what is there. The caller drives. */
void drive_once(ls_group *group);
/* Drives for that long, unless there is nothing or another thread drives; returns false when one does. */
bool drive_unless_driven(ls_group *group);

backend_progress drive_poll(ls_group *group, backend_op *op);

/* messages.c; the caller drives. Polls all messages; MOVED when one was. */
backend_progress mail_poll(ls_group *group);
/* Takes a message off the list in which it hangs. */
void mail_complete(ls_work **link, ls_status status);
/* The group is lost. */
void mail_fail(ls_group *group);
/* Before the group closes: what this rank has sent has a moment to arrive, since its receiver may be about to ask. */
void mail_see_off(ls_group *group);

static inline bool group_has_mail(const ls_group *group) {
    return atomic_load_explicit(&group->mail_count, memory_order_acquire) > 0;
}

/* Whether a round over all messages begins with `op`; the caller drives. Backends look for what has come at this moment alone:
 * else a receive could be given a message that those before it, which want it too, have just looked for in vain. */
static inline bool mail_begins_with(const ls_group *group, const backend_op *op) {
    return group->mail && op == &group->mail->op;
}

/* progress.c */
ls_status progress_start(ls_group *group);
void progress_notice(ls_group *group); /* something was posted */
void progress_stop(ls_group *group);

#endif
