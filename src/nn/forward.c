/* forward.c: running a module, with hooks around it.
 *
 * The module's scope owns what the callback makes; what it returns moves to the scope around. Hooks run in a scope of
 * their own around that one, where each output has a hold that the hook may exchange.                                */
#include "nn/module.h"

#include "autograd/step.h"
#include "base/error.h"

#include <string.h>

static bool has_null(ls_tensor *const *tensors, int count) {
    for (int i = 0; i < count; i++)
        if (!tensors[i]) return true;
    return false;
}

/* The forward proper, in a scope of its own. */
static ls_status run(ls_module *module, ls_tensor *const *inputs, int input_count, ls_tensor **outputs,
                     int output_count) {
    if (has_null(inputs, input_count)) return autograd_failure_behind_null("ls_module_forward");
    const int scope = autograd_scope_open();
    ls_status status =
        module->callbacks.forward(module->callbacks.context, module, inputs, input_count, outputs, output_count);
    /* A callback need not look at what its ops returned. */
    if (status == LS_OK && has_null(outputs, output_count)) status = autograd_failure_behind_null("a module's forward");
    const ls_status close_status = autograd_scope_close(scope, outputs, status == LS_OK ? output_count : 0);
    return status != LS_OK ? status : close_status;
}

/* The hook may hand out another tensor: a view that marks the tape. */
static ls_status run_after(ls_module *module, ls_tensor **outputs, int output_count) {
    for (int i = 0; i < output_count && module->hooks.after; i++) {
        /* In order, on all ranks alike: the hook may communicate. */
        outputs[i] = module->hooks.after(module->hooks.context, outputs[i]);
        if (!outputs[i]) return autograd_failure_behind_null("a hook after a module's forward");
    }
    return LS_OK;
}

static ls_status run_hooked(ls_module *module, ls_tensor *const *inputs, int input_count, ls_tensor **outputs,
                            int output_count) {
    const int scope = autograd_scope_open();
    /* Also with a NULL input: the hook's messages must flow on every rank. */
    ls_status status = module->hooks.before ? module->hooks.before(module->hooks.context) : LS_OK;
    if (status == LS_OK) status = run(module, inputs, input_count, outputs, output_count);
    if (status == LS_OK) status = run_after(module, outputs, output_count);
    const ls_status close_status = autograd_scope_close(scope, outputs, status == LS_OK ? output_count : 0);
    return status != LS_OK ? status : close_status;
}

ls_status ls_module_forward_many(ls_module *module, ls_tensor *const *inputs, int input_count, ls_tensor **outputs,
                                 int output_count) {
    /* Outputs are NULL unless all went well. */
    if (output_count > 0) memset(outputs, 0, (size_t)output_count * sizeof(ls_tensor *));
    if (!module) return autograd_fail(ls_fail(LS_ERR_ARGUMENT, "ls_module_forward: the module is NULL"));
    const ls_status status = module->has_hooks ? run_hooked(module, inputs, input_count, outputs, output_count)
                                               : run(module, inputs, input_count, outputs, output_count);
    if (status != LS_OK && output_count > 0) memset(outputs, 0, (size_t)output_count * sizeof(ls_tensor *));
    return autograd_fail(status);
}

/* The status is in the step; the caller passes the NULL on. */
ls_tensor *ls_module_forward(ls_module *module, ls_tensor *input) {
    ls_tensor *output = NULL;
    ls_module_forward_many(module, &input, 1, &output, 1);
    return output;
}

ls_status nn_module_set_hooks(ls_module *module, const nn_hooks *hooks) {
    if (hooks && module->has_hooks)
        return ls_fail(LS_ERR_STATE, "module: it is wrapped already; close the other wrap first");
    /* A flag beside the table, since a hook may have only one of the two functions. */
    module->has_hooks = hooks != NULL;
    module->hooks = hooks ? *hooks : (nn_hooks){0};
    return LS_OK;
}
