/* adamw.c: Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as PyTorch does it. */
#include "optim/optim.h"

#include "base/error.h"

#include <math.h>

static ls_status apply(const ls_optim *optim, const optim_update *update) {
    const ls_adamw_options *const options = &optim->options.adamw;
    const kernels_adamw adamw = {.lr = optim->lr,
                                 .beta1 = options->beta1,
                                 .beta2 = options->beta2,
                                 .eps = options->eps,
                                 .weight_decay = options->weight_decay,
                                 /* Of this parameter: one that had no gradient in some steps has a smaller count,
                                  * as in PyTorch. */
                                 .update = update->update};
    return update->kernels->adamw_step(update->count, &adamw, update->gradient, update->weight, update->states[0],
                                       update->states[1]);
}

static const optim_rule rule = {
    .name = "AdamW", .apply = apply, .state_count = 2, .state_names = {"exp_avg", "exp_avg_sq"}};

static ls_adamw_options with_defaults(const ls_adamw_options *given) {
    ls_adamw_options options = *given;
    /* A zero is "not given": that beta1 itself cannot be 0 is the price of structs whose zeroes are the defaults. */
    if (options.beta1 == 0) options.beta1 = 0.9;
    if (options.beta2 == 0) options.beta2 = 0.999;
    if (options.eps == 0) options.eps = 1e-8;
    return options;
}

static ls_status check(const ls_adamw_options *options) {
    /* Finite and in range, here and once: what a step then makes of them is a number. */
    LS_TRY(optim_check("AdamW", "lr", options->lr, options->lr > 0 && isfinite(options->lr), "a positive number"));
    LS_TRY(optim_check("AdamW", "beta1", options->beta1, options->beta1 > 0 && options->beta1 < 1,
                       "between 0 and 1 (0 means 0.9)"));
    LS_TRY(optim_check("AdamW", "beta2", options->beta2, options->beta2 > 0 && options->beta2 < 1,
                       "between 0 and 1 (0 means 0.999)"));
    LS_TRY(optim_check("AdamW", "eps", options->eps, options->eps > 0 && isfinite(options->eps),
                       "a positive number (0 means 1e-8)"));
    return optim_check("AdamW", "weight_decay", options->weight_decay,
                       options->weight_decay >= 0 && isfinite(options->weight_decay), "0 (none) or a positive number");
}

ls_status ls_adamw_create(ls_optim **optim, ls_module *module, const ls_adamw_options *options) {
    if (!optim || !options)
        return ls_fail(LS_ERR_ARGUMENT, "ls_adamw_create: optim and options must not be NULL (set .lr)");
    *optim = NULL;
    const ls_adamw_options filled = with_defaults(options);
    LS_TRY(check(&filled));
    /* State is made now, so that steps allocate nothing. */
    LS_TRY(optim_create(optim, module, &rule, filled.lr));
    (*optim)->options.adamw = filled;
    return LS_OK;
}
