/* node.c: making, holding and freeing the tape's nodes. */
#include "autograd/node.h"

#include "autograd/leaf.h"
#include "autograd/state.h"
#include "tensor/arena.h"

#include <string.h>

static void release_attachment(tensor_attachment *attachment) {
    node_let_go((autograd_node *)attachment);
}

/* The release function tells nodes from leaf records: both hang on the same pointer. */
autograd_node *node_of(const ls_tensor *tensor) {
    tensor_attachment *attachment = tensor->attachment;
    return attachment && attachment->release == release_attachment ? (autograd_node *)attachment : NULL;
}

bool node_is_wanted(const ls_tensor *tensor) {
    return node_of(tensor) || ls_tensor_requires_grad(tensor);
}

bool node_is_needed(ls_tensor *const *inputs, int count) {
    if (!autograd_grad_is_on()) return false;
    for (int i = 0; i < count; i++)
        if (inputs[i] && node_is_wanted(inputs[i])) return true;
    return false;
}

/* To the node rather than the tensor: the handle may go while the tape lives. */
static autograd_edge edge_to(ls_tensor *input) {
    /* Where no gradient is wanted the tape holds nothing. */
    if (!input || !node_is_wanted(input)) return (autograd_edge){0};
    autograd_node *node = node_of(input);
    if (!node) return (autograd_edge){.leaf = ls_tensor_keep(input)};
    atomic_fetch_add_explicit(&node->holders, 1, memory_order_relaxed);
    return (autograd_edge){.node = node};
}

autograd_node *node_create(const autograd_op *op, ls_tensor *const *inputs, int count, size_t extra_bytes) {
    autograd_state *state = autograd_state_here();
    /* One block: header, edges, and what the op keeps behind them. */
    autograd_node *node = arena_take(sizeof *node + (size_t)count * sizeof node->edges[0] + extra_bytes);
    if (!node) return NULL;
    /* Edges are filled in below; the extra bytes are the op's. */
    memset(node, 0, sizeof *node);
    node->attachment.release = release_attachment;
    atomic_init(&node->holders, 1);
    node->op = op;
    node->edge_count = count;
    /* A tape may have been begun by another thread, whose numbers are its own. */
    node->sequence = state->next_sequence;
    for (int i = 0; i < count; i++) {
        node->edges[i] = edge_to(inputs[i]);
        const autograd_node *input = node->edges[i].node;
        if (input && input->sequence >= node->sequence) node->sequence = input->sequence + 1;
    }
    state->next_sequence = node->sequence + 1;
    return node;
}

void *node_extra(autograd_node *node) {
    return &node->edges[node->edge_count];
}

void node_attach(autograd_node *node, ls_tensor *output) {
    /* The gradient has the output's shape, and the output may be gone by then. */
    node->dtype = output->dtype;
    node->layout = output->layout;
    node->ndim = output->ndim;
    memcpy(node->dims, output->dims, sizeof node->dims);
    output->attachment = &node->attachment;
}

ls_status node_save(autograd_node *node, int slot, const char *name, const ls_tensor *tensor) {
    autograd_saved *saved = &node->saved[slot];
    /* An alias knows nothing of the tape: saving an output makes no circle. */
    LS_TRY(tensor_create_alias(&saved->tensor, tensor));
    saved->name = name;
    saved->version = ls_tensor_version(tensor);
    return LS_OK;
}

ls_status node_check_saved(const autograd_node *node) {
    /* Views share the version with what they view, so a write through any of them is seen. */
    for (int i = 0; i < NODE_MOST_SAVED; i++) {
        const autograd_saved *saved = &node->saved[i];
        if (saved->tensor && saved->version != ls_tensor_version(saved->tensor))
            return ls_fail(LS_ERR_STATE,
                           "ls_backward: %s needs its %s as the forward saw it, but it was written since; "
                           "change tensors after backward, or run the forward again",
                           node_name(node), saved->name);
    }
    return LS_OK;
}

const char *node_name(const autograd_node *node) {
    return node->op->name ? node->op->name : node->attributes.user.name;
}

void node_consume(autograd_node *node) {
    node->is_consumed = true;
    for (int i = 0; i < NODE_MOST_SAVED; i++) ls_tensor_close(&node->saved[i].tensor);
    ls_tensor_close(&node->grad);
    /* Masks and places of maxima go with the saved tensors. */
    arena_give(node->memory);
    node->memory = NULL;
    if (node->op->destroy) node->op->destroy(node);
    /* Cleared before letting go: what this frees may look at the node. */
    for (int i = 0; i < node->edge_count; i++) {
        autograd_edge edge = node->edges[i];
        node->edges[i] = (autograd_edge){0};
        node_let_go(edge.node);
        ls_tensor_close(&edge.leaf);
    }
}

/* A node without holders may hold the last reference to the next one, and so on for 100,000 ops: they queue up in
 * `dying`, and the outermost call frees them one by one. */
void node_let_go(autograd_node *node) {
    /* Release and acquire: the last holder sees what the others did to the node. */
    if (!node || atomic_fetch_sub_explicit(&node->holders, 1, memory_order_acq_rel) != 1) return;
    autograd_state *state = autograd_state_here();
    node->next = state->dying;
    state->dying = node;
    if (state->is_burying) return;
    state->is_burying = true;
    while (state->dying) {
        autograd_node *dead = state->dying;
        state->dying = dead->next;
        if (!dead->is_consumed) node_consume(dead);
        arena_give(dead);
    }
    state->is_burying = false;
}
