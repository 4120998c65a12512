/* optim.c: what all optimizers share: holding parameters, making state, walking over the parameters that have a
 * gradient. The arithmetic of a rule is a kernel, one pass over memory a parameter; the rules are in files of their
 * own. */
#include "optim/optim.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ls_status optim_check(const char *rule, const char *option, double value, bool is_valid, const char *allowed) {
    if (is_valid) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT, "%s: the option %s is %g, but must be %s", rule, option, value, allowed);
}

/* "<parameter>.<state>"; NULL with the error set. */
static char *join_names(const char *parameter, const char *state) {
    const size_t bytes = strlen(parameter) + strlen(state) + 2;
    /* As a checkpoint calls it, behind its own prefix. */
    char *const name = ls_alloc_raw(bytes);
    if (name) snprintf(name, bytes, "%s.%s", parameter, state);
    return name;
}

/* A zeroed tensor of the parameter's shape, layout and type. */
static ls_status create_like(const ls_tensor *parameter, ls_tensor **state) {
    int64_t dims[LS_MAX_DIMS];
    const int ndim = ls_tensor_ndim(parameter);
    for (int i = 0; i < ndim; i++) dims[i] = ls_tensor_dim(parameter, i);
    return ls_tensor_create_layout(state, ls_tensor_dtype(parameter), ndim, dims, ls_tensor_layout(parameter));
}

/* Holds parameter `p` and makes its state. */
static ls_status adopt(ls_optim *optim, ls_module *module, int p) {
    ls_tensor *const parameter = ls_module_parameter(module, p);
    const char *const name = ls_module_parameter_name(module, p);
    if (!kernels_for(ls_tensor_dtype(parameter))) {
        /* A type without kernels, or LOCKSTEP_KERNELS asks for what is not there: the sentence says which. */
        const bool is_type = !kernels_reference(ls_tensor_dtype(parameter));
        return ls_fail_within(is_type ? LS_ERR_UNSUPPORTED : LS_ERR_ENVIRONMENT, "%s on the parameter %s",
                              optim->rule->name, name);
    }
    /* The module may be closed first. */
    optim->parameters[p] = ls_tensor_keep(parameter);
    for (int k = 0; k < optim->rule->state_count; k++) {
        const int i = p * optim->rule->state_count + k;
        LS_TRY(create_like(parameter, &optim->states[i]));
        optim->state_names[i] = join_names(name, optim->rule->state_names[k]);
        if (!optim->state_names[i]) return LS_ERR_MEMORY;
    }
    return LS_OK;
}

ls_status optim_create(ls_optim **optim, ls_module *module, const optim_rule *rule, double lr) {
    *optim = NULL;
    if (!module) return ls_fail(LS_ERR_ARGUMENT, "%s: the module is NULL; create it first", rule->name);
    ls_optim *made = ls_alloc(sizeof *made);
    if (!made) return LS_ERR_MEMORY;
    made->rule = rule;
    made->lr = lr;
    made->parameter_count = ls_module_parameter_count(module);

    /* Arrays of nothing are fine: a module without parameters, a rule without state. */
    const size_t parameters = (size_t)made->parameter_count, states = parameters * (size_t)rule->state_count;
    ls_status status = LS_ERR_MEMORY;
    if (!(made->parameters = ls_alloc_array(parameters, sizeof(ls_tensor *)))) goto out;
    if (!(made->updates = ls_alloc_array(parameters, sizeof(int64_t)))) goto out;
    if (!(made->states = ls_alloc_array(states, sizeof(ls_tensor *)))) goto out;
    if (!(made->state_names = ls_alloc_array(states, sizeof(char *)))) goto out;
    for (int p = 0; p < made->parameter_count; p++) {
        status = adopt(made, module, p);
        if (status != LS_OK) goto out;
    }
    *optim = made;
    return LS_OK;
out:
    ls_optim_close(&made);
    return status;
}

