/* reducer.c: setting a reducer up, and laying its buckets out anew. The step itself is in reducer_step.c. */
#include "ddp/reducer.h"

#include "base/digest.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "ddp/bitmap.h"

#include <stdio.h>
#include <string.h>

static uint64_t plan_digest(const bucket_plan *plan) {
    const size_t count = (size_t)plan->parameter_count;
    /* Where each parameter lies decides what is added to what: ranks that differ here must never reduce. */
    const uint64_t digest = ls_digest(LS_DIGEST_START, plan->bucket_of, count * sizeof *plan->bucket_of);
    return ls_digest(digest, plan->offset_of, count * sizeof *plan->offset_of);
}

static size_t item_bytes(const verify_item *item) {
    size_t bytes = ls_dtype_size(item->dtype);
    for (int dim = 0; dim < item->ndim; dim++) bytes *= (size_t)item->dims[dim];
    return bytes;
}

/* Copies what is kept of the items that need gradients. */
static ls_status take_items(ls_reduction *reducer, const verify_item *items, int item_count) {
    int at = 0;
    for (int i = 0; i < item_count; i++) {
        /* Compared, but not reduced: frozen parameters and buffers. */
        if (!items[i].requires_grad) continue;
        reducer->bytes[at] = item_bytes(&items[i]);
        reducer->dtypes[at] = items[i].dtype;
        if (!(reducer->names[at++] = ls_strdup(items[i].name))) return LS_ERR_MEMORY;
    }
    return LS_OK;
}

static ls_status allocate(ls_reduction *reducer) {
    const size_t count = (size_t)reducer->count, words = bitmap_words(reducer->count);
    reducer->names = ls_alloc_array(count, sizeof *reducer->names);
    reducer->bytes = ls_alloc_array(count, sizeof *reducer->bytes);
    reducer->dtypes = ls_alloc_array(count, sizeof *reducer->dtypes);
    reducer->records = ls_alloc_array((size_t)reducer->world_size, sizeof *reducer->records);
    reducer->used = ls_alloc_array(words, sizeof *reducer->used);
    reducer->used_here = ls_alloc_array(words, sizeof *reducer->used_here);
    reducer->is_reached = ls_alloc_array(count, sizeof *reducer->is_reached);
    reducer->saved = ls_alloc_array(count, sizeof *reducer->saved);
    /* At most one run a parameter: neighbours that are used share one. */
    reducer->works = ls_alloc_array(count, sizeof(ls_work *));
    reducer->ready_order = ls_alloc_array(count, sizeof *reducer->ready_order);
    reducer->ready_ns = ls_alloc_array(count, sizeof *reducer->ready_ns);
    const bool is_whole = reducer->names && reducer->bytes && reducer->dtypes && reducer->records && reducer->used &&
                          reducer->used_here && reducer->is_reached && reducer->saved && reducer->works &&
                          reducer->ready_order && reducer->ready_ns;
    return is_whole ? LS_OK : LS_ERR_MEMORY;
}

/* What follows from a layout and needs memory of its own. */
typedef struct bucket_layout {
    bucket_plan plan;
    ls_schedule schedule;
    bucket_slot *slots;
    void **memory; /* for the addresses of buckets */
} bucket_layout;

static void layout_clear(bucket_layout *layout) {
    bucket_plan_clear(&layout->plan);
    schedule_clear(&layout->schedule);
    ls_free(layout->slots);
    ls_free(layout->memory);
    layout->slots = NULL;
    layout->memory = NULL;
}

/* Lays buckets out along `order`. Parameters of no elements are in a bucket, but the schedule does not count them. */
static ls_status layout_init(bucket_layout *layout, const ls_reduction *reducer, const int *order) {
    *layout = (bucket_layout){0};
    const bucket_request request = {.parameter_count = reducer->count,
                                    .bytes = reducer->bytes,
                                    .dtypes = reducer->dtypes,
                                    .order = order,
                                    .cap_bytes = reducer->options.bucket_cap_bytes,
                                    .first_cap_bytes = reducer->options.first_bucket_cap_bytes};
    LS_TRY(bucket_plan_init(&layout->plan, &request));
    int *counted = ls_alloc_array((size_t)reducer->count, sizeof *counted);
    layout->slots = ls_alloc_array((size_t)layout->plan.bucket_count, sizeof *layout->slots);
    layout->memory = ls_alloc_array((size_t)layout->plan.bucket_count, sizeof *layout->memory);
    ls_status status = counted && layout->slots && layout->memory ? LS_OK : LS_ERR_MEMORY;
    for (int i = 0; i < reducer->count && status == LS_OK; i++)
        /* Nothing would ever mark it, and its bucket would wait for ever. */
        counted[i] = reducer->bytes[i] > 0 ? layout->plan.bucket_of[i] : -1;
    if (status == LS_OK) status = schedule_init(&layout->schedule, reducer->count, layout->plan.bucket_count, counted);
    for (int bucket = 0; bucket < layout->plan.bucket_count && status == LS_OK; bucket++)
        snprintf(layout->slots[bucket].name, sizeof layout->slots->name, "bucket %d", bucket);
    ls_free(counted);
    if (status != LS_OK) layout_clear(layout);
    return status;
}

