/* step.h: scopes and the error of the step, for the rooms above. */
#ifndef LS_AUTOGRAD_STEP_H
#define LS_AUTOGRAD_STEP_H

#include <lockstep/autograd.h>

/* Makes this thread's last sentence, under `status`, the error of the step under way unless it has one. Returns
 * `status`. For failures in a step that no op reports: a module's callback, a sample that could not be read. */
ls_status autograd_fail(ls_status status);

/* The failure behind a NULL that flows: the step's first error, else that of the last op or module that failed on this
 * thread, raised again; LS_ERR_ARGUMENT with a sentence about `name` when nothing failed. */
ls_status autograd_failure_behind_null(const char *name);

/* Opens a scope: results of ops belong to it. Returns what autograd_scope_close wants back. */
int autograd_scope_open(void);

/* Closes the scope and lets go of what belongs to it, but for outputs[count] (NULLs are skipped): these go to the scope
 * around, or to the caller where there is none. One that the scope did not own gets a holder more.
 * Errors: LS_ERR_MEMORY; all outputs are then NULL. */
ls_status autograd_scope_close(int scope, ls_tensor **outputs, int count);

/* Lets go of a result of the innermost scope early; nothing for a tensor that it does not own. */
void autograd_scope_drop(ls_tensor *tensor);

/* Gives the caller's hold on a fresh tensor to the innermost scope; without one the hold stays the caller's. Returns
 * `tensor`; NULL with the error set (the tensor is closed) when memory is refused. */
ls_tensor *autograd_hold(ls_tensor *tensor);

/* Whether a scope owns the tensor already. */
bool autograd_is_held(const ls_tensor *tensor);

/* Puts `result` where `former` was held: in a scope, or in the caller's hands. Lets go of `former`. */
void autograd_hold_instead(ls_tensor *former, ls_tensor *result);

#endif
