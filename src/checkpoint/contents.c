/* contents.c: parameters and buffers under their own names, optimizer state under "optim.". */
#include "checkpoint/contents.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

size_t checkpoint_tensor_bytes(const ls_tensor *tensor) {
    return (size_t)ls_tensor_numel(tensor) * ls_dtype_size(ls_tensor_dtype(tensor));
}

/* Adds a tensor; the table was made large enough for all. */
static ls_status add(checkpoint_contents *contents, const char *prefix, const char *name, ls_tensor *tensor) {
    const size_t bytes = strlen(prefix) + strlen(name) + 1;
    char *full = ls_alloc(bytes);
    if (!full) return LS_ERR_MEMORY;
    snprintf(full, bytes, "%s%s", prefix, name);
    /* The tensor is not held: module and optimizer outlive the call. */
    contents->tensors[contents->count++] = (checkpoint_tensor){.name = full, .tensor = tensor};
    return LS_OK;
}

ls_status checkpoint_list(checkpoint_contents *contents, const ls_module *module, const ls_optim *optim) {
    *contents = (checkpoint_contents){0};
    const int parameters = ls_module_parameter_count(module), buffers = ls_module_buffer_count(module);
    const int states = optim ? ls_optim_state_count(optim) : 0;
    contents->tensors =
        ls_alloc_array((size_t)parameters + (size_t)buffers + (size_t)states, sizeof *contents->tensors);
    if (!contents->tensors) return LS_ERR_MEMORY;

    /* The order is that of registration: it is the order of the file among tensors of one element size. */
    ls_status status = LS_OK;
    for (int i = 0; i < parameters && !status; i++)
        status = add(contents, "", ls_module_parameter_name(module, i), ls_module_parameter(module, i));
    for (int i = 0; i < buffers && !status; i++)
        status = add(contents, "", ls_module_buffer_name(module, i), ls_module_buffer(module, i));
    for (int i = 0; i < states && !status; i++)
        status = add(contents, CHECKPOINT_OPTIM_PREFIX, ls_optim_state_name(optim, i), ls_optim_state(optim, i));
    if (status) goto out;

    /* Made here, before anything is read or written, so that taking a file over later cannot lack memory. */
    size_t largest = 0;
    for (int i = 0; i < contents->count; i++) {
        const size_t bytes = checkpoint_tensor_bytes(contents->tensors[i].tensor);
        if (bytes > largest) largest = bytes;
    }
    contents->scratch = ls_alloc_raw(largest);
    if (!contents->scratch) status = LS_ERR_MEMORY;
out:
    if (status) checkpoint_contents_free(contents);
    return status;
}

void checkpoint_contents_free(checkpoint_contents *contents) {
    for (int i = 0; i < contents->count; i++) ls_free(contents->tensors[i].name);
    ls_free(contents->tensors);
    ls_free(contents->scratch);
    *contents = (checkpoint_contents){0};
}