static void adopt(ls_reduction *reducer, bucket_layout *layout) {
    /* The schedule is read under it by whoever marks, from any thread. */
    ls_mutex_lock(&reducer->lock);
    schedule_clear(&reducer->schedule);
    ls_free(reducer->slots);
    reducer->schedule = layout->schedule;
    reducer->slots = layout->slots;
    reducer->plan_digest = plan_digest(&reducer->storage.plan);
    ls_mutex_unlock(&reducer->lock);
    *layout = (bucket_layout){0};
}

/* Everything that can fail on one rank alone, before ranks agree. */
static ls_status prepare(ls_reduction *reducer, const verify_item *items, int item_count, bucket_layout *layout) {
    LS_TRY(allocate(reducer));
    LS_TRY(take_items(reducer, items, item_count));
    if (reducer->count == 0)
        return ls_fail(LS_ERR_ARGUMENT,
                       "nothing to average: none of the %d parameters needs a gradient; "
                       "train without a wrap, or let some require gradients",
                       item_count);
    /* A guess until they have come once: gradients come from the last layer. */
    for (int i = 0; i < reducer->count; i++) reducer->ready_order[i] = reducer->count - 1 - i;
    LS_TRY(layout_init(layout, reducer, reducer->ready_order));
    /* One a gradient at most; header, footer, who used what, and what blocks beside them. */
    return group_prepare(reducer->group, reducer->count + 4);
}

static uint64_t options_digest(const reducer_options *options) {
    const uint64_t facts[] = {options->bucket_cap_bytes,       options->first_bucket_cap_bytes,
                              options->find_unused_parameters, options->find_nonfinite,
                              options->keep_buckets,           options->late_use};
    return ls_digest(LS_DIGEST_START, facts, sizeof facts);
}

ls_status reducer_init(ls_reduction *reducer, ls_group *group, ls_status status, const verify_item *items,
                       int item_count, const reducer_options *options) {
    *reducer = (ls_reduction){.options = *options};
    bucket_layout layout = {0};
    ls_error failure;
    ls_error_capture(&failure, status); /* what follows may leave sentences of its own */
    ls_mutex_init(&reducer->lock);
    /* Before anything can fail: reducer_clear goes by it. */
    for (int i = 0; i < item_count; i++) reducer->count += items[i].requires_grad;
    reducer->world_size = ls_group_world_size(group);
    /* A group of its own: the order of the reducer's operations never mixes with that of the user's. */
    ls_status group_status = ls_group_duplicate(&reducer->group, group);
    if (group_status == LS_OK) group_status = agreement_init(&reducer->agreement, reducer->group);
    if (group_status != LS_OK) {
        /* Without memory for an agreement this is how the others hear of it. */
        ls_error_capture(&failure, group_status);
        ls_group_abort(reducer->group, failure.text);
        reducer_clear(reducer);
        return ls_error_raise(&failure);
    }
    status = ls_error_raise(&failure);
    /* What is local comes first and is told by verify_equal; what is collective follows where all are well. */
    if (status == LS_OK) status = prepare(reducer, items, item_count, &layout);
    status = verify_equal(&reducer->agreement, status, items, item_count, options_digest(options));
    if (status == LS_OK) status = storage_init(&reducer->storage, reducer->group, &layout.plan, &layout.memory);
    if (status == LS_OK) adopt(reducer, &layout);
    layout_clear(&layout);
    if (status != LS_OK) reducer_clear(reducer);
    return status;
}

ls_status reducer_refuse(ls_group *group, ls_status status, const reducer_options *options) {
    /* Only the way through the collective part: reducer_init holds nothing afterwards, as `status` is an error. */
    ls_reduction none;
    return reducer_init(&none, group, status, NULL, 0, options);
}

