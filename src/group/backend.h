/* backend.h: what a backend is: one table of functions, chosen at run time. The rest of the room names no backend.
 *
 * A backend carries one operation of its group at a time, and any number of messages beside it: `start`, then `poll` until
 * it is done. Only the group's driver calls these (group/group.h), so they need no lock. Whatever may wait
 * waits in `open`, `allocate` and `sleep`.                                                                           */
#ifndef LS_GROUP_BACKEND_H
#define LS_GROUP_BACKEND_H

#include "group/post.h"

#include "base/error.h"
#include "store/store.h"

#define LS_BACKEND_VERSION 2

/* Kinds of our own beside those of post.h: a rank says how its part of a collective set-up went. */
#define GROUP_ALLOCATE ((group_kind)5)
#define GROUP_DUPLICATE ((group_kind)6)
#define GROUP_SUBGROUP ((group_kind)13)
#define GROUP_KIND_COUNT 16

static inline bool kind_is_agreement(group_kind kind) {
    return kind == GROUP_ALLOCATE || kind == GROUP_DUPLICATE || kind == GROUP_SUBGROUP;
}

/* What one rank says in such an operation, an all-gather of these; `count` of the call is checked, not gathered. */
typedef struct group_agreement {
    int32_t status;
    char text[1020];
} group_agreement;

typedef enum backend_reach { LS_REACH_SELF, LS_REACH_HOST, LS_REACH_HOSTS } backend_reach;

/* Who may drive a group, which is to call `start`, `poll`, `examine` and `sleep`. */
typedef enum backend_drivers {
    DRIVEN_BY_ALL,     /* any thread, and the progress thread */
    DRIVEN_BY_CALLERS, /* any thread that calls: no thread of ours */
    DRIVEN_BY_OPENER   /* the thread that opened the group: calls from others are refused */
} backend_drivers;

/* What a poll came to. */
typedef enum backend_progress {
    BACKEND_PENDING, /* nothing moved: a peer is awaited */
    BACKEND_MOVED,   /* something was done, more is left */
    BACKEND_DONE,
    BACKEND_FAILED /* the sentence is this thread's last error, its status the op's; the group is lost */
} backend_progress;

/* One operation under way. */
typedef struct backend_op {
    group_call call;
    uint64_t number;                /* 1, 2, ... in the group's order; the same on all ranks; 0: a message */
    size_t bytes;                   /* of one rank's data */
    uint64_t record;                /* the flight recorder's */
    int64_t start_ns;               /* base/clock.h; 0: nobody has asked for the time yet */
    ls_status status;               /* of BACKEND_FAILED */
    const struct backend_op *whole; /* that this one is a step of; NULL: of none */
    uint64_t scratch[16];           /* the backend's own; not zeroed */
} backend_op;

/* What was posted: ranks compare that, and messages name it. All that steps of it do follows from it. */
static inline const backend_op *op_posted(const backend_op *op) {
    return op->whole ? op->whole : op;
}

/* Where and with whom a group opens. */
typedef struct backend_place {
    ls_group *group; /* for group_agree */
    ls_store *store; /* borrowed for the backend's life; NULL in a world of one, and with `needs_no_store` */
    int rank, world_size;
    const char *prefix;       /* of keys in the store: no other group uses it; valid during `open` */
    const char *stale_prefix; /* of these ranks' opening before (group/withdrawal.h); NULL: none */
    bool relaxed_order;       /* as in ls_group_options */
    int64_t timeout_ms;       /* how long `open` may take, and when that ends */
    int64_t deadline_ns;
    const int *names; /* [world_size] what messages call these ranks; NULL: by their numbers; borrowed for ever */
    void *parent;     /* state of the group that this one is made of; NULL: the group of all ranks */
    const int *ranks; /* [world_size] of `parent`, in the order of ours; NULL: all of them, in their order */
    uint64_t number;  /* of the operation of `parent` in which all its ranks agreed on it */
} backend_place;

/* What messages call a rank; `names` as in backend_place. */
static inline int rank_name(const int *names, int rank) {
    return names ? names[rank] : rank;
}

