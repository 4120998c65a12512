/* backward.c: one walk over the tape, then gradients from the newest op to the oldest.
 *
 *     walk         from the loss: which nodes, leaves and observers are reached, how many contributions each leaf gets
 *     begin        every observer that takes part, also when the walk or the forward failed
 *     compute      nodes by falling sequence: an op is newer than all it depends on, so when its turn comes its
 *                  gradient is complete. The order is the same in every run, and with it the order of the sums
 *     finish       every observer that began
 *
 * A node lets go of what it saved as soon as backward has passed it, so that activations make room for gradients.
 * Nothing here recurses, and the walk allocates nothing: nodes and leaves are linked through themselves.             */
#include "autograd/leaf.h"
#include "autograd/marks.h"
#include "autograd/op.h"
#include "autograd/state.h"
#include "autograd/step.h"

#include "base/clock.h"
#include "trace/trace.h"

typedef struct backward_pass {
    autograd_state *state;
    ls_error failure; /* the first, of the step or of this backward */
    autograd_node *first, *last;
    autograd_leaf *leaves;
} backward_pass;

static void pass_fail(backward_pass *pass, ls_status status) {
    if (status != LS_OK && pass->failure.status == LS_OK) ls_error_capture(&pass->failure, status);
}

/* ---- The walk ---- */

/* Held, so that letting go of its consumers does not free it before its turn. */
static void reach_node(backward_pass *pass, autograd_node *node) {
    if (node->is_reached) return;
    node->is_reached = true;
    atomic_fetch_add_explicit(&node->holders, 1, memory_order_relaxed);
    node->next = NULL;
    if (pass->last)
        pass->last->next = node;
    else
        pass->first = node;
    pass->last = node;
}

/* Each edge is one contribution to come. */
static void reach_leaf(backward_pass *pass, ls_tensor *tensor) {
    autograd_leaf *leaf = leaf_of(tensor);
    leaf->pending++;
    if (leaf->is_reached) return;
    leaf->is_reached = true;
    /* Held: a user's op may close the leaf before its turn. */
    ls_tensor_keep(tensor);
    leaf->next = pass->leaves;
    pass->leaves = leaf;
}

/* The list of reached nodes is the walk's queue as well. */
static ls_status walk(backward_pass *pass, ls_tensor *loss) {
    if (node_of(loss))
        reach_node(pass, node_of(loss));
    else
        reach_leaf(pass, loss);
    for (autograd_node *node = pass->first; node; node = node->next) {
        if (node->is_consumed)
            return ls_fail(LS_ERR_STATE,
                           "ls_backward: an earlier backward has freed the tape at %s; run the forward again, or "
                           "add the losses and call ls_backward once",
                           node_name(node));
        marks_reach(node);
        for (int i = 0; i < node->edge_count; i++) {
            if (node->edges[i].node) reach_node(pass, node->edges[i].node);
            if (node->edges[i].leaf) reach_leaf(pass, node->edges[i].leaf);
        }
    }
    return LS_OK;
}

static ls_status check_loss(const ls_tensor *loss) {
    if (!loss) return autograd_failure_behind_null("ls_backward");
    if (!node_is_wanted(loss))
        return ls_fail(LS_ERR_ARGUMENT,
                       "ls_backward: the loss depends on nothing that requires gradients (or was computed inside "
                       "ls_no_grad_begin)");
    return LS_OK;
}

static ls_status check_is_scalar(const ls_tensor *loss) {
    char text[TENSOR_TEXT_BYTES];
    /* Asked after the walk: a loss that is refused has reached its wraps all the same, and they tell their peers. */
    if (loss->numel == 1 && kernels_for(loss->dtype)) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT,
                   "ls_backward: the loss is %s; expected one element of f32 or f64: use ls_mean or ls_sum",
                   tensor_describe(loss, text));
}

/* Finds out who takes part. Where the tape cannot tell, all do: their peers may be waiting. */
static void find_participants(backward_pass *pass, ls_tensor *loss) {
    ls_status status = check_loss(loss);
    if (status == LS_OK) status = walk(pass, loss);
    if (status != LS_OK)
        marks_reach_all_listed();
    else
        status = check_is_scalar(loss);
    pass_fail(pass, status);
}

/* ---- Newest first: a merge sort of the list, bottom up ---- */

static autograd_node *merge(autograd_node *a, autograd_node *b) {
    /* `end` is where the next node is to be linked in. */
    autograd_node *first = NULL, **end = &first;
    while (a && b) {
        /* Sequences are unique within a tape but for two threads' parts of it, between which no order matters. */
        autograd_node **larger = a->sequence > b->sequence ? &a : &b;
        *end = *larger;
        end = &(*larger)->next;
        *larger = (*larger)->next;
    }
    *end = a ? a : b;
    return first;
}

