/* reducer_step.c: a step: header, buckets in order, footer.
 *
 *   begin    posts the header: every rank's record, and the union of what is used
 *   mark     records a gradient; once the header is back and good, buckets start in order, each one operation a run of
 *            neighbours that are used
 *   finish   waits for the header; launches the rest; posts the footer behind the last bucket; drains; reads the footer
 *
 * Every rank that has a good header posts every bucket and the footer, whatever becomes of it: so ranks never part. A
 * bad header ends the step at once, on all ranks: they exchange what failed (explain.c), and return the same.        */
#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "ddp/bitmap.h"
#include "ddp/reducer.h"
#include "ddp/values.h"
#include "trace/trace.h"

#include <string.h>

/* ---- Posting ---- */

static ls_status post_records(ls_reduction *reducer, agreement_kind kind, ls_work **work) {
    /* Headers carry their step inside, where a difference is a message and not the end of the group. */
    const group_call call = {.kind = GROUP_ALL_GATHER,
                             .dtype = LS_U8,
                             .count = sizeof reducer->own,
                             .send = &reducer->own,
                             .data = reducer->records,
                             .tag = agreement_tag(kind == AGREE_HEADER ? 0 : reducer->step, kind),
                             .name = kind == AGREE_HEADER ? "header" : "footer"};
    return group_post(reducer->group, &call, work);
}

static ls_status post_used(ls_reduction *reducer, agreement_kind kind) {
    const group_call call = {.kind = GROUP_ALL_REDUCE,
                             .dtype = LS_I64,
                             .op = LS_BITWISE_OR,
                             .count = bitmap_words(reducer->count),
                             .data = reducer->used,
                             .tag = agreement_tag(kind == AGREE_HEADER ? 0 : reducer->step, kind),
                             .name = "used parameters"};
    return group_post(reducer->group, &call, &reducer->used_work);
}

/* All runs of a bucket, in order. By the launching thread, without the lock. */
static ls_status post_bucket(ls_reduction *reducer, int bucket) {
    bucket_slot *slot = &reducer->slots[bucket];
    /* With late use it is not known yet who uses what; zeros are sent where nothing came. */
    const uint64_t *used = reducer->options.find_unused_parameters && !reducer->options.late_use ? reducer->used : NULL;
    slot->first_work = reducer->work_count;
    slot->work_count = 0;
    /* What is left standing where the bucket has no run: nobody uses what is in it. */
    slot->start_ns = slot->end_ns = ls_now_ns();
    storage_run run;
    for (int cursor = 0; storage_next_run(&reducer->storage, bucket, used, reducer->bytes, &cursor, &run);) {
        const group_call call = {.kind = GROUP_ALL_REDUCE,
                                 .dtype = reducer->storage.plan.dtype_of[bucket],
                                 .op = LS_AVERAGE,
                                 .count = run.count,
                                 .data = run.data,
                                 .tag = agreement_tag(reducer->step, AGREE_BUCKET),
                                 .name = slot->name};
        /* Posting never waits: what is posted runs while backward goes on. */
        LS_TRY(group_post(reducer->group, &call, &reducer->works[reducer->work_count]));
        reducer->work_count++;
        slot->work_count++;
    }
    ls_point("ddp.bucket.posted");
    return LS_OK;
}

/* The group is lost: nothing more can be posted. */
static void note_lost(ls_reduction *reducer, ls_status status) {
    LS_ASSERT_HELD(&reducer->lock);
    if (status == LS_OK || reducer->lost.status != LS_OK) return;
    ls_error_capture(&reducer->lost, status);
    schedule_fail(&reducer->schedule);
}

/* Posts the buckets that may start. One thread at a time, so that they are posted in order without the lock; a thread
 * that finds another one launching may go: that one looks at the schedule again, under the lock, before it stops. */
static void launch(ls_reduction *reducer) {
    int bucket = 0;
    ls_mutex_lock(&reducer->lock);
    if (!reducer->is_launching) {
        reducer->is_launching = true;
        while (schedule_launch(&reducer->schedule, &bucket)) {
            ls_mutex_unlock(&reducer->lock);
            const ls_status status = post_bucket(reducer, bucket);
            ls_mutex_lock(&reducer->lock);
            note_lost(reducer, status);
        }
        reducer->is_launching = false;
    }
    ls_mutex_unlock(&reducer->lock);
}

