/* observer.h: how data parallelism listens to backward, without autograd knowing of it.
 *
 * An observer is listed in the thread's step when its module's forward runs with gradients on, once however often it
 * runs. ls_backward(loss) calls those whose outputs the loss's tape reaches, ls_backward(NULL) all listed ones, failed.
 * Each gets exactly one begin and one finish, in the order of listing, whatever fails in between, and leaves the list:
 *
 *     walk the tape from the loss: which leaves are reached is known
 *     observer->begin(failure)     for each; failure is this rank's so far, LS_OK when the forward went well
 *     gradients are computed       the leaf hook fires as each leaf's gradient is complete, on the thread of backward
 *     observer->finish(failure)    for each; the first failure of forward, begin or backward
 *
 * A failure's sentence is this thread's last error when begin or finish is called with it. The first error is the
 * step's, but an error of finish is a verdict that other ranks share: it takes the place of what this rank alone has
 * seen. An error of begin stops the computation of gradients.                                                        */
#ifndef LS_AUTOGRAD_OBSERVER_H
#define LS_AUTOGRAD_OBSERVER_H

#include <lockstep/autograd.h>

typedef struct autograd_observer {
    ls_status (*begin)(void *context, ls_status failure);
    ls_status (*finish)(void *context, ls_status failure);
    void *context;
} autograd_observer;

/* Lists the observer, known by its address, in the thread's step (also outside ls_step_begin); a no-op when listed
 * already. ls_step_end empties the list. A backward whose tape reaches an observer that is no longer listed (the second
 * of two backwards after two forwards) calls it too, after the listed ones. ls_last_error() is the sentence of
 * `failure` in begin and finish. */
ls_status autograd_observer_list(const autograd_observer *observer);

/* Marks that the tape of `output` contains the observer: returns the tensor to hand out instead (the caller's hold on
 * `output` passes to it), or NULL with the error set. Without gradients `output` itself. */
ls_tensor *autograd_observer_mark(const autograd_observer *observer, ls_tensor *output);

/* Forgets the observer wherever this thread's step or tape names it: its owner closes. */
void autograd_observer_forget(const autograd_observer *observer);

/* Whether ops record now: false inside ls_no_grad_begin ... ls_no_grad_end. */
bool autograd_grad_is_on(void);

/* ---- Leaves ---- */

/* Called when the gradient of `leaf` is complete in this backward, all its contributions added. One hook a leaf:
 * LS_ERR_STATE when there is another; NULL removes. */
typedef void (*autograd_leaf_hook)(void *context, int index);
ls_status autograd_leaf_set_hook(ls_tensor *leaf, autograd_leaf_hook hook, void *context, int index);

/* Whether the backward under way reaches the leaf: from begin to finish. */
bool autograd_leaf_is_reached(const ls_tensor *leaf);

/* Makes `home` (same shape, layout, dtype; kept) the place where the leaf's gradient is written, for instance a view of
 * a bucket. A gradient there is now moves with it. NULL: memory of its own again. Errors: LS_ERR_MEMORY,
 * LS_ERR_ARGUMENT. */
ls_status autograd_leaf_set_home(ls_tensor *leaf, ls_tensor *home);

/* Declares that the home holds a gradient (it was written by a reduction) or holds none. */
void autograd_leaf_set_has_grad(ls_tensor *leaf, bool has_grad);

#endif