static autograd_node *sort_newest_first(autograd_node *list) {
    autograd_node *runs[64] = {NULL}; /* run i is empty or has 2^i nodes */
    while (list) {
        autograd_node *run = list;
        list = list->next;
        run->next = NULL;
        int size = 0;
        for (; runs[size]; size++) {
            run = merge(runs[size], run);
            runs[size] = NULL;
        }
        runs[size] = run;
    }
    for (int i = 0; i < 64; i++) list = merge(runs[i], list);
    return list;
}

/* ---- Computing ---- */

static ls_status seed(backward_pass *pass, ls_tensor *loss) {
    const ls_kernels *kernels = kernels_for(loss->dtype);
    ls_tensor *one = NULL;
    LS_TRY(tensor_create_raw(&one, loss->dtype, loss->ndim, loss->dims, loss->layout));
    /* d loss / d loss. */
    ls_status status = kernels->fill(1, 1, one->data);
    /* A leaf that is its own loss: its gradient is this one. */
    if (status == LS_OK && !pass->first) status = leaf_contribute(leaf_of(loss), &one);
    if (status == LS_OK && pass->first) {
        node_of(loss)->grad = one;
        one = NULL;
    }
    ls_tensor_close(&one);
    return status;
}

static ls_status compute_node(autograd_node *node) {
    LS_TRY(node_check_saved(node));
    backward_call call = {.node = node, .kernels = kernels_for(node->dtype), .grad = node->grad};
    /* The op may give the gradient on, or change it in place. */
    node->grad = NULL;
    const ls_status status = node->op->backward(&call);
    ls_tensor_close(&call.grad);
    return status;
}

/* Computes until the first failure; frees the tape in any case. */
static void compute(backward_pass *pass, ls_tensor *loss) {
    if (pass->failure.status == LS_OK) pass_fail(pass, seed(pass, loss));
    pass->first = sort_newest_first(pass->first);
    for (autograd_node *node = pass->first, *next; node; node = next) {
        next = node->next;
        if (pass->failure.status == LS_OK) pass_fail(pass, compute_node(node));
        /* Also after a failure: activations are worth more than a tape that cannot be run again. */
        if (!node->is_consumed) node_consume(node);
        node->is_reached = false;
        node_let_go(node);
    }
}

static void forget_leaves(backward_pass *pass) {
    for (autograd_leaf *leaf = pass->leaves, *next; leaf; leaf = next) {
        next = leaf->next;
        leaf->is_reached = false;
        leaf->pending = 0;
        ls_tensor *tensor = leaf->tensor;
        ls_tensor_close(&tensor);
    }
}

/* ---- Observers ---- */

static void begin_observers(backward_pass *pass) {
    for (int i = 0; i < pass->state->listed_count; i++) {
        const listed_observer entry = pass->state->listed[i];
        if (!entry.takes_part) continue;
        ls_error_raise(&pass->failure);
        pass_fail(pass, entry.observer->begin(entry.observer->context, pass->failure.status));
    }
}

/* The failure that finish hears of is that of forward, begin or backward, the same for all. What finish returns is a
 * verdict that other ranks share: it takes the place of a failure that this rank alone has seen. */
static void finish_observers(backward_pass *pass) {
    const ls_status failure = pass->failure.status;
    ls_error verdict = {.status = LS_OK};
    for (int i = 0; i < pass->state->listed_count; i++) {
        const listed_observer entry = pass->state->listed[i];
        if (!entry.takes_part) continue;
        ls_error_raise(&pass->failure);
        const ls_status status = entry.observer->finish(entry.observer->context, failure);
        if (status != LS_OK && verdict.status == LS_OK) ls_error_capture(&verdict, status);
    }
    if (verdict.status != LS_OK) {
        pass->failure = verdict;
        if (pass->state->is_in_step) pass->state->step_error = verdict;
    }
    marks_unlist_called();
}

ls_status ls_backward(ls_tensor *loss) {
    backward_pass pass = {.state = autograd_state_here()};
    if (pass.state->is_in_backward)
        return autograd_fail(
            ls_fail(LS_ERR_STATE, "ls_backward: called inside a backward; call it after that one has returned"));
    const int64_t start_ns = trace_is_on() ? ls_now_ns() : 0;
    pass.state->is_in_backward = true;
    if (ls_step_status() != LS_OK) pass.failure = pass.state->step_error;

    /* No error ends this early: whoever takes part must hear of it, since peers may be waiting. */
    find_participants(&pass, loss);
    begin_observers(&pass);
    compute(&pass, loss);
    finish_observers(&pass);
    forget_leaves(&pass);

    pass.state->is_in_backward = false;
    if (start_ns) trace_span("backward", "backward", start_ns, ls_now_ns());
    return autograd_fail(ls_error_raise(&pass.failure));
}
