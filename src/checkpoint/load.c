/* load.c: reading a checkpoint back. Everything is read, parsed and compared first; only then is anything written, by
 * steps that cannot fail: so an error leaves module and optimizer as they were. */
#include "checkpoint/contents.h"
#include "checkpoint/metadata.h"
#include "checkpoint/safetensors.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <lockstep/checkpoint.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHAPE_BYTES 192

/* "F32 [64, 32, 5, 5]", for messages. Eight dims of 64 bits fit. */
static const char *describe_shape(char text[SHAPE_BYTES], const char *type, int ndim, const int64_t *dims) {
    int used = snprintf(text, SHAPE_BYTES, "%s [", type);
    for (int i = 0; i < ndim; i++)
        used += snprintf(text + used, SHAPE_BYTES - (size_t)used, i ? ", %" PRId64 : "%" PRId64, dims[i]);
    snprintf(text + used, SHAPE_BYTES - (size_t)used, "]");
    return text;
}

/* The file's entry must be there and have the tensor's shape and dtype. */
static ls_status compare(const checkpoint_tensor *wanted, const safetensors_entry *found) {
    if (!found)
        return ls_fail(LS_ERR_MISMATCH, "there is no tensor \"%s\" in it; is it of the same model and optimizer?",
                       wanted->name);
    const int ndim = ls_tensor_ndim(wanted->tensor);
    const ls_dtype dtype = ls_tensor_dtype(wanted->tensor);
    int64_t dims[LS_MAX_DIMS] = {0};
    for (int i = 0; i < ndim; i++) dims[i] = ls_tensor_dim(wanted->tensor, i);
    /* Dims past ndim are zero on both sides. */
    if (found->dtype == dtype && found->ndim == ndim && memcmp(found->dims, dims, sizeof dims) == 0) return LS_OK;

    char expected[SHAPE_BYTES], there[SHAPE_BYTES];
    return ls_fail(LS_ERR_MISMATCH, "tensor \"%s\": expected %s, found %s; is it of the same model?", wanted->name,
                   describe_shape(expected, safetensors_type(dtype), ndim, dims),
                   describe_shape(there, found->type, found->ndim, found->dims));
}

/* Nothing may be in the file that has no place here; optimizer state may where no optimizer was given. */
static ls_status find_strangers(const safetensors *file, const checkpoint_contents *contents, const ls_optim *optim) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->entries[i].name;
        const bool is_state = strncmp(name, CHECKPOINT_OPTIM_PREFIX, strlen(CHECKPOINT_OPTIM_PREFIX)) == 0;
        /* Weights may be read for evaluation, without the optimizer that made them. */
        if (is_state && !optim) continue;
        int place = 0;
        while (place < contents->count && strcmp(contents->tensors[place].name, name) != 0) place++;
        if (place == contents->count)
            return ls_fail(
                LS_ERR_MISMATCH,
                "it holds the tensor \"%s\", which has no place here; is it of the same model and optimizer?", name);
    }
    return LS_OK;
}

/* Writes everything over. Entries were compared before, so each is there and as large as its tensor. */
static void apply(const safetensors *file, const checkpoint_contents *contents) {
    for (int i = 0; i < contents->count; i++) {
        const safetensors_entry *entry = safetensors_find(file, contents->tensors[i].name);
        /* By way of the scratch, which is aligned: the file's data need not be. */
        if (entry->end > entry->begin) memcpy(contents->scratch, file->data + entry->begin, entry->end - entry->begin);
        ls_tensor_copy_in(contents->tensors[i].tensor, contents->scratch);
    }
}

/* Compares all of it with what is here, then takes it over. */
static ls_status take(const safetensors *file, const checkpoint_contents *contents, ls_optim *optim,
                      ls_checkpoint_state *state) {
    for (int i = 0; i < contents->count; i++)
        LS_TRY(compare(&contents->tensors[i], safetensors_find(file, contents->tensors[i].name)));
    LS_TRY(find_strangers(file, contents, optim));
    /* Aside, as the caller's state must not change when something later is wrong. */
    ls_checkpoint_state read = {0};
    if (state) LS_TRY(metadata_read_state(file, &read));

    /* Read aside: setting them is the last step. */
    int64_t *counts = NULL;
    if (optim) {
        const int count = ls_optim_parameter_count(optim);
        counts = ls_alloc_array((size_t)count, sizeof *counts);
        if (!counts) return LS_ERR_MEMORY;
        const ls_status status = metadata_read_update_counts(file, counts, count);
        if (status) {
            ls_free(counts);
            return status;
        }
    }
    /* From here on nothing fails. */
    apply(file, contents);
    if (optim) ls_optim_set_update_counts(optim, counts);
    if (state) *state = read;
    ls_free(counts);
    return LS_OK;
}

ls_status ls_checkpoint_load(const char *path, ls_module *module, ls_optim *optim, ls_checkpoint_state *state) {
    if (!path || !*path || !module)
        return ls_fail(LS_ERR_ARGUMENT, "ls_checkpoint_load: the path or the module is missing; give both");
    checkpoint_contents contents;
    safetensors file = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    LS_TRY(checkpoint_list(&contents, module, optim));
    /* The whole file at once: read piece by piece, a failing disk could leave half of the tensors new. */
    ls_status status = ls_file_read(path, &bytes, &size);
    if (!status) status = safetensors_parse(&file, bytes, size);
    if (!status) status = take(&file, &contents, optim, state);
    if (status) status = ls_fail_within(status, "checkpoint \"%s\"", path);
    safetensors_free(&file);
    ls_free(bytes);
    checkpoint_contents_free(&contents);
    return status;
}
