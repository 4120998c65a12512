/* explain.c: what went wrong in a step, told alike on all ranks. All have read the same records, so all ask the same
 * questions, and send the same further messages, which a good step never needs. */
#include "base/memory.h"
#include "ddp/bitmap.h"
#include "ddp/reducer.h"

#include <inttypes.h>
#include <stdio.h>

/* "rank 1: fc2.weight, fc2.bias" for each rank that missed some; a few names suffice. */
static ls_status explain_unused(ls_reduction *reducer) {
    const size_t words = bitmap_words(reducer->count);
    /* Only now, after the records said that something is missing: in a good step the bitmaps of each rank never
     * travel. */
    uint64_t *all = ls_alloc_array(words * (size_t)reducer->world_size, sizeof *all);
    ls_status status = agreement_reach(&reducer->agreement, all ? LS_OK : LS_ERR_MEMORY, reducer->step, AGREE_FAILURE);
    if (all && status == LS_OK)
        status = agreement_gather(&reducer->agreement, reducer->used_here, all, words * sizeof *all, reducer->step,
                                  AGREE_FAILURE);
    char text[640] = "";
    size_t used = 0;
    for (int rank = 0; rank < reducer->world_size && all && status == LS_OK && used < sizeof text - 160; rank++) {
        int named = 0;
        for (int i = 0; i < reducer->count && used < sizeof text - 160; i++) {
            if (bitmap_has(all + (size_t)rank * words, i)) continue;
            const int wrote = named++ ? snprintf(text + used, sizeof text - used, ", %.64s", reducer->names[i])
                                      : snprintf(text + used, sizeof text - used, "%srank %d: %.64s", used ? "; " : "",
                                                 rank, reducer->names[i]);
            used += (size_t)wrote;
            if (named == 8) break;
        }
    }
    ls_free(all);
    if (status != LS_OK) return status;
    return ls_fail(LS_ERR_UNUSED,
                   "backward %" PRIu64
                   ": parameters got no gradient (%s); if the loss need not reach every parameter, set "
                   "find_unused_parameters",
                   reducer->step, text);
}

static ls_status explain_steps(ls_reduction *reducer) {
    uint64_t furthest = 0;
    int other = 0;
    for (int rank = 0; rank < reducer->world_size; rank++) {
        if (reducer->records[rank].step > furthest) furthest = reducer->records[rank].step;
        /* Any rank that differs from rank 0 makes the sentence; one is enough to find the mistake. */
        if (reducer->records[rank].step != reducer->records[0].step) other = rank;
    }
    reducer->step = furthest; /* in step again: what was accumulated is lost, as after any failed step */
    return ls_fail(
        LS_ERR_MISMATCH,
        "rank 0 synchronises backward %" PRIu64 ", rank %d backward %" PRIu64
        ": a rank skipped or repeated a synchronised backward (no_sync on some ranks only, or batches that differ in "
        "number); let all ranks synchronise the same steps",
        reducer->records[0].step, other, reducer->records[other].step);
}

static ls_status explain_nonfinite(const ls_reduction *reducer) {
    int rank = 0;
    while (!reducer->records[rank].nonfinite) rank++;
    return ls_fail(LS_ERR_NONFINITE,
                   "backward %" PRIu64
                   ": the gradient of %s on rank %d holds NaN or infinity; no rank updates: lower the "
                   "learning rate, clip, or skip the batch",
                   reducer->step, reducer->names[reducer->records[rank].nonfinite - 1], rank);
}

/* The records tell that the step failed; all ranks read the same records and take the same way. */
ls_status reducer_explain(ls_reduction *reducer) {
    bool steps_differ = false, plans_differ = false, has_failure = false, has_nonfinite = false;
    for (int rank = 0; rank < reducer->world_size; rank++) {
        has_failure |= reducer->records[rank].status != LS_OK;
        has_nonfinite |= reducer->records[rank].nonfinite != 0;
        steps_differ |= reducer->records[rank].step != reducer->records[0].step;
        plans_differ |= reducer->records[rank].plan_digest != reducer->records[0].plan_digest;
    }
    /* The order of the questions is the order of causes: ranks in different steps explain all else that differs. */
    if (steps_differ) return explain_steps(reducer);
    if (plans_differ) return ls_fail(LS_ERR_MISMATCH, "ranks lay out their buckets differently: a bug in the rebuild");
    if (!has_failure) return has_nonfinite ? explain_nonfinite(reducer) : explain_unused(reducer);
    const ls_status status = ls_error_raise(&reducer->failure);
    return agreement_reach(&reducer->agreement, status, reducer->step, AGREE_FAILURE);
}
