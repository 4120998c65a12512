/* optim.h: what an optimizer is made of: the parameters, their state, and a rule that updates one of them. */
#ifndef LS_OPTIM_OPTIM_H
#define LS_OPTIM_OPTIM_H

#include <lockstep/optim.h>

#include "tensor/kernels/kernels.h"

enum { OPTIM_MAX_STATES = 2 };

/* One parameter's update, as raw memory of `count` elements. update: 1 for its first. */
typedef struct optim_update {
    const ls_kernels *kernels;
    size_t count;
    int64_t update;
    const void *gradient;
    void *weight;
    void *states[OPTIM_MAX_STATES]; /* NULL where the rule has none */
} optim_update;

typedef struct optim_rule {
    const char *name;
    ls_status (*apply)(const ls_optim *optim, const optim_update *update);
    int state_count; /* tensors a parameter */
    const char *state_names[OPTIM_MAX_STATES];
} optim_rule;

/* Used by one thread at a time. parameters, states and names are fixed once it is created. */
struct ls_optim {
    const optim_rule *rule;
    double lr;
    union {
        ls_sgd_options sgd;
        ls_adamw_options adamw;
    } options; /* as given, defaults filled in; lr above is the one in force */

    int parameter_count;
    ls_tensor **parameters;   /* one hold on each */
    int64_t *updates;         /* made so far, of each parameter */
    ls_tensor **states;       /* those of parameter p start at p * rule->state_count */
    const char **state_names; /* "<parameter>.<state>", owned, in the same order */
};

/* An optimizer over the parameters of `module`, its state zeroed; the caller then sets its options. */
ls_status optim_create(ls_optim **optim, ls_module *module, const optim_rule *rule, double lr);

/* LS_ERR_ARGUMENT unless `is_valid`, naming the option, its value and what is allowed. */
ls_status optim_check(const char *rule, const char *option, double value, bool is_valid, const char *allowed);

#endif
