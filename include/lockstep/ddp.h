/* lockstep/ddp.h: distributed data parallel training: every rank has a replica of one module, and the replicas stay
 * equal.
 *
 * ls_ddp_wrap hooks a module; the lines of the program that run it do not change. While ls_backward computes, gradients
 * are averaged over the ranks, bucket by bucket. Method: Li et al., "PyTorch Distributed: Experiences on Accelerating
 * Data Parallel Training", VLDB 2020 (arXiv 2006.15704).
 *
 * A program that computes its gradients itself uses the reducer alone (second half of this file). */
#ifndef LOCKSTEP_DDP_H
#define LOCKSTEP_DDP_H

#include <lockstep/group.h>
#include <lockstep/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_ddp ls_ddp;

/* Zeroes are the defaults, so every option is named for its exception. */
typedef struct ls_ddp_options {
    size_t bucket_cap_bytes;       /* 0: 25 MiB; 1: a bucket a parameter */
    size_t first_bucket_cap_bytes; /* 0: the smaller of 1 MiB and bucket_cap_bytes */
    bool find_unused_parameters;   /* the loss need not depend on every parameter */
    /* Looks for NaN and infinity in each gradient before it is averaged. Where there is one, the step is
     * LS_ERR_NONFINITE on all ranks, which names parameter, rank and step, and no rank updates its parameters. */
    bool find_nonfinite;
    bool keep_local_buffers;    /* buffers are not broadcast from rank 0 */
    bool keep_buckets;          /* never lay the buckets out anew in the order in which gradients come */
    const char *const *ignored; /* names that take no part in broadcast or reduction, ended by NULL; copied */
} ls_ddp_options;

/* Wraps `module`: compares the parameters of all ranks, broadcasts parameters and buffers from rank 0, lays out the
 * buckets, and hooks forward and backward. Collective: all ranks of `group` call it. The wrap has a duplicate of the
 * group and keeps hold of the module, so that both may be closed before it. A module, and each parameter, has one wrap
 * at a time; nothing is added to a module once it is wrapped. The thread that trains uses and closes the wrap.
 *
 * With several wraps in one step, all ranks run their forwards in the same order, and either one loss depends on all of
 * them or the step ends between their losses. For a rank whose loss is NULL fails all wraps that have run forward, and
 * would wait for peers that run backward through one of them only, until the group's time limit.
 *
 * Errors, alike on all ranks: LS_ERR_MISMATCH names the first parameter that differs and both ranks; LS_ERR_ARGUMENT
 * when no parameter needs a gradient; LS_ERR_STATE when another wrap has the module or one of its parameters;
 * LS_ERR_MEMORY and those of the group. */
LS_API ls_status ls_ddp_wrap(ls_ddp **ddp, ls_module *module, ls_group *group, const ls_ddp_options *options);

/* Unhooks the module, whose gradients are forgotten and from then on are this rank's own. Sets *ddp to NULL; NULL is
 * harmless. Local: no other rank takes part. Allowed between forward and backward, too. */
LS_API void ls_ddp_close(ls_ddp **ddp);

/* Gradient accumulation. The backward of a forward that ran between begin and end adds to this rank's gradients and
 * sends nothing; the first backward of a forward outside averages the sums. Pairs nest. Of several forwards before one
 * backward the last decides. All ranks do the same: where they differ, the next synchronised backward is
 * LS_ERR_MISMATCH on all. */
LS_API void ls_ddp_no_sync_begin(ls_ddp *ddp);
LS_API void ls_ddp_no_sync_end(ls_ddp *ddp);

/* What the last backward of a wrap did. Times are in nanoseconds. */
typedef struct ls_ddp_stats {
    uint64_t step; /* backwards so far, under no_sync too */
    int bucket_count;
    bool has_rebuilt; /* buckets follow the order in which gradients come */
    int64_t forward_ns;
    int64_t backward_ns;         /* from its start until gradients hold the averages */
    int64_t backward_compute_ns; /* until the last gradient was ready */
    int64_t communication_ns;    /* from the first bucket's launch to the last one's end */
    size_t bytes;                /* payload reduced */
} ls_ddp_stats;
LS_API void ls_ddp_last_stats(const ls_ddp *ddp, ls_ddp_stats *stats);

