/* tables.c: the parameters and buffers of a whole tree under their full names.
 *
 * Made when a tensor or child is added, for the module and for every module above it, so that reading them cannot fail.
 * The order is PyTorch's: a module's own, then its children's, depth first; a tensor that occurs twice (tied) counts
 * once. */
#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

void nn_table_clear(nn_table *table, bool holds_tensors) {
    for (int i = 0; i < table->count; i++) {
        ls_free(table->rows[i].name);
        if (holds_tensors) ls_tensor_close(&table->rows[i].tensor);
    }
    ls_free(table->rows);
    *table = (nn_table){0};
}

/* Linear: nets have tensors by the hundreds, and this runs when one is built. */
static bool holds(const nn_table *table, const ls_tensor *tensor) {
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].tensor == tensor) return true;
    return false;
}

/* Appends the rows of `from` under "prefix." (NULL: none); `to` has room. */
static ls_status append(nn_table *to, const nn_table *from, const char *prefix) {
    for (int i = 0; i < from->count; i++) {
        if (holds(to, from->rows[i].tensor)) continue;
        const size_t bytes = (prefix ? strlen(prefix) + 1 : 0) + strlen(from->rows[i].name) + 1;
        char *name = ls_alloc_raw(bytes);
        if (!name) return LS_ERR_MEMORY;
        snprintf(name, bytes, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", from->rows[i].name);
        to->rows[to->count++] = (nn_row){.name = name, .tensor = from->rows[i].tensor};
    }
    return LS_OK;
}

/* What a child's table will be: the fresh one where `changed` is the child. */
static const nn_table *table_of(const ls_module *child, const ls_module *changed, nn_kind kind) {
    return child == changed ? &child->fresh[kind] : &child->tree[kind];
}

static ls_status make_fresh(ls_module *module, const ls_module *changed, nn_kind kind) {
    nn_table *fresh = &module->fresh[kind];
    /* At most as many rows as there are names; tied ones leave some unused. */
    int room = module->own[kind].count;
    for (int i = 0; i < module->child_count; i++) room += table_of(module->children[i].module, changed, kind)->count;
    fresh->rows = ls_alloc_array((size_t)room, sizeof fresh->rows[0]);
    if (!fresh->rows) return LS_ERR_MEMORY;
    LS_TRY(append(fresh, &module->own[kind], NULL));
    for (int i = 0; i < module->child_count; i++) {
        const nn_child *child = &module->children[i];
        LS_TRY(append(fresh, table_of(child->module, changed, kind), child->name));
    }
    return LS_OK;
}

ls_status nn_tables_refresh(ls_module *module) {
    ls_status status = LS_OK;
    /* First all levels anew, upwards; then all of them are put in place, or none. */
    const ls_module *below = NULL;
    for (ls_module *level = module; level && status == LS_OK; below = level, level = level->parent)
        for (int kind = 0; kind < NN_KINDS && status == LS_OK; kind++) status = make_fresh(level, below, (nn_kind)kind);
    /* Either all levels name the tensor, or none does. */
    for (ls_module *level = module; level; level = level->parent) {
        for (int kind = 0; kind < NN_KINDS; kind++) {
            nn_table_clear(status == LS_OK ? &level->tree[kind] : &level->fresh[kind], false);
            if (status != LS_OK) continue;
            level->tree[kind] = level->fresh[kind];
            level->fresh[kind] = (nn_table){0};
        }
    }
    return status;
}

static const nn_row *row_of(const ls_module *module, nn_kind kind, int index) {
    /* An index out of range is a loop's mistake in the caller: NULL and a sentence, not a crash. */
    if (module && index >= 0 && index < module->tree[kind].count) return &module->tree[kind].rows[index];
    ls_fail(LS_ERR_ARGUMENT, "module: there is no %s %d; the module has %d",
            kind == NN_PARAMETERS ? "parameter" : "buffer", index, module ? module->tree[kind].count : 0);
    return NULL;
}

int ls_module_parameter_count(const ls_module *module) {
    return module ? module->tree[NN_PARAMETERS].count : 0;
}

ls_tensor *ls_module_parameter(const ls_module *module, int index) {
    const nn_row *row = row_of(module, NN_PARAMETERS, index);
    return row ? row->tensor : NULL;
}

const char *ls_module_parameter_name(const ls_module *module, int index) {
    const nn_row *row = row_of(module, NN_PARAMETERS, index);
    return row ? row->name : NULL;
}

int ls_module_buffer_count(const ls_module *module) {
    return module ? module->tree[NN_BUFFERS].count : 0;
}

ls_tensor *ls_module_buffer(const ls_module *module, int index) {
    const nn_row *row = row_of(module, NN_BUFFERS, index);
    return row ? row->tensor : NULL;
}

const char *ls_module_buffer_name(const ls_module *module, int index) {
    const nn_row *row = row_of(module, NN_BUFFERS, index);
    return row ? row->name : NULL;
}
