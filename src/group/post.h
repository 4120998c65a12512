/* post.h: how rooms above post operations that are checked by whoever receives them. */
#ifndef LS_GROUP_POST_H
#define LS_GROUP_POST_H

#include <lockstep/group.h>

/* 5, 6 and 13 are the room's own (group/backend.h). */
typedef enum group_kind {
    GROUP_ALL_REDUCE = 1,
    GROUP_BROADCAST,
    GROUP_ALL_GATHER,
    GROUP_BARRIER,
    GROUP_REDUCE = 7,
    GROUP_GATHER,
    GROUP_SCATTER,
    GROUP_REDUCE_SCATTER,
    GROUP_ALL_TO_ALL,
    GROUP_ALL_TO_ALL_UNEVEN,
    GROUP_SEND = 14, /* messages: `root` is the other rank, `tag` the user's; beside the queue */
    GROUP_RECEIVE
} group_kind;

static inline bool kind_is_message(group_kind kind) {
    return kind == GROUP_SEND || kind == GROUP_RECEIVE;
}

/* The ranks' elements become one by the call's op. */
static inline bool kind_combines(group_kind kind) {
    return kind == GROUP_ALL_REDUCE || kind == GROUP_REDUCE || kind == GROUP_REDUCE_SCATTER;
}

/* One collective as posted. All ranks must agree in everything but the pointers: kind, count, dtype, op, root and tag
 * are compared, and a difference is LS_ERR_MISMATCH naming both sides, never a wrong pairing. */
typedef struct group_call {
    group_kind kind;
    ls_dtype dtype;
    ls_op op; /* of those that combine */
    int root; /* of those that have one */
    size_t count;
    const void *send; /* the input, where it is apart from the output */
    void *data;       /* in and out; the output */
    /* Elements for and from each rank, of the uneven all-to-all; copied when the call is posted. All ranks compare them. */
    const size_t *send_counts, *receive_counts;
    int *source;      /* of a receive: where the message came from; may be NULL */
    uint64_t tag;     /* 0 for users' calls; the reducer's is (step << 8 | its kind) */
    const char *name; /* for messages and traces: "bucket 3"; lives until the work is complete; may be NULL */
} group_call;

/* Posts `call` (copied). `work` as in the public calls: NULL blocks. */
ls_status group_post(ls_group *group, const group_call *call, ls_work **work);

/* Sets aside what posting `count` asynchronous calls at a time needs, so that it cannot fail for lack of memory or threads
 * on one rank alone. Local. */
ls_status group_prepare(ls_group *group, int count);

/* When a complete operation was launched and when it ended (base/clock.h). */
void work_times(const ls_work *work, int64_t *start_ns, int64_t *end_ns);

/* Fails with LS_ERR_UNSUPPORTED where memory of ls_group_alloc is a GPU's: who computes on the host cannot use it. Local, and
 * alike on all ranks. */
ls_status group_check_host_memory(const ls_group *group);

/* Gives the whole pages within `bytes` bytes at `data`, part of this rank's memory of ls_group_alloc, back to the system. Their
 * content is lost (zero when touched again). No operation of any rank may be using them. Local; any thread. */
void group_discard(void *data, size_t bytes);

/* Adds a holder to the group, so that a wrap outlives the user's close. Let go by ls_group_close. */
ls_group *group_keep(ls_group *group);

#endif
