/* lockstep/checkpoint.h: training state in safetensors files.
 *
 * Parameters and buffers stand under their bare PyTorch names and shapes, optimizer state as optim.<name>, everything
 * else as texts in __metadata__, so that other tools read the weights as they are.                                   */
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

/* Writes `path` through a temporary file beside it ("<path>.partial"), synced and then renamed: a reader sees the old
 * file or the new one, and after a failure (a full disk, kill -9) the old one. optim NULL: no optimizer state; state
 * NULL: no step, epoch, batch, seed and lr. One rank calls (rank 0: replicas are equal).
 * Errors: LS_ERR_IO names the file and what to do, LS_ERR_ARGUMENT, LS_ERR_MEMORY. */
LS_API ls_status ls_checkpoint_save(const char *path, const ls_module *module, const ls_optim *optim,
                                    const ls_checkpoint_state *state);

/* Reads it back, every rank for itself. All names, shapes and dtypes are checked before anything is changed: on error
 * the module, the optimizer and `state` are as they were. optim NULL leaves optimizer state in the file aside, state
 * NULL the rest. The caller hands seed, step, position and lr on: ls_seed_set, ls_step_number_set,
 * ls_loader_set_position, ls_optim_set_lr.
 * Errors: LS_ERR_IO, LS_ERR_FORMAT (the file is taken as hostile), LS_ERR_MISMATCH names the first tensor that
 * differs. */
LS_API ls_status ls_checkpoint_load(const char *path, ls_module *module, ls_optim *optim, ls_checkpoint_state *state);

#ifdef __cplusplus
}
#endif
#endif
