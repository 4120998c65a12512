/* lockstep/optim.h: optimizers: one pass over memory a parameter.
 *
 * An optimizer holds the module's parameters, so that either may be closed first. Made before or after a wrap.
 * Parameters without a gradient are left alone: no momentum, no decay.                                               */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include <lockstep/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_optim ls_optim;

/* PyTorch's SGD: g += weight_decay w; m = momentum m + g (the first time m = g); w -= lr (nesterov ? g + momentum m :
 * m). */
typedef struct ls_sgd_options {
    double lr; /* must be positive */
    double momentum;
    double weight_decay;
    bool nesterov; /* needs momentum */
} ls_sgd_options;

/* PyTorch's AdamW (Loshchilov and Hutter, 2019): zeroes mean beta1 0.9, beta2 0.999, eps 1e-8; weight_decay has no
 * default. */
typedef struct ls_adamw_options {
    double lr; /* must be positive */
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
} ls_adamw_options;

/* An optimizer over all parameters that `module` has now, its state zeroed; the caller's. Options are copied.
 * Errors: LS_ERR_ARGUMENT names the option, its value and what is allowed; LS_ERR_MEMORY; LS_ERR_UNSUPPORTED. */
LS_API ls_status ls_sgd_create(ls_optim **optim, ls_module *module, const ls_sgd_options *options);
LS_API ls_status ls_adamw_create(ls_optim **optim, ls_module *module, const ls_adamw_options *options);
LS_API void ls_optim_close(ls_optim **optim);

/* Updates every parameter that has a gradient. Does nothing in a step that has failed, and returns its status. Call it
 * on the thread of the step, in the step or behind it. */
LS_API ls_status ls_optim_step(ls_optim *optim);

/* Forgets the gradients of all parameters. */
LS_API void ls_optim_zero_grad(ls_optim *optim);

/* The learning rate in force, from the next update on. */
LS_API double ls_optim_lr(const ls_optim *optim);
LS_API void ls_optim_set_lr(ls_optim *optim, double lr);

/* lr = base * gamma^(epoch / step_epochs), whole division: a step schedule; step_epochs 0 keeps the base. Call at the
 * start of each epoch. */
typedef struct ls_step_schedule {
    double base_lr;
    double gamma;
    int step_epochs;
} ls_step_schedule;
LS_API void ls_step_schedule_apply(const ls_step_schedule *schedule, ls_optim *optim, int epoch);

/* State for checkpoints: named tensors "<parameter>.momentum", "<parameter>.exp_avg", "<parameter>.exp_avg_sq", in a
 * fixed order, made (zeroed) when the optimizer is created. Owned by the optimizer; NULL for an index out of range. */
LS_API int ls_optim_state_count(const ls_optim *optim);
LS_API ls_tensor *ls_optim_state(const ls_optim *optim, int index);
LS_API const char *ls_optim_state_name(const ls_optim *optim, int index);

/* The number of updates made to each parameter, [parameter count] in the module's order: AdamW's bias correction and
 * SGD's first momentum depend on it. Copied out and in. */
LS_API int ls_optim_parameter_count(const ls_optim *optim);
LS_API void ls_optim_update_counts(const ls_optim *optim, int64_t *counts);
LS_API void ls_optim_set_update_counts(ls_optim *optim, const int64_t *counts);

#ifdef __cplusplus
}
#endif
#endif
