/* node.h: the tape: one node an op that ran, with edges to the nodes and leaves that its inputs came from.
 *
 * A tensor holds the node that made it, a node holds its inputs' nodes: what nobody can reach any more is gone. A node
 * saves aliases of tensors (same storage, no node of their own), so that the graph has no cycle and handles may be let
 * go early. */
#ifndef LS_AUTOGRAD_NODE_H
#define LS_AUTOGRAD_NODE_H

#include "autograd/observer.h"
#include "tensor/kernels/kernels.h"
#include "tensor/tensor.h"

struct autograd_node;
struct backward_call;

/* An op's row: how gradients flow back through it (autograd/op.h).
 * name       what errors call it; NULL: the user's own, whose name is in the node
 * destroy    frees what is in `attributes`; may be NULL */
typedef struct autograd_op {
    const char *name;
    ls_status (*backward)(struct backward_call *call);
    void (*destroy)(struct autograd_node *node);
} autograd_op;

/* Where the gradient of an input goes: to a node, to a leaf, or nowhere (both NULL). Held. */
typedef struct autograd_edge {
    struct autograd_node *node;
    ls_tensor *leaf;
} autograd_edge;

/* A tensor that backward reads, and the version that it must still have by then. */
typedef struct autograd_saved {
    const char *name;
    ls_tensor *tensor;
    uint64_t version;
} autograd_saved;

#define NODE_MOST_SAVED 2

typedef struct autograd_node {
    tensor_attachment attachment; /* first: a tensor's attachment is its node or its leaf record */
    _Atomic uint32_t holders;
    const autograd_op *op;
    uint64_t sequence; /* larger than that of every node it depends on */

    struct autograd_node *next; /* in the walk's list or among the dying */
    bool is_reached;            /* by the backward under way */
    bool is_consumed;           /* a backward has passed: nothing is saved any more */
    ls_tensor *grad;            /* of the output, while backward is under way */

    ls_dtype dtype; /* the output's shape */
    ls_layout layout;
    int ndim;
    int64_t dims[LS_MAX_DIMS];

    autograd_saved saved[NODE_MOST_SAVED];
    void *memory; /* the op's own, from the arena */
    union {
        double factor;
        kernels_linear linear;
        kernels_conv2d conv2d;
        kernels_pool2d pool2d;
        struct {
            const char *name; /* behind the edges */
            ls_backward_function backward;
            void *context;
            void (*destroy)(void *context);
        } user;
        struct {
            const autograd_observer *observer; /* NULL: forgotten */
            struct autograd_node *previous, *next;
        } mark;
    } attributes;

    int edge_count;
    autograd_edge edges[];
} autograd_node;

/* The node that made the tensor; NULL for leaves and for results of ops that recorded nothing. */
autograd_node *node_of(const ls_tensor *tensor);

/* Whether gradients flow to the tensor: it has a node, or is a leaf that requires them. */
bool node_is_wanted(const ls_tensor *tensor);

/* Whether an op on these inputs (NULLs are skipped) records itself. */
bool node_is_needed(ls_tensor *const *inputs, int count);

/* A node with edges to the inputs and `extra_bytes` behind the edges. NULL with the error set: LS_ERR_MEMORY. */
autograd_node *node_create(const autograd_op *op, ls_tensor *const *inputs, int count, size_t extra_bytes);
void *node_extra(autograd_node *node);

/* Makes the node the attachment of its output, which holds it from now on. */
void node_attach(autograd_node *node, ls_tensor *output);

ls_status node_save(autograd_node *node, int slot, const char *name, const ls_tensor *tensor);

/* LS_ERR_STATE, naming op and tensor, when a saved tensor was written since. */
ls_status node_check_saved(const autograd_node *node);

/* Lets go of all that the node holds but itself: backward has passed. */
void node_consume(autograd_node *node);

/* Lets go of a hold; freeing runs through chains of any length without recursion. NULL is harmless. */
void node_let_go(autograd_node *node);

/* What the op is called in errors. */
const char *node_name(const autograd_node *node);

#endif
