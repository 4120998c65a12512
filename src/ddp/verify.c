/* verify.c: compares what ranks are about to train together.
 *
 * In the good case one small all-gather of digests. Only when they differ are the digests of all items exchanged, and
 * then the descriptions of the first item that differs: so the message can show both sides.                          */
#include "ddp/verify.h"

#include "base/digest.h"
#include "base/fault.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DESCRIPTION_BYTES 384 /* a name of 120, eight dims of 20 digits, and what is between them */

typedef struct summary {
    int64_t count;
    uint64_t items;
    uint64_t options;
} summary;

static void describe(const verify_item *items, int count, int64_t index, char *text) {
    if (index >= count) {
        /* This rank has fewer than the other: its side of the difference. */
        snprintf(text, DESCRIPTION_BYTES, "only %d", count);
        return;
    }
    const verify_item *item = &items[index];
    int used = snprintf(text, DESCRIPTION_BYTES, "\"%.120s\" %s [", item->name, ls_dtype_name(item->dtype));
    for (int dim = 0; dim < item->ndim && used < DESCRIPTION_BYTES - 32; dim++)
        used += snprintf(text + used, DESCRIPTION_BYTES - (size_t)used, "%s%" PRId64, dim ? ", " : "", item->dims[dim]);
    snprintf(text + used, DESCRIPTION_BYTES - (size_t)used, "]%s", item->requires_grad ? "" : " frozen");
}

/* What is shown of an item, and its whole name: items are alike when these are. */
static uint64_t item_digest(const verify_item *items, int count, int index) {
    char text[DESCRIPTION_BYTES];
    describe(items, count, index, text);
    const uint64_t digest = ls_digest(LS_DIGEST_START, items[index].name, strlen(items[index].name) + 1);
    return ls_digest(digest, text, strlen(text));
}

/* All ranks know that their lists differ: finds the first difference and shows both sides. */
static ls_status explain(ls_agreement *agreement, const summary *summaries, const verify_item *items, int count) {
    const int world_size = agreement->world_size;
    ls_status status = LS_ERR_MEMORY;
    int64_t widest = 0;
    for (int rank = 0; rank < world_size; rank++)
        /* All send as much as the longest list takes: an all-gather has one size. */
        if (summaries[rank].count > widest) widest = summaries[rank].count;
    const size_t width = (size_t)widest;
    uint64_t *own = ls_alloc_array(width, sizeof *own);
    uint64_t *all = ls_alloc_array(width * (size_t)world_size, sizeof *all);
    char(*texts)[DESCRIPTION_BYTES] = ls_alloc_array((size_t)world_size, sizeof *texts);
    char text[DESCRIPTION_BYTES] = {0};
    status = agreement_reach(agreement, own && all && texts ? LS_OK : status, 0, AGREE_VERIFY);
    if (!own || !all || !texts || status != LS_OK) goto out;               /* on all ranks alike */
    for (int i = 0; i < count; i++) own[i] = item_digest(items, count, i); /* past the end: 0, which differs */
    if ((status = agreement_gather(agreement, own, all, width * sizeof *own, 0, AGREE_VERIFY))) goto out;

    int64_t index = 0;
    int other = 0;
    /* The first index at which some rank differs from rank 0, and the lowest such rank. */
    for (; index < widest && !other; index += !other)
        for (int rank = 1; rank < world_size && !other; rank++)
            if (all[(size_t)rank * width + (size_t)index] != all[index]) other = rank;
    describe(items, count, index, text);
    if ((status = agreement_gather(agreement, text, texts, DESCRIPTION_BYTES, 0, AGREE_VERIFY))) goto out;
    status = ls_fail(LS_ERR_MISMATCH,
                     "ranks do not train the same model: parameter %" PRId64 " of rank 0 is %s, of rank %d %s (%" PRId64
                     " and %" PRId64 " parameters); build the same model on every rank",
                     index, texts[0], other, texts[other], summaries[0].count, summaries[other].count);
out:
    ls_free(own);
    ls_free(all);
    ls_free(texts);
    return status;
}

ls_status verify_equal(ls_agreement *agreement, ls_status status, const verify_item *items, int count,
                       uint64_t options_digest) {
    summary own = {.count = count, .items = LS_DIGEST_START, .options = options_digest};
    for (int i = 0; i < count; i++) {
        const uint64_t digest = item_digest(items, count, i);
        own.items = ls_digest(own.items, &digest, sizeof digest);
    }
    summary *summaries = status == LS_OK ? ls_alloc_array((size_t)agreement->world_size, sizeof *summaries) : NULL;
    if (status == LS_OK && !summaries) status = LS_ERR_MEMORY;
    status = agreement_reach(agreement, status, 0, AGREE_VERIFY);
    ls_point("ddp.verify.agreed");
    if (!summaries || status != LS_OK) goto out; /* on all ranks alike */
    status = agreement_gather(agreement, &own, summaries, sizeof own, 0, AGREE_VERIFY);
    ls_point("ddp.verify.exchanged");
    for (int rank = 1; rank < agreement->world_size && status == LS_OK; rank++) {
        if (summaries[rank].count != summaries[0].count || summaries[rank].items != summaries[0].items)
            status = explain(agreement, summaries, items, count);
        else if (summaries[rank].options != summaries[0].options)
            status = ls_fail(LS_ERR_MISMATCH, "ranks 0 and %d wrapped with different options; give all ranks the same",
                             rank);
    }
out:
    ls_free(summaries);
    return status;
}