void ls_optim_close(ls_optim **optim) {
    if (!optim || !*optim) return;
    ls_optim *const closed = *optim;
    *optim = NULL;
    for (int i = 0; closed->states && i < ls_optim_state_count(closed); i++) ls_tensor_close(&closed->states[i]);
    for (int i = 0; closed->state_names && i < ls_optim_state_count(closed); i++)
        ls_free((void *)closed->state_names[i]);
    for (int p = 0; closed->parameters && p < closed->parameter_count; p++) ls_tensor_close(&closed->parameters[p]);
    ls_free(closed->state_names);
    ls_free(closed->states);
    ls_free(closed->updates);
    ls_free(closed->parameters);
    ls_free(closed);
}

/* ---- A step ---- */

static ls_status update_parameter(ls_optim *optim, int p, const ls_tensor *gradient) {
    ls_tensor *const parameter = optim->parameters[p];
    /* The mutable address tells caches of packed weights that these are old. */
    optim_update update = {.kernels = kernels_for(ls_tensor_dtype(parameter)),
                           .count = (size_t)ls_tensor_numel(parameter),
                           .update = optim->updates[p] + 1,
                           .gradient = ls_tensor_data(gradient),
                           .weight = ls_tensor_data_mut(parameter)};
    for (int k = 0; k < optim->rule->state_count; k++) {
        update.states[k] = ls_tensor_data_mut(optim->states[p * optim->rule->state_count + k]);
    }
    LS_TRY(optim->rule->apply(optim, &update));
    /* Counted for each parameter: those without a gradient stay where they are. */
    optim->updates[p]++;
    return LS_OK;
}

ls_status ls_optim_step(ls_optim *optim) {
    if (!optim) return ls_fail(LS_ERR_ARGUMENT, "ls_optim_step: the optimizer is NULL; create it first");
    /* The step's first error is what is returned: gradients of a failed step are undefined, on all ranks alike. */
    LS_TRY(ls_step_status());
    const int64_t start_ns = ls_now_ns();
    for (int p = 0; p < optim->parameter_count; p++) {
        const ls_tensor *const gradient = ls_tensor_grad(optim->parameters[p]);
        /* Without one neither momentum nor decay moves it: what no rank used stays equal on all. */
        if (gradient) LS_TRY(update_parameter(optim, p, gradient));
    }
    trace_span("optimizer", optim->rule->name, start_ns, ls_now_ns());
    return LS_OK;
}

void ls_optim_zero_grad(ls_optim *optim) {
    /* Forgotten, not zeroed: the next backward stores where it would have added. */
    for (int p = 0; optim && p < optim->parameter_count; p++) ls_tensor_zero_grad(optim->parameters[p]);
}

/* ---- The learning rate ---- */

double ls_optim_lr(const ls_optim *optim) {
    return optim->lr;
}

void ls_optim_set_lr(ls_optim *optim, double lr) {
    optim->lr = lr;
}

void ls_step_schedule_apply(const ls_step_schedule *schedule, ls_optim *optim, int epoch) {
    const int drops = schedule->step_epochs > 0 ? epoch / schedule->step_epochs : 0;
    /* From the base each time, not from the last rate: resuming in any epoch gives the same. */
    ls_optim_set_lr(optim, schedule->base_lr * pow(schedule->gamma, drops));
}

/* ---- State, for checkpoints ---- */

int ls_optim_state_count(const ls_optim *optim) {
    return optim->parameter_count * optim->rule->state_count;
}

static bool is_state(const ls_optim *optim, int index) {
    return index >= 0 && index < ls_optim_state_count(optim);
}

ls_tensor *ls_optim_state(const ls_optim *optim, int index) {
    return is_state(optim, index) ? optim->states[index] : NULL;
}

const char *ls_optim_state_name(const ls_optim *optim, int index) {
    return is_state(optim, index) ? optim->state_names[index] : NULL;
}

int ls_optim_parameter_count(const ls_optim *optim) {
    return optim->parameter_count;
}

void ls_optim_update_counts(const ls_optim *optim, int64_t *counts) {
    for (int p = 0; p < optim->parameter_count; p++) counts[p] = optim->updates[p];
}

void ls_optim_set_update_counts(ls_optim *optim, const int64_t *counts) {
    for (int p = 0; p < optim->parameter_count; p++) optim->updates[p] = counts[p];
}
