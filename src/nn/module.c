/* module.c: trees of modules: making, holding, closing, walking. */
#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- Closing ---- */

/* A child that somebody else holds lives on, as a root. */
static void free_children(ls_module *module) {
    for (int i = 0; i < module->child_count; i++) {
        nn_child *child = &module->children[i];
        if (child->module) child->module->parent = NULL;
        ls_module_close(&child->module);
        ls_free(child->name);
    }
    ls_free(module->children);
}

/* Everything but the callbacks' context, which a failed ls_module_create leaves to the caller. */
static void free_module(ls_module *module) {
    free_children(module);
    for (int kind = 0; kind < NN_KINDS; kind++) {
        nn_table_clear(&module->tree[kind], false);
        nn_table_clear(&module->own[kind], true);
    }
    ls_free(module);
}

void ls_module_close(ls_module **module) {
    if (!module || !*module) return;
    ls_module *closed = *module;
    *module = NULL;
    if (atomic_fetch_sub_explicit(&closed->holders, 1, memory_order_acq_rel) != 1) return;
    if (closed->callbacks.destroy) closed->callbacks.destroy(closed->callbacks.context);
    free_module(closed);
}

ls_module *nn_module_keep(ls_module *module) {
    if (module) atomic_fetch_add_explicit(&module->holders, 1, memory_order_relaxed);
    return module;
}

/* ---- Making ---- */

/* Dots separate the levels of full names, in files too. */
static ls_status check_name(const ls_module *module, const char *name) {
    if (!name || !name[0] || strchr(name, '.'))
        return ls_fail(LS_ERR_ARGUMENT, "module: the name \"%s\" is not allowed; names are not empty and have no dot",
                       name ? name : "(NULL)");
    bool is_taken = false;
    for (int i = 0; i < module->child_count; i++)
        if (module->children[i].name && strcmp(module->children[i].name, name) == 0) is_taken = true;
    for (int kind = 0; kind < NN_KINDS; kind++)
        for (int i = 0; i < module->own[kind].count; i++)
            if (strcmp(module->own[kind].rows[i].name, name) == 0) is_taken = true;
    if (is_taken)
        return ls_fail(LS_ERR_ARGUMENT, "module: the name \"%s\" is taken in this module; choose another", name);
    return LS_OK;
}

/* A row without a module ends the list. */
static int count_children(const ls_child *children) {
    int count = 0;
    while (children && children[count].module) count++;
    return count;
}

/* Takes the child over, or leaves a child of another module to it. */
static ls_status add_child(ls_module *parent, const ls_child *child, int index) {
    char number[16];
    snprintf(number, sizeof number, "%d", index);
    const char *name = child->name ? child->name : number;
    /* Two parents would each close it. */
    if (child->module->parent)
        return ls_fail(LS_ERR_STATE, "module: the child \"%s\" already belongs to a module; create one for each place",
                       name);
    /* Entered before the status is looked at: a refused child is taken over as well. */
    const ls_status status = check_name(parent, name);
    nn_child *place = &parent->children[parent->child_count++];
    child->module->parent = parent;
    place->module = child->module;
    if (status != LS_OK) return status;
    place->name = ls_strdup(name);
    return place->name ? LS_OK : LS_ERR_MEMORY;
}

/* What the caller handed over, when there is no module yet to own it. */
static void close_all(const ls_child *children) {
    for (int i = 0; children && children[i].module; i++) {
        ls_module *child = children[i].module;
        /* A handle that was given twice is one module: closed once. */
        bool is_repeated = false;
        for (int j = 0; j < i; j++) is_repeated |= children[j].module == child;
        if (!is_repeated && !child->parent) ls_module_close(&child);
    }
}

/* Depth first, a parent before its children. */
static void number_modules(ls_module *module, uint32_t *next) {
    /* Dropout draws depend on it: a net that is built in the same way draws in the same way, on every rank. */
    module->order = (*next)++;
    for (int i = 0; i < module->child_count; i++) number_modules(module->children[i].module, next);
}

