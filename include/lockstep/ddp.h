/* lockstep/ddp.h: distributed data parallel training: one module, many ranks, replicas in step.
 *
 * ls_ddp_wrap hooks a module; the program's forward lines do not change. During ls_backward gradients are averaged over
 * the ranks, bucket by bucket, while backward goes on. Method: Li et al., "PyTorch Distributed: Experiences on
 * Accelerating Data Parallel Training", VLDB 2020 (arXiv 2006.15704).
 *
 * A program with gradients of its own uses the reducer alone (second half).                                          */
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
    bool find_unused_parameters;   /* the loss need not reach every parameter */
    bool find_nonfinite;        /* look for NaN and infinity in each gradient before it is averaged: LS_ERR_NONFINITE on
                                      all ranks names parameter, rank and step, and no rank updates */
    bool keep_local_buffers;    /* buffers are not broadcast from rank 0 */
    bool keep_buckets;          /* never rebuild the buckets in the order in which gradients come */
    const char *const *ignored; /* names that take no part in broadcast or reduction, ended by NULL; copied */
} ls_ddp_options;

/* Wraps `module`: compares the parameters of all ranks, broadcasts parameters and buffers from rank 0, lays out the
 * buckets, hooks forward and backward. Collective over `group`, of which the wrap has a duplicate (and it holds the
 * module): either may be closed first. One wrap a module and a parameter; the module is complete when it is wrapped.
 *
 * Several wraps in one step: all ranks run their forwards in the same order. A rank whose loss is NULL fails every wrap
 * that has run forward, so let one loss reach them all, or end the step between their losses: else a peer that runs
 * only one of them is waited for by the other, until the group's limit. Used and closed on the thread that trains.
 *
 * Errors, alike on all ranks: LS_ERR_MISMATCH names the first parameter that differs and both ranks; LS_ERR_ARGUMENT
 * when no parameter needs a gradient; LS_ERR_STATE when another wrap has the module or one of its parameters;
 * LS_ERR_MEMORY and those of the group. */
LS_API ls_status ls_ddp_wrap(ls_ddp **ddp, ls_module *module, ls_group *group, const ls_ddp_options *options);

/* Unhooks the module, which is a local one from then on; gradients are forgotten. Local; also between forward and
 * backward. */
LS_API void ls_ddp_close(ls_ddp **ddp);

/* Between these, forwards make the backward that follows accumulate locally; the first backward of a forward outside
 * reduces the sum. They nest. Of several forwards before a backward the last one's mode holds. All ranks alike: where
 * they differ, the next synchronised backward is LS_ERR_MISMATCH on all. */
LS_API void ls_ddp_no_sync_begin(ls_ddp *ddp);
LS_API void ls_ddp_no_sync_end(ls_ddp *ddp);

/* What the last backward did. Times in nanoseconds. */
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

/* Local. Within a step it ends that one: the others' step fails. */
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

/* Tells that this rank's step failed, between steps the next one (for instance no memory): the peers' step fails too,
 * with `status` and `reason` (copied), and all stay in step. Of several the first is told. Any thread. */
LS_API void ls_reducer_fail(ls_reducer *reducer, ls_status status, const char *reason);

/* Ends the step: waits until every gradient is the average. A gradient that was not marked is, with unused-parameter
 * search, the average of the others' (untouched where no rank marked it); without it LS_ERR_UNUSED on all ranks, naming
 * it. After an error gradients are undefined, and the next step is right. */
LS_API ls_status ls_reducer_finish(ls_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