/* A step is under way: what was posted reads and writes our memory until it has ended. */
static void end_step(ls_reduction *reducer) {
    ls_error last; /* closing is clean-up: the failure that led to it stays this thread's last */
    ls_error_capture(&last, LS_ERR_ABORTED);
    /* Else the waits below would be for peers that may never come. */
    ls_group_abort(reducer->group, "the reducer was closed within a step");
    ls_work_wait(reducer->header_work, 0);
    ls_work_close(&reducer->header_work);
    if (reducer->used_work) ls_work_wait(reducer->used_work, 0);
    ls_work_close(&reducer->used_work);
    for (int i = 0; i < reducer->work_count; i++) {
        ls_work_wait(reducer->works[i], 0);
        ls_work_close(&reducer->works[i]);
    }
    ls_error_raise(&last);
}

void reducer_clear(ls_reduction *reducer) {
    /* From begin to finish there is a header, and at no other time. */
    if (reducer->header_work) end_step(reducer);
    storage_clear(&reducer->storage);
    schedule_clear(&reducer->schedule);
    agreement_clear(&reducer->agreement);
    ls_group_close(&reducer->group);
    for (int i = 0; i < reducer->count; i++) {
        if (reducer->names) ls_free(reducer->names[i]);
        if (reducer->saved) ls_free(reducer->saved[i]);
    }
    ls_free(reducer->names);
    ls_free(reducer->bytes);
    ls_free(reducer->dtypes);
    ls_free(reducer->records);
    ls_free(reducer->used);
    ls_free(reducer->used_here);
    ls_free(reducer->is_reached);
    ls_free(reducer->saved);
    ls_free(reducer->works);
    ls_free(reducer->slots);
    ls_free(reducer->ready_order);
    ls_free(reducer->ready_ns);
    ls_mutex_destroy(&reducer->lock);
    *reducer = (ls_reduction){0};
}

void reducer_skip(ls_reduction *reducer) {
    /* Steps under no_sync count: a rank that skips where others synchronise is found by the number in the header. */
    reducer->step++;
}

/* Completes `ready_order`: those that did not come last, in their present order; rank 0's in the end. */
static ls_status agree_on_order(ls_reduction *reducer) {
    const bucket_plan *plan = &reducer->storage.plan;
    int *order = reducer->ready_order, at = reducer->ready_count;
    for (int i = 0; i < reducer->count; i++) reducer->is_reached[i] = false; /* between steps it is free to use */
    for (int i = 0; i < at; i++) reducer->is_reached[order[i]] = true;
    /* Behind the others, where they hold up no bucket but the last. */
    for (int member = 0; member < reducer->count; member++)
        if (!reducer->is_reached[plan->members[member]]) order[at++] = plan->members[member];
    return agreement_broadcast(&reducer->agreement, order, (size_t)reducer->count * sizeof *order, reducer->step,
                               AGREE_REBUILD);
}

/* The new layout, on all ranks or on none. */
static ls_status agree_on_layout(ls_reduction *reducer, bucket_layout *layout) {
    LS_TRY(agree_on_order(reducer));
    ls_point("ddp.rebuild.ordered");
    const ls_status status = layout_init(layout, reducer, reducer->ready_order);
    return agreement_reach(&reducer->agreement, status, reducer->step, AGREE_REBUILD);
}

ls_status reducer_rebuild(ls_reduction *reducer, storage_move move, void *context) {
    /* Set from the records in the header, which all ranks have alike: all of them come here or none. */
    if (!reducer->rebuild_is_due) return LS_OK;
    bucket_layout layout = {0};
    ls_status status = agree_on_layout(reducer, &layout);
    if (status == LS_OK) {
        reducer->rebuild_is_due = false;
        reducer->has_rebuilt = true;
        /* The usual order is the guess that the first layout was made with: then nothing needs to move. */
        if (!bucket_plan_equal(&layout.plan, &reducer->storage.plan)) {
            /* Only the move can go wrong on one rank alone: the order, which all know by now, serves as scratch. */
            status = storage_rebuild(&reducer->storage, &layout.plan, &layout.memory, reducer->bytes,
                                     reducer->ready_order, move, context);
            if (status == LS_OK) adopt(reducer, &layout);
            ls_point("ddp.rebuild.moved");
        }
    }
    layout_clear(&layout);
    if (status != LS_OK) {
        /* Some gradients are in each layout, perhaps on this rank alone: nobody may go on with it. */
        ls_error_capture(&reducer->broken, status);
        ls_group_abort(reducer->group, reducer->broken.text);
        ls_error_raise(&reducer->broken);
    }
    return status;
}