static void note_failure(ls_reduction *reducer, ls_status status) {
    LS_ASSERT_HELD(&reducer->lock);
    if (status != LS_OK && reducer->failure.status == LS_OK) ls_error_capture(&reducer->failure, status);
}

/* ---- The header ---- */

static bool is_good(const ls_reduction *reducer, const reducer_record *record) {
    /* Each rank judges every record by the same rule: so all take the same way without another message. */
    const bool may_be_unused = reducer->options.find_unused_parameters;
    return record->status == LS_OK && record->step == reducer->own.step &&
           record->plan_digest == reducer->own.plan_digest && (record->unused_count == 0 || may_be_unused) &&
           record->nonfinite == 0;
}

/* Reads the header once it is back; parameters whose gradient will not come are ready from here on. */
static void take_header(ls_reduction *reducer) {
    LS_ASSERT_HELD(&reducer->lock);
    if (reducer->header_is_taken) return;
    /* Whichever thread marks first after the header is back reads it, once. */
    reducer->header_is_taken = reducer->header_is_good = true;
    bool all_full = true;
    for (int rank = 0; rank < reducer->world_size; rank++) {
        reducer->header_is_good &= is_good(reducer, &reducer->records[rank]);
        all_full &= reducer->records[rank].unused_count == 0;
    }
    if (!reducer->header_is_good) {
        schedule_fail(&reducer->schedule);
        return;
    }
    /* Only a step in which every gradient came tells the order of all. With late use the footer knows. */
    if (!reducer->options.late_use) reducer->rebuild_is_due = all_full && !reducer->has_rebuilt;
    ls_status status = schedule_agreed(&reducer->schedule);
    for (int i = 0; i < reducer->count && !reducer->options.late_use && status == LS_OK; i++)
        /* Nothing will mark it in this step: its bucket must not wait for it. */
        if (!reducer->is_reached[i]) status = schedule_mark(&reducer->schedule, i);
    note_failure(reducer, status);
}

static bool header_is_back(ls_reduction *reducer) {
    return reducer->header_work && ls_work_is_complete(reducer->header_work) &&
           (!reducer->used_work || ls_work_is_complete(reducer->used_work));
}

static ls_status wait_and_close(ls_work **work) {
    if (!*work) return LS_OK;
    const ls_status status = ls_work_wait(*work, 0);
    ls_work_close(work);
    return status;
}

bool reducer_is_marked(ls_reduction *reducer, int index) {
    ls_mutex_lock(&reducer->lock);
    const bool is_marked = reducer->schedule.is_marked[index];
    ls_mutex_unlock(&reducer->lock);
    return is_marked;
}

/* Looks for NaN and infinity where that was asked for; what is found is told in the footer. */
static void look_for_nonfinite(ls_reduction *reducer, int index) {
    /* Before it is marked: once its bucket has started, the sum may be read instead of the gradient. */
    if (!reducer->options.find_nonfinite || reducer_is_marked(reducer, index)) return;
    const size_t count = reducer->bytes[index] / ls_dtype_size(reducer->dtypes[index]);
    if (values_are_finite(reducer->dtypes[index], storage_gradient(&reducer->storage, index), count)) return;
    ls_mutex_lock(&reducer->lock);
    if (!reducer->nonfinite) reducer->nonfinite = index + 1;
    ls_mutex_unlock(&reducer->lock);
}

ls_status reducer_begin(ls_reduction *reducer, ls_status failure, const bool *reached, const bool *used) {
    if (reducer->broken.status != LS_OK) return ls_error_raise(&reducer->broken);
    ls_mutex_lock(&reducer->lock);
    ls_status status = schedule_arm(&reducer->schedule);
    if (status != LS_OK) {
        ls_mutex_unlock(&reducer->lock);
        return status;
    }
    reducer->step++;
    /* A group that is lost says so again at the first post. */
    reducer->lost.status = LS_OK;
    note_failure(reducer, failure); /* unless reducer_fail was called before the step */
    reducer->header_is_taken = false;
    reducer->work_count = reducer->ready_count = 0;
    memset(reducer->used, 0, bitmap_words(reducer->count) * sizeof *reducer->used);
    int unused = 0;
    for (int i = 0; i < reducer->count; i++) {
        reducer->is_reached[i] = reached && reached[i];
        /* What has no elements is complete on every rank, so no error may name it. */
        const bool is_used = reducer->bytes[i] == 0 || (used && used[i]);
        if (is_used) bitmap_add(reducer->used, i);
        unused += !is_used && used;
    }
    memcpy(reducer->used_here, reducer->used, bitmap_words(reducer->count) * sizeof *reducer->used);
    /* Under the lock: reducer_fail may come from any thread, for this step or, by a hair, for the next. */
    reducer->own = (reducer_record){.status = reducer->failure.status,
                                    .unused_count = (uint32_t)unused,
                                    .step = reducer->step,
                                    .plan_digest = reducer->plan_digest};
    reducer->nonfinite = 0;
    ls_mutex_unlock(&reducer->lock);
    for (int i = 0; i < reducer->count && used; i++)
        if (used[i] && !reducer->is_reached[i]) look_for_nonfinite(reducer, i); /* accumulated earlier, not marked */

    status = post_records(reducer, AGREE_HEADER, &reducer->header_work);
    if (status == LS_OK && reducer->options.find_unused_parameters && !reducer->options.late_use)
        status = post_used(reducer, AGREE_HEADER);
    ls_mutex_lock(&reducer->lock);
    note_lost(reducer, status);
    ls_mutex_unlock(&reducer->lock);
    ls_point("ddp.header.posted");
    return status;
}

