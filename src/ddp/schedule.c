/* schedule.c: which bucket may start, and when backward is over. Pure: no thread, clock, allocation after setup, or
 * I/O.
 *
 *         schedule_arm              schedule_agreed                schedule_launch (last)
 *   idle --------------> agreeing -----------------> launching -----------------------> draining
 *   draining -- schedule_reduced (last) --> settling -- schedule_settled --> idle
 *   any state -- schedule_fail --> broken -- schedule_reset --> idle
 *
 *   agreeing   the header is under way: marks are recorded, nothing starts
 *   launching  buckets [0, next) have started; bucket `next` starts as soon as pending[next] is 0
 *   draining   every bucket has started; `unreduced` counts those whose sums are not back
 *   settling   all sums are back; gradients are being made averages
 *   broken     the step failed: marks are ignored, nothing starts
 *
 * 1. Buckets start in index order, whatever order gradients come in, so that all ranks call alike.
 * 2. A parameter is marked once a step; a second mark is LS_ERR_STATE and changes nothing.
 * 3. A bucket may be reduced while later ones still wait for gradients; it must have started.
 * 4. Without buckets, agreed leads straight to settling.                                                             */
#include "ddp/schedule.h"

#include "base/error.h"
#include "base/memory.h"

/* The names of the drawing above; errors, tests and the simulator print them. */
static const char *const state_names[SCHEDULE_STATE_COUNT] = {"idle",     "agreeing", "launching",
                                                              "draining", "settling", "broken"};

const char *schedule_state_name(schedule_state state) {
    return (unsigned)state < SCHEDULE_STATE_COUNT ? state_names[state] : "unknown";
}

static ls_status refuse(const ls_schedule *schedule, const char *event) {
    return ls_fail(LS_ERR_STATE, "the schedule is %s: \"%s\" does not fit here", state_names[schedule->state], event);
}

ls_status schedule_init(ls_schedule *schedule, int parameter_count, int bucket_count, const int *bucket_of) {
    const size_t parameters = (size_t)parameter_count, buckets = (size_t)bucket_count;
    *schedule = (ls_schedule){.parameter_count = parameter_count, .bucket_count = bucket_count};
    schedule->bucket_of = ls_alloc_array(parameters, sizeof *schedule->bucket_of);
    schedule->is_marked = ls_alloc_array(parameters, sizeof *schedule->is_marked);
    schedule->member_count = ls_alloc_array(buckets, sizeof *schedule->member_count);
    schedule->pending = ls_alloc_array(buckets, sizeof *schedule->pending);
    schedule->is_reduced = ls_alloc_array(buckets, sizeof *schedule->is_reduced);
    if (!schedule->bucket_of || !schedule->is_marked || !schedule->member_count || !schedule->pending ||
        !schedule->is_reduced) {
        schedule_clear(schedule);
        return LS_ERR_MEMORY;
    }
    for (int parameter = 0; parameter < parameter_count; parameter++) {
        schedule->bucket_of[parameter] = bucket_of[parameter];
        /* Counted once, at setup: a step begins by copying these counts. */
        if (bucket_of[parameter] >= 0) schedule->member_count[bucket_of[parameter]]++;
    }
    return LS_OK;
}

void schedule_clear(ls_schedule *schedule) {
    ls_free(schedule->bucket_of);
    ls_free(schedule->is_marked);
    ls_free(schedule->member_count);
    ls_free(schedule->pending);
    ls_free(schedule->is_reduced);
    *schedule = (ls_schedule){0};
}

ls_status schedule_arm(ls_schedule *schedule) {
    if (schedule->state != SCHEDULE_IDLE) return refuse(schedule, "arm");
    schedule->unmarked = 0;
    for (int parameter = 0; parameter < schedule->parameter_count; parameter++) {
        /* Without elements it is complete from the start. */
        schedule->is_marked[parameter] = schedule->bucket_of[parameter] < 0;
        schedule->unmarked += !schedule->is_marked[parameter];
    }
    for (int bucket = 0; bucket < schedule->bucket_count; bucket++) {
        schedule->pending[bucket] = schedule->member_count[bucket];
        schedule->is_reduced[bucket] = false;
    }
    schedule->next = 0;
    schedule->unreduced = schedule->bucket_count;
    schedule->state = SCHEDULE_AGREEING;
    return LS_OK;
}

ls_status schedule_agreed(ls_schedule *schedule) {
    if (schedule->state != SCHEDULE_AGREEING) return refuse(schedule, "agreed");
    schedule->state = schedule->bucket_count > 0 ? SCHEDULE_LAUNCHING : SCHEDULE_SETTLING;
    return LS_OK;
}

ls_status schedule_mark(ls_schedule *schedule, int parameter) {
    if (schedule->state == SCHEDULE_BROKEN) return LS_OK; /* the gradient of a step that has failed */
    if (parameter < 0 || parameter >= schedule->parameter_count)
        return ls_fail(LS_ERR_ARGUMENT, "there is no parameter %d: the schedule has %d", parameter,
                       schedule->parameter_count);
    if (schedule->state == SCHEDULE_IDLE) return refuse(schedule, "mark");
    const int bucket = schedule->bucket_of[parameter];
    /* A mark for it does no harm, however often it comes. */
    if (bucket < 0) return LS_OK;
    if (schedule->is_marked[parameter])
        return ls_fail(LS_ERR_STATE,
                       "parameter %d is marked ready twice in one step; mark it once, when its gradient is complete",
                       parameter);
    schedule->is_marked[parameter] = true;
    schedule->pending[bucket]--;
    schedule->unmarked--;
    return LS_OK;
}

bool schedule_launch(ls_schedule *schedule, int *bucket) {
    if (schedule->state != SCHEDULE_LAUNCHING || schedule->pending[schedule->next] > 0) return false;
    *bucket = schedule->next++;
    if (schedule->next == schedule->bucket_count) schedule->state = SCHEDULE_DRAINING;
    return true;
}

ls_status schedule_reduced(ls_schedule *schedule, int bucket) {
    if (schedule->state != SCHEDULE_LAUNCHING && schedule->state != SCHEDULE_DRAINING)
        return refuse(schedule, "reduced");
    if (bucket < 0 || bucket >= schedule->next)
        return ls_fail(LS_ERR_STATE, "bucket %d is reduced, but only %d have started", bucket, schedule->next);
    if (schedule->is_reduced[bucket]) return ls_fail(LS_ERR_STATE, "bucket %d is reduced twice in one step", bucket);
    schedule->is_reduced[bucket] = true;
    schedule->unreduced--;
    if (schedule->state == SCHEDULE_DRAINING && schedule->unreduced == 0) schedule->state = SCHEDULE_SETTLING;
    return LS_OK;
}

ls_status schedule_settled(ls_schedule *schedule) {
    if (schedule->state != SCHEDULE_SETTLING) return refuse(schedule, "settled");
    schedule->state = SCHEDULE_IDLE;
    return LS_OK;
}

void schedule_fail(ls_schedule *schedule) {
    schedule->state = SCHEDULE_BROKEN;
}

void schedule_reset(ls_schedule *schedule) {
    schedule->state = SCHEDULE_IDLE;
}
