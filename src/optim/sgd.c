/* sgd.c: stochastic gradient descent as PyTorch does it: momentum without dampening (Sutskever et al., 2013), which
 * starts as the first gradient itself, weight decay as part of the gradient. */
#include "optim/optim.h"

#include "base/error.h"

#include <math.h>

static ls_status apply(const ls_optim *optim, const optim_update *update) {
    const kernels_sgd sgd = {.lr = optim->lr,
                             .momentum = optim->options.sgd.momentum,
                             .weight_decay = optim->options.sgd.weight_decay,
                             .nesterov = optim->options.sgd.nesterov,
                             /* PyTorch starts momentum at the first gradient, not at zero. */
                             .is_first = update->update == 1};
    return update->kernels->sgd_step(update->count, &sgd, update->gradient, update->weight, update->states[0]);
}

static const optim_rule plain = {.name = "SGD", .apply = apply};
static const optim_rule with_momentum = {.name = "SGD", .apply = apply, .state_count = 1, .state_names = {"momentum"}};

static ls_status check(const ls_sgd_options *options) {
    LS_TRY(optim_check("SGD", "lr", options->lr, options->lr > 0 && isfinite(options->lr), "a positive number"));
    LS_TRY(optim_check("SGD", "momentum", options->momentum, options->momentum >= 0 && isfinite(options->momentum),
                       "0 (none) or a positive number"));
    LS_TRY(optim_check("SGD", "weight_decay", options->weight_decay,
                       options->weight_decay >= 0 && isfinite(options->weight_decay), "0 (none) or a positive number"));
    return optim_check("SGD with nesterov", "momentum", options->momentum, !options->nesterov || options->momentum > 0,
                       "a positive number");
}

ls_status ls_sgd_create(ls_optim **optim, ls_module *module, const ls_sgd_options *options) {
    if (!optim || !options)
        return ls_fail(LS_ERR_ARGUMENT, "ls_sgd_create: optim and options must not be NULL (set .lr)");
    *optim = NULL;
    LS_TRY(check(options));
    /* Without momentum there is no state: neither in memory nor in checkpoints. */
    LS_TRY(optim_create(optim, module, options->momentum > 0 ? &with_momentum : &plain, options->lr));
    (*optim)->options.sgd = *options;
    return LS_OK;
}