ls_status reducer_mark(ls_reduction *reducer, int index) {
    look_for_nonfinite(reducer, index);
    ls_mutex_lock(&reducer->lock);
    const ls_status status = schedule_mark(&reducer->schedule, index);
    if (status == LS_OK && reducer->bytes[index] > 0) {
        /* Whatever fails later, the moment and the order of arrival are right. */
        reducer->ready_ns[index] = ls_now_ns();
        if (reducer->ready_count < reducer->count) reducer->ready_order[reducer->ready_count++] = index;
        if (reducer->options.late_use) bitmap_add(reducer->used, index);
    }
    if (status != LS_OK) ls_fail_within(status, "gradient \"%s\"", reducer->names[index]);
    note_failure(reducer, status);
    ls_mutex_unlock(&reducer->lock);

    /* Backward's own thread moves what is under way between two gradients: on one core a rank nobody else would. */
    ls_group_progress(reducer->group);
    ls_mutex_lock(&reducer->lock);
    if (header_is_back(reducer)) take_header(reducer);
    ls_mutex_unlock(&reducer->lock);
    launch(reducer);
    return status;
}

void reducer_fail(ls_reduction *reducer, ls_status status) {
    ls_mutex_lock(&reducer->lock);
    note_failure(reducer, status);
    ls_mutex_unlock(&reducer->lock);
}

/* ---- The end of a step ---- */

/* The gradients that did not come: with late use their contents are put aside and zeros are sent in their place. */
static void mark_the_rest(ls_reduction *reducer) {
    LS_ASSERT_HELD(&reducer->lock);
    for (int i = 0; i < reducer->count; i++) {
        if (reducer->schedule.is_marked[i]) continue;
        if (reducer->options.late_use && reducer->failure.status == LS_OK) {
            void *gradient = storage_gradient(&reducer->storage, i);
            reducer->saved[i] = ls_alloc_raw(reducer->bytes[i]);
            if (reducer->saved[i]) {
                memcpy(reducer->saved[i], gradient, reducer->bytes[i]);
                memset(gradient, 0, reducer->bytes[i]);
            } else {
                note_failure(reducer, LS_ERR_MEMORY);
            }
            /* Told in the footer; without the search it is the error there. */
            reducer->own.unused_count++;
        }
        schedule_mark(&reducer->schedule, i);
    }
}

static ls_status drain_bucket(ls_reduction *reducer, int bucket) {
    bucket_slot *slot = &reducer->slots[bucket];
    for (int i = 0; i < slot->work_count; i++) {
        ls_work **work = &reducer->works[slot->first_work + i];
        const int64_t waiting_ns = ls_now_ns();
        /* With the group's own limit, which aborts it: no wait of a step is without one. */
        LS_TRY(ls_work_wait(*work, 0));
        int64_t start_ns = 0, end_ns = 0;
        work_times(*work, &start_ns, &end_ns);
        /* From the operation's own clock: it may have started long after it was posted. */
        if (i == 0) slot->start_ns = start_ns;
        slot->end_ns = end_ns;
        trace_span("wait", slot->name, waiting_ns, ls_now_ns());
        trace_span_on("communication", "bucket", slot->name, start_ns, end_ns);
        ls_work_close(work);
    }
    ls_mutex_lock(&reducer->lock);
    const ls_status status = schedule_reduced(&reducer->schedule, bucket);
    ls_mutex_unlock(&reducer->lock);
    return status;
}

