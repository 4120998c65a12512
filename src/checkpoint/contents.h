/* contents.h: what a checkpoint holds of a module and its optimizer: the tensors under the names they have in the
 * file. */
#ifndef LS_CHECKPOINT_CONTENTS_H
#define LS_CHECKPOINT_CONTENTS_H

#include <lockstep/optim.h>

#define CHECKPOINT_OPTIM_PREFIX "optim."

typedef struct checkpoint_tensor {
    char *name; /* owned */
    ls_tensor *tensor;
} checkpoint_tensor;

typedef struct checkpoint_contents {
    checkpoint_tensor *tensors; /* [count], owned: parameters, buffers, optimizer state */
    int count;
    void *scratch; /* for one tensor in logical order: as large as the largest; owned */
} checkpoint_contents;

/* Lists the tensors; `optim` may be NULL. On error nothing is owned. Errors: LS_ERR_MEMORY. */
ls_status checkpoint_list(checkpoint_contents *contents, const ls_module *module, const ls_optim *optim);
void checkpoint_contents_free(checkpoint_contents *contents);

/* Bytes of a tensor's elements. */
size_t checkpoint_tensor_bytes(const ls_tensor *tensor);

#endif
