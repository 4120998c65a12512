/* module.h: what a module is made of, for the layers and containers of this room. */
#ifndef LS_NN_MODULE_H
#define LS_NN_MODULE_H

#include "nn/hooks.h"

#include <stdatomic.h>

/* Names and tensors: those of one module, or of a whole tree under their full names. */
typedef struct nn_row {
    char *name;
    ls_tensor *tensor;
} nn_row;

typedef struct nn_table {
    nn_row *rows;
    int count;
} nn_table;

typedef enum nn_kind { NN_PARAMETERS = 0, NN_BUFFERS, NN_KINDS } nn_kind;

typedef struct nn_child {
    char *name;
    ls_module *module; /* held */
} nn_child;

struct ls_module {
    _Atomic uint32_t holders;
    ls_module_callbacks callbacks;
    nn_hooks hooks;
    bool has_hooks;
    bool is_training;

    ls_module *parent; /* not held; NULL at the root */
    nn_child *children;
    int child_count;
    uint32_t order; /* place in the tree, the root first: keeps the draws of dropout layers apart */

    nn_table own[NN_KINDS];   /* this module's alone; tensors are held */
    nn_table tree[NN_KINDS];  /* own ones and then the children's, each tensor once; tensors are not held */
    nn_table fresh[NN_KINDS]; /* `tree` while it is being made anew */
};

/* A module whose callback gets a copy of `bytes` of `config` as its context (NULL for 0 bytes). */
ls_status nn_module_create_layer(ls_module **module,
                                 ls_status (*forward)(void *context, ls_module *self, ls_tensor *const *inputs,
                                                      int input_count, ls_tensor **outputs, int output_count),
                                 const void *config, size_t bytes);

/* The module's own parameter; NULL when it has not so many. */
ls_tensor *nn_own_parameter(const ls_module *module, int index);

/* Makes the tables `tree` of the module and all above it anew; on error all are as they were. */
ls_status nn_tables_refresh(ls_module *module);
void nn_table_clear(nn_table *table, bool holds_tensors);

/* Fills `tensor` from U(-bound, bound) in logical order, from the thread's seed. Errors: LS_ERR_MEMORY. */
ls_status nn_draw_uniform(ls_tensor *tensor, double bound);

#endif
