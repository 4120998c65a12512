/* hooks.h: how a module is wrapped without its users' forward lines changing. */
#ifndef LS_NN_HOOKS_H
#define LS_NN_HOOKS_H

#include <lockstep/nn.h>

/* Run around each call of the module's forward by the user (not around its children's).
 * before    runs first, also when an input is NULL: on every rank the same messages must flow. An error fails the
 *           forward.
 * after     gets each output, in order, and returns the tensor to hand out instead; not called when the forward failed
 */
typedef struct nn_hooks {
    ls_status (*before)(void *context);
    ls_tensor *(*after)(void *context, ls_tensor *output);
    void *context;
} nn_hooks;

/* Installs the hooks (copied); NULL removes. Errors: LS_ERR_STATE when the module has some already. */
ls_status nn_module_set_hooks(ls_module *module, const nn_hooks *hooks);

/* One more holder of the module, let go by ls_module_close. */
ls_module *nn_module_keep(ls_module *module);

#endif