typedef struct ls_backend {
    uint32_t version; /* LS_BACKEND_VERSION */
    const char *name;
    backend_reach reach;
    bool survives_loss;     /* the ranks that are left may open a group again */
    bool needs_no_store;    /* `open` meets the other ranks by itself; then there are `number`, `tell` and `hear` */
    bool has_device_memory; /* its memory is a GPU's, out of the host's reach; so it carries a world of one too */

    /* Collective: meets the other ranks. On error nothing is left. `close` is local and never waits for peers. */
    ls_status (*open)(const backend_place *place, void **state);
    void (*close)(void *state);

    /* Fixed when `open` returns; NULL: by all. */
    backend_drivers (*drivers)(const void *state);

    /* Processors of the host less its ranks of this group; negative when ranks have to share processors. */
    int (*spare_processors)(const void *state);

    /* Memory of ls_group_alloc. `allocate` is collective and runs on the caller's thread, one at a time. */
    ls_status (*allocate)(void *state, size_t bytes, void **memory);
    void (*release)(void *state, void *memory);

    /* Whether there is such an operation here; NULL: there are all. Asked before it is posted. */
    bool (*carries)(const group_call *call);

    /* Whether it can use the memory of `call`; NULL: it can use any. Asked before it is posted, by any thread. */
    ls_status (*check)(const void *state, const group_call *call);

    /* `start` begins and does not wait; `poll` goes on and never waits, for at most some 100 us. */
    void (*start)(void *state, backend_op *op);
    backend_progress (*poll)(void *state, backend_op *op);

    /* The four that follow are NULL in a backend whose poll is never pending.
     *
     * Looks whether the ranks that `op` waits for can still come. When not, fails; the caller polls once more before
     * it believes that, since a rank may finish its part and leave. */
    ls_status (*examine)(void *state, backend_op *op);

    /* Who has not come: "rank 2 (host, pid 77, last done operation 3), rank 3 (...)". */
    void (*describe_missing)(void *state, const backend_op *op, char *text, size_t bytes);

    /* Sleeps until a peer may have moved, until `wake` was called since `bell` returned this value, or until the deadline;
     * polls once before. */
    uint32_t (*bell)(void *state);
    backend_progress (*sleep)(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);

    /* Ends our own `sleep`; any thread. */
    void (*wake)(void *state);

    /* Wakes the peers that sleep on what we did; any thread. The caller has made a full barrier since its last poll. */
    void (*nudge)(void *state);

    /* Tells peers that the group is lost, and why, or (LS_OK) that this rank leaves. Any thread; the first call counts. */
    void (*leave)(void *state, const ls_error *why);

    /* In a forked child: lets go of descriptors. */
    void (*forked)(void *state);

    /* What a store would do; only with `needs_no_store`.
     *
     * The group's number, the same on all its ranks and no other group's of theirs. */
    uint64_t (*number)(const void *state);

    /* Words between two ranks, numbered upwards, beside all operations. `tell` sends one and does not wait; `hear` tells
     * whether word `number` of rank `from` has come, and forgets those before it. Any thread that may drive. */
    ls_status (*tell)(void *state, int to, uint64_t number, const ls_error *word);
    bool (*hear)(void *state, int from, uint64_t number, ls_error *word);
} ls_backend;

extern const ls_backend solo_backend;  /* a world of one: everything is done at once */
extern const ls_backend shm_backend;   /* one host, over shared memory */
extern const ls_backend tcp_backend;   /* any hosts, over connections of its own */
extern const ls_backend hosts_backend; /* the same, and shared memory inside each host */
extern const ls_backend nccl_backend;  /* GPUs; named, never chosen */

/* Which backend carries the group that `options` ask for, and who its ranks are: `found` is `options`, complete, with a hold
 * of its own on the store. Nothing is opened yet, but an MPI is initialised if it is to carry the group. */
ls_status group_choose(const ls_group_options *options, ls_group_options *found, const ls_backend **backend);

/* Opens a group over a backend of the caller's, for instance of a test. `options` as in ls_group_open, not NULL. */
ls_status group_open_backend(ls_group **group, const ls_group_options *options, const ls_backend *backend);

/* Posts an operation of ours and waits: all ranks learn how each one's part went, and fail alike with the sentence of the
 * first that failed, which names it. `count` is compared. `number` receives how many there were. The caller has claimed the
 * group, as `allocate` may take for granted (group/group.h). */
ls_status group_agree(ls_group *group, group_kind kind, size_t count, ls_status status, uint64_t *number);
/* The same where this thread's last error names already which rank failed, perhaps another: it goes to all as it is. */
ls_status group_agree_as_said(ls_group *group, group_kind kind, size_t count, ls_status status, uint64_t *number);

#endif
