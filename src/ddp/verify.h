/* verify.h: that all ranks wrapped the same thing. */
#ifndef LS_DDP_VERIFY_H
#define LS_DDP_VERIFY_H

#include "ddp/agreement.h"

/* One parameter or buffer as it is compared. */
typedef struct verify_item {
    const char *name;
    ls_dtype dtype;
    int ndim;
    const int64_t *dims;
    bool requires_grad;
} verify_item;

/* Collective: compares the lists and the options (by digest) of all ranks. `status` is this rank's so far: a rank that
 * failed before still takes part, so that none waits for it.
 * Errors, alike on all ranks: any rank's `status`; LS_ERR_MISMATCH names the first item that differs and both ranks. */
ls_status verify_equal(ls_agreement *agreement, ls_status status, const verify_item *items, int count,
                       uint64_t options_digest);

#endif