/* Moments of the last synchronised backward: for parameter `index` (the module's order, those that need gradients) when
 * its gradient became ready, and for bucket `index` when its reduction started and ended; nanoseconds on the monotonic
 * clock.
 * Errors: LS_ERR_ARGUMENT for an index out of range. */
LS_API ls_status ls_ddp_ready_time(const ls_ddp *ddp, int index, int64_t *ready_ns);
LS_API ls_status ls_ddp_bucket_times(const ls_ddp *ddp, int index, int64_t *start_ns, int64_t *end_ns);

/* ---- The reducer alone: gradients that you compute yourself, averaged over ranks while you compute the rest. ----
 *
 *     ls_reducer_begin(reducer);
 *     for (int i = last; i >= 0; i--) {
 *         compute_gradient(i);
 *         ls_reducer_ready(reducer, i);   // in any order, from any thread
 *     }
 *     ls_reducer_finish(reducer);         // gradients are averages now, on every rank alike
 */

typedef struct ls_reducer ls_reducer;

/* One gradient. `gradient` is strided memory of the caller's, read at `ready` and written at `finish`. NULL: the
 * reducer has the memory (contiguous, dims order), which ls_reducer_gradient returns: written once, reduced where it
 * lies. */
typedef struct ls_gradient {
    const char *name; /* copied */
    void *gradient;
    ls_dtype dtype; /* LS_F32 or LS_F64 */
    int ndim;
    int64_t dims[8];
    int64_t strides[8]; /* in elements; all zeroes: contiguous */
} ls_gradient;

typedef struct ls_reducer_options {
    size_t bucket_cap_bytes;       /* as in ls_ddp_options */
    size_t first_bucket_cap_bytes; /* as in ls_ddp_options */
    bool find_unused_parameters;
    bool find_nonfinite; /* as in ls_ddp_options */
} ls_reducer_options;

/* Compares the list with the other ranks', lays out the buckets. Collective over `group`, of which the reducer has a
 * duplicate.
 * gradients   [count], in the order of registration: buckets are filled from the last one
 * Errors, alike on all ranks: LS_ERR_MISMATCH, LS_ERR_ARGUMENT, LS_ERR_MEMORY and those of the group. */
LS_API ls_status ls_reducer_create(ls_reducer **reducer, ls_group *group, const ls_gradient *gradients, int count,
                                   const ls_reducer_options *options);

/* Frees the reducer and sets *reducer to NULL; NULL is harmless. Local. Within a step it ends that step, which then
 * fails on the other ranks. */
LS_API void ls_reducer_close(ls_reducer **reducer);

/* The memory of gradient `index`, owned by the reducer where it was given with NULL: there it moves, with its content,
 * when buckets are rebuilt, once, so ask again after each begin. NULL with the error set for an index out of range. */
LS_API void *ls_reducer_gradient(ls_reducer *reducer, int index);

/* Starts a step on all ranks. One thread at a time calls begin and finish. Errors: those of the group; LS_ERR_STATE
 * when a step is under way. */
LS_API ls_status ls_reducer_begin(ls_reducer *reducer);

/* Gradient `index` is complete. Any thread; all calls have returned before ls_reducer_finish is called. Errors:
 * LS_ERR_ARGUMENT; LS_ERR_STATE outside a step, and for a second mark, which fails the step on all ranks at finish. */
LS_API ls_status ls_reducer_ready(ls_reducer *reducer, int index);

/* Makes this step (between steps, the next one) fail on all ranks, with `status` and `reason` (copied), for instance
 * because this rank has no memory. The step still has to be finished. Of several failures the first counts. Any
 * thread. */
LS_API void ls_reducer_fail(ls_reducer *reducer, ls_status status, const char *reason);

/* Ends the step: waits until every gradient is the average. A gradient that was not marked is, with unused-parameter
 * search, the average of the others' (untouched where no rank marked it); without it LS_ERR_UNUSED on all ranks, naming
 * it. After an error gradients are undefined, and the next step is right. */
LS_API ls_status ls_reducer_finish(ls_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
