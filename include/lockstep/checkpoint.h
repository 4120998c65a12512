/* lockstep/checkpoint.h: training state in safetensors files.
 *
 * Parameters and buffers stand under their bare PyTorch names and shapes, optimizer state as optim.<name>, everything else
 * as texts in __metadata__, so that other tools read the weights as they are.                                          */
#ifndef LOCKSTEP_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_H

#include <lockstep/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is needed to go on bit for bit. */
typedef struct ls_checkpoint_state {
    uint64_t step;
    int64_t epoch;
    int64_t batch; /* batches of the epoch already done */
    uint64_t seed;
    double lr;
} ls_checkpoint_state;

/* Writes `path` through a temporary file beside it, synced and then renamed: a reader sees the old file or the new one, and
 * after any failure (a full disk, kill -9) the old one. optim NULL: weights alone; state NULL: no metadata of ours.
 * One rank calls (rank 0: replicas are equal). Errors: LS_ERR_IO names the file and what to do, LS_ERR_MEMORY. */
LS_API ls_status ls_checkpoint_save(const char *path, const ls_module *module, const ls_optim *optim,
                                    const ls_checkpoint_state *state);

/* Reads it back, every rank for itself. All names, shapes and dtypes are checked before anything is changed: on error the
 * module and the optimizer are as they were.
 * Errors: LS_ERR_IO, LS_ERR_FORMAT (the file is taken as hostile), LS_ERR_MISMATCH names the first tensor that differs. */
LS_API ls_status ls_checkpoint_load(const char *path, ls_module *module, ls_optim *optim, ls_checkpoint_state *state);

#ifdef __cplusplus
}
#endif
#endif
