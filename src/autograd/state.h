/* state.h: what autograd keeps for a thread: the step, the scopes, the listed observers, the generators.
 *
 * A scope owns what ops return while it is the innermost one: a step is a scope, and so is each run of a module's
 * forward. What belongs to a scope stands in `held` from its start on; without a scope an op's result is the
 * caller's. */
#ifndef LS_AUTOGRAD_STATE_H
#define LS_AUTOGRAD_STATE_H

#include "autograd/observer.h"
#include "base/error.h"

struct autograd_node;

typedef struct listed_observer {
    const autograd_observer *observer;
    bool takes_part; /* in the backward under way */
} listed_observer;

/* So many are listed without memory: a rank that could not list its wrap would leave the others waiting in backward. */
#define FEW_LISTED 8

/* Used by its thread alone. Lists lie in the arena and go back to it when they are empty. */
typedef struct autograd_state {
    int no_grad_depth;
    bool is_in_backward;

    bool is_in_step;
    int step_scope,
        step_depth;      /* what autograd_scope_open returned for it; the number of open scopes then, itself included */
    ls_error step_error; /* the first of the step */
    ls_status last_failure; /* of an op or a module, in a step or outside */

    int scope_depth; /* open scopes */
    ls_tensor **held;
    int held_count, held_capacity;

    listed_observer *listed;           /* NULL, `few_listed` or from the arena */
    int listed_count, listed_capacity; /* capacity: at least what is listed and the marks of the tape together */
    listed_observer few_listed[FEW_LISTED];
    struct autograd_node *marks; /* live nodes that name an observer */
    int mark_count;

    struct autograd_node *dying; /* nodes without a holder, about to be freed */
    bool is_burying;
    uint64_t next_sequence;

    uint64_t seed;
    uint64_t draws; /* taken from the stream of initialisations */
    uint64_t step_number;
    const int64_t *samples; /* borrowed: the global indices of the batch */
    int64_t sample_count;
} autograd_state;

autograd_state *autograd_state_here(void);

/* Makes room for `count` entries of `entry_bytes` in an array from the arena; LS_ERR_MEMORY leaves it as it was. */
ls_status autograd_reserve(void **array, int *capacity, int count, size_t entry_bytes);

/* Gives arrays that hold nothing back to the arena. */
void autograd_give_back_empty_lists(void);

#endif
