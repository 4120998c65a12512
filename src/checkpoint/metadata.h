/* metadata.h: the numbers of a training state as the texts of __metadata__, without loss, both ways. */
#ifndef LS_CHECKPOINT_METADATA_H
#define LS_CHECKPOINT_METADATA_H

#include "checkpoint/safetensors.h"

#include <lockstep/checkpoint.h>

/* Makes the table of texts, the caller's; NULL on error. `optim` and `state` may be NULL.
 * Errors: LS_ERR_MEMORY; LS_ERR_ARGUMENT when the learning rate is no finite number. */
ls_status metadata_write(json_t **metadata, const ls_optim *optim, const ls_checkpoint_state *state);

/* Reads the training state back. Errors: LS_ERR_MISMATCH when it is not there, LS_ERR_FORMAT. */
ls_status metadata_read_state(const safetensors *file, ls_checkpoint_state *state);

/* Reads the optimizer's update counts [count] back. Errors: as above; LS_ERR_MISMATCH for another number of
 * parameters. */
ls_status metadata_read_update_counts(const safetensors *file, int64_t *counts, int count);

#endif
