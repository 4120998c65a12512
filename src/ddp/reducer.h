/* reducer.h: one step of averaging gradients over ranks. Under both faces of the room: module.c (a wrapped module,
 * whose tape tells beforehand what is used) and alone.c (gradients of the user's own, whose use is known at the end).
 *
 * Threads: begin, finish and rebuild are called by one thread at a time; mark and fail by any. `lock` guards what is
 * listed under it; it is never held while something is posted or waited for, and no other lock is taken under it.
 * Buckets are posted by the one thread that has set `is_launching`; all calls of mark return before finish is
 * called. */
#ifndef LS_DDP_REDUCER_H
#define LS_DDP_REDUCER_H

#include "base/thread.h"
#include "ddp/agreement.h"
#include "ddp/schedule.h"
#include "ddp/storage.h"
#include "ddp/verify.h"

typedef struct reducer_options {
    size_t bucket_cap_bytes;
    size_t first_bucket_cap_bytes;
    bool find_unused_parameters;
    bool find_nonfinite;
    bool keep_buckets;
    bool late_use; /* what is used is known at finish only */
} reducer_options;

/* What a rank says of its step: in the header, before the first bucket, and in the footer, after the last. */
typedef struct reducer_record {
    int32_t status;
    uint32_t unused_count;
    uint64_t step;
    uint64_t plan_digest;
    uint64_t nonfinite; /* 1 + the first parameter found with a gradient that is not finite; 0: none (footer only) */
} reducer_record;

/* A bucket's operations in the step. */
typedef struct bucket_slot {
    int first_work, work_count; /* into `works` */
    int64_t start_ns, end_ns;
    char name[24];
} bucket_slot;

typedef struct ls_reduction {
    /* Fixed by reducer_init. */
    ls_group *group; /* a private duplicate, held */
    int world_size;
    int count;
    char **names;     /* [count] */
    size_t *bytes;    /* [count] */
    ls_dtype *dtypes; /* [count] */
    reducer_options options;
    ls_agreement agreement;

    /* The thread of begin and finish. */
    gradient_storage storage;
    uint64_t plan_digest;
    uint64_t step; /* backwards so far, skipped ones too */
    bool has_rebuilt, rebuild_is_due;
    reducer_record own;
    reducer_record *records; /* [world_size] of the header, then of the footer */
    uint64_t *used_here;     /* what this rank used */
    bool *is_reached;        /* [count] a gradient will come by itself in this step; all false with late_use */
    void **saved;            /* [count] contents put aside at finish, with late_use */
    ls_work *footer_work;
    ls_error broken; /* a failed rebuild: every later step fails with it */

    ls_mutex lock;
    ls_schedule schedule;
    uint64_t *used; /* this rank's, then the union of all ranks' */
    ls_work *header_work, *used_work;
    bool header_is_taken, header_is_good;
    bool is_launching;
    int *ready_order; /* [count], of it `ready_count` are gradients in the order in which they came */
    int ready_count;
    int64_t *ready_ns; /* [count] */
    int nonfinite;     /* 1 + the first parameter found so far, 0: none */
    ls_error failure;  /* this rank's own, in this step */
    ls_error lost;     /* the group's, met while posting */

    /* The launching thread; after the last mark, that of finish. */
    ls_work **works; /* [count] one a run, in the order of posting */
    int work_count;
    bucket_slot *slots; /* [bucket_count] */
} ls_reduction;

/* Collective: duplicates `group`, compares `items` over all ranks (those that need gradients are reduced), lays out and
 * allocates the buckets. `status` is this rank's so far, so that a rank that failed earlier fails all. Errors are alike
 * on all ranks; then nothing is held. */
ls_status reducer_init(ls_reduction *reducer, ls_group *group, ls_status status, const verify_item *items,
                       int item_count, const reducer_options *options);

/* For a rank that could not even make a reducer: takes part in reducer_init as one that has failed. Returns an
 * error. */
ls_status reducer_refuse(ls_group *group, ls_status status, const reducer_options *options);

/* Within a step it ends that one: the group is aborted. */
void reducer_clear(ls_reduction *reducer);

/* Lays the buckets out in the order in which gradients came, when that is due. Collective. `move` is called for each
 * gradient. */
ls_status reducer_rebuild(ls_reduction *reducer, storage_move move, void *context);

/* Counts a backward that does not synchronise. */
void reducer_skip(ls_reduction *reducer);

/* Posts the header: this rank's `failure` (its sentence in ls_last_error), and which parameters it used since the last
 * synchronised step [count]; `reached`: those whose gradient will be marked in this one. Both NULL with late_use. */
ls_status reducer_begin(ls_reduction *reducer, ls_status failure, const bool *reached, const bool *used);

/* Gradient `index` is complete where it lies. Launches what may start. Errors: LS_ERR_STATE, LS_ERR_ARGUMENT; then the
 * step fails on all ranks. */
ls_status reducer_mark(ls_reduction *reducer, int index);

/* Whether the gradient is marked in this step already: its bucket may be under way. */
bool reducer_is_marked(ls_reduction *reducer, int index);

/* This rank's step, the next one between steps, has failed; the first failure is kept. */
void reducer_fail(ls_reduction *reducer, ls_status status);

/* Why the step failed, from the records of all ranks: never LS_OK, and the same on all. Collective. */
ls_status reducer_explain(ls_reduction *reducer);

/* Ends the step; returns the same status on all ranks unless the group is lost. Afterwards `used` is the union. */
ls_status reducer_finish(ls_reduction *reducer, ls_status failure);

#endif