static ls_status await_footer(ls_reduction *reducer) {
    LS_TRY(wait_and_close(&reducer->footer_work));
    LS_TRY(wait_and_close(&reducer->used_work));
    ls_point("ddp.footer.taken");
    bool is_good_everywhere = true, all_full = true;
    for (int rank = 0; rank < reducer->world_size; rank++) {
        is_good_everywhere &= is_good(reducer, &reducer->records[rank]);
        all_full &= reducer->records[rank].unused_count == 0;
    }
    if (!is_good_everywhere) return reducer_explain(reducer);
    if (reducer->options.late_use) reducer->rebuild_is_due = all_full && !reducer->has_rebuilt;
    return LS_OK;
}

/* Everything still to be posted, in the one order: the buckets left, then the footer. */
static ls_status post_rest(ls_reduction *reducer) {
    ls_mutex_lock(&reducer->lock);
    mark_the_rest(reducer);
    ls_mutex_unlock(&reducer->lock);
    launch(reducer);
    LS_TRY(ls_error_raise(&reducer->lost));
    /* What failed since the header was sent, in backward or in a hook. */
    reducer->own.status = reducer->failure.status;
    reducer->own.nonfinite = (uint64_t)reducer->nonfinite;
    /* This rank's own, before the OR overwrites it: errors name what each rank missed. */
    memcpy(reducer->used_here, reducer->used, bitmap_words(reducer->count) * sizeof *reducer->used);
    ls_status status = post_records(reducer, AGREE_FOOTER, &reducer->footer_work);
    if (status == LS_OK && reducer->options.late_use && reducer->options.find_unused_parameters)
        status = post_used(reducer, AGREE_FOOTER);
    ls_point("ddp.footer.posted");
    return status;
}

static ls_status await_header(ls_reduction *reducer) {
    LS_TRY(ls_error_raise(&reducer->lost));
    LS_TRY(ls_work_wait(reducer->header_work, 0));
    if (reducer->used_work) LS_TRY(ls_work_wait(reducer->used_work, 0));
    ls_mutex_lock(&reducer->lock);
    take_header(reducer);
    ls_mutex_unlock(&reducer->lock);
    ls_point("ddp.header.taken");
    ls_work_close(&reducer->header_work);
    ls_work_close(&reducer->used_work);
    return LS_OK;
}

static ls_status run_to_the_end(ls_reduction *reducer) {
    LS_TRY(await_header(reducer));
    /* No bucket and no footer, on any rank: all have read the same header. */
    if (!reducer->header_is_good) return reducer_explain(reducer);
    LS_TRY(post_rest(reducer));
    for (int bucket = 0; bucket < reducer->storage.plan.bucket_count; bucket++) LS_TRY(drain_bucket(reducer, bucket));
    return await_footer(reducer);
}

/* Puts back what no rank used, lets go of handles, and readies the schedule for the next step. */
static void clean_up(ls_reduction *reducer, ls_status status) {
    for (int i = 0; i < reducer->count; i++) {
        if (reducer->saved[i] && status == LS_OK && !bitmap_has(reducer->used, i))
            memcpy(storage_gradient(&reducer->storage, i), reducer->saved[i], reducer->bytes[i]);
        ls_free(reducer->saved[i]);
        reducer->saved[i] = NULL;
    }
    for (int i = 0; i < reducer->work_count; i++) ls_work_close(&reducer->works[i]);
    ls_work_close(&reducer->header_work);
    ls_work_close(&reducer->used_work);
    ls_work_close(&reducer->footer_work);
    /* A failed step's order may lack gradients. */
    if (status != LS_OK || reducer->options.keep_buckets) reducer->rebuild_is_due = false;
    ls_mutex_lock(&reducer->lock);
    reducer->failure.status = LS_OK;
    if (status == LS_OK) status = schedule_settled(&reducer->schedule);
    if (status != LS_OK) schedule_reset(&reducer->schedule);
    ls_mutex_unlock(&reducer->lock);
}

ls_status reducer_finish(ls_reduction *reducer, ls_status failure) {
    if (reducer->broken.status != LS_OK) return ls_error_raise(&reducer->broken);
    /* Told in the footer; the first failure is kept. */
    reducer_fail(reducer, failure);
    const ls_status status = run_to_the_end(reducer);
    ls_error error;
    /* Cleaning up may leave other sentences behind. */
    ls_error_capture(&error, status);
    clean_up(reducer, status);
    return ls_error_raise(&error);
}