ls_status ls_module_create(ls_module **module, const ls_module_callbacks *callbacks, const ls_child *children) {
    *module = NULL;
    const int count = count_children(children);
    /* The children are the caller's no longer, whatever happens: so nothing returns before they have an owner. */
    ls_module *made = callbacks && callbacks->forward ? ls_alloc(sizeof *made) : NULL;
    if (made && count > 0) made->children = ls_alloc_array((size_t)count, sizeof made->children[0]);
    if (!made || (count > 0 && !made->children)) {
        ls_free(made);
        close_all(children);
        if (callbacks && callbacks->forward) return LS_ERR_MEMORY;
        return ls_fail(LS_ERR_ARGUMENT, "ls_module_create: no forward callback was given");
    }
    atomic_init(&made->holders, 1);
    made->callbacks = *callbacks;
    made->is_training = true;

    /* Each child is taken over, also after one has failed. */
    ls_status status = LS_OK;
    ls_error first = {0};
    for (int i = 0; i < count; i++) {
        status = add_child(made, &children[i], i);
        if (status != LS_OK && first.status == LS_OK) ls_error_capture(&first, status);
    }
    status = first.status != LS_OK ? ls_error_raise(&first) : nn_tables_refresh(made);
    if (status != LS_OK) {
        free_module(made);
        return status;
    }
    /* The new root numbers its whole tree; a later one will do so again. */
    uint32_t next = 0;
    number_modules(made, &next);
    *module = made;
    return LS_OK;
}

ls_status nn_module_create_layer(ls_module **module,
                                 ls_status (*forward)(void *context, ls_module *self, ls_tensor *const *inputs,
                                                      int input_count, ls_tensor **outputs, int output_count),
                                 const void *config, size_t bytes) {
    *module = NULL;
    void *context = NULL;
    if (bytes > 0) {
        context = ls_alloc(bytes);
        if (!context) return LS_ERR_MEMORY;
        memcpy(context, config, bytes);
    }
    /* The layer owns its copy: destroyed with the module. */
    const ls_module_callbacks callbacks = {.forward = forward, .destroy = ls_free, .context = context};
    const ls_status status = ls_module_create(module, &callbacks, NULL);
    if (status != LS_OK) ls_free(context);
    return status;
}

/* ---- Parameters and buffers ---- */

static ls_status append_row(nn_table *table, const char *name, ls_tensor *tensor) {
    /* A new array rather than a grown one: on error the old one is as it was. */
    nn_row *rows = ls_alloc_array((size_t)table->count + 1, sizeof rows[0]);
    char *copy = rows ? ls_strdup(name) : NULL;
    if (!copy) {
        ls_free(rows);
        return LS_ERR_MEMORY;
    }
    if (table->count > 0) memcpy(rows, table->rows, (size_t)table->count * sizeof rows[0]);
    ls_free(table->rows);
    rows[table->count++] = (nn_row){.name = copy, .tensor = tensor};
    table->rows = rows;
    return LS_OK;
}

/* Takes the hold on `tensor` over, also on error. */
static ls_status add_tensor(ls_module *module, nn_kind kind, const char *name, ls_tensor *tensor) {
    if (!module || !tensor) {
        ls_tensor_close(&tensor);
        return ls_fail(LS_ERR_ARGUMENT, "module: cannot add \"%s\": the %s is NULL", name ? name : "(NULL)",
                       module ? "tensor" : "module");
    }
    nn_table *table = &module->own[kind];
    ls_status status = check_name(module, name);
    /* Before the tensor is entered: one that cannot have gradients is refused. */
    if (status == LS_OK && kind == NN_PARAMETERS) status = ls_tensor_set_requires_grad(tensor, true);
    if (status == LS_OK) status = append_row(table, name, tensor);
    if (status != LS_OK) {
        ls_tensor_close(&tensor);
        return status;
    }
    /* The tables above must know the tensor, or the module must not. */
    status = nn_tables_refresh(module);
    if (status != LS_OK) {
        /* Out again, and the hold on it let go: handed over is handed over. */
        nn_row *row = &table->rows[--table->count];
        ls_free(row->name);
        ls_tensor_close(&row->tensor);
    }
    return status;
}

ls_status ls_module_add_parameter(ls_module *module, const char *name, ls_tensor *tensor) {
    return add_tensor(module, NN_PARAMETERS, name, tensor);
}

ls_status ls_module_add_buffer(ls_module *module, const char *name, ls_tensor *tensor) {
    return add_tensor(module, NN_BUFFERS, name, tensor);
}

ls_tensor *nn_own_parameter(const ls_module *module, int index) {
    const nn_table *own = &module->own[NN_PARAMETERS];
    return index < own->count ? own->rows[index].tensor : NULL;
}

/* ---- Walking ---- */

ls_module *ls_module_child(ls_module *module, const char *name) {
    for (int i = 0; module && name && i < module->child_count; i++)
        if (strcmp(module->children[i].name, name) == 0) return module->children[i].module;
    return NULL;
}

/* Children given to the tree later keep their own mode. */
void ls_module_train(ls_module *module, bool is_training) {
    if (!module) return;
    module->is_training = is_training;
    for (int i = 0; i < module->child_count; i++) ls_module_train(module->children[i].module, is_training);
}

bool ls_module_is_training(const ls_module *module) {
    return module && module->is_training;
}
