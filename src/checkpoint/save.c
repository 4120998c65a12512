/* save.c: writing a checkpoint: the header, then each tensor's elements in logical order. */
#include "checkpoint/contents.h"
#include "checkpoint/metadata.h"
#include "checkpoint/safetensors.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/memory.h"

#include <lockstep/checkpoint.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Wide elements first: so all data is aligned to its elements, for readers that map the file. */
static const size_t element_sizes[] = {8, 4, 2, 1};
#define ELEMENT_SIZES (sizeof element_sizes / sizeof *element_sizes)

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; NULL when memory was refused. */
static json_t *describe(const ls_tensor *tensor, size_t begin) {
    json_t *shape = json_array();
    for (int i = 0; i < ls_tensor_ndim(tensor); i++)
        if (json_array_append_new(shape, json_integer(ls_tensor_dim(tensor, i))) != 0) {
            json_decref(shape);
            return NULL;
        }
    const size_t end = begin + checkpoint_tensor_bytes(tensor);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_type(ls_tensor_dtype(tensor)), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* Adds all tensors of one element size, from `*at` on. */
static ls_status describe_size(json_t *header, const checkpoint_contents *contents, size_t element_size, size_t *at) {
    for (int i = 0; i < contents->count; i++) {
        const char *name = contents->tensors[i].name;
        const ls_tensor *tensor = contents->tensors[i].tensor;
        if (ls_dtype_size(ls_tensor_dtype(tensor)) != element_size) continue;
        /* A child module called "optim" can make a parameter's name one of the optimizer's. */
        if (json_object_get(header, name))
            return ls_fail(LS_ERR_ARGUMENT, "the name \"%s\" is taken in the file; rename the tensor", name);
        /* jansson refuses what is no UTF-8, and takes NULL, from a lack of memory, as a failure too. */
        if (json_object_set_new(header, name, describe(tensor, *at)) != 0)
            return ls_fail(LS_ERR_ARGUMENT,
                           "cannot describe the tensor \"%s\": its name is no UTF-8, or memory was refused", name);
        *at += checkpoint_tensor_bytes(tensor);
    }
    return LS_OK;
}

/* The header's text, from jansson's memory: the caller frees it with free. */
static ls_status make_header(const checkpoint_contents *contents, const ls_optim *optim,
                             const ls_checkpoint_state *state, char **text) {
    json_t *metadata = NULL;
    LS_TRY(metadata_write(&metadata, optim, state));
    ls_status status = LS_OK;
    json_t *header = json_object();
    if (json_object_set_new(header, SAFETENSORS_METADATA, metadata) != 0)
        status = ls_fail(LS_ERR_MEMORY, "cannot make the header: memory was refused");
    /* The same order as write_file writes in. */
    size_t at = 0;
    for (size_t i = 0; i < ELEMENT_SIZES && !status; i++)
        status = describe_size(header, contents, element_sizes[i], &at);
    if (!status && !(*text = json_dumps(header, JSON_COMPACT)))
        status = ls_fail(LS_ERR_MEMORY, "cannot make the header: memory was refused");
    json_decref(header);
    return status;
}

/* The length, the text, and spaces up to a multiple of eight: data begins aligned. */
static ls_status write_header(ls_replacement *file, const char *text) {
    static const char spaces[8] = "        ";
    const size_t length = strlen(text), padding = -length % sizeof spaces;
    uint8_t prefix[8];
    for (size_t i = 0; i < sizeof prefix; i++) prefix[i] = (uint8_t)((uint64_t)(length + padding) >> 8 * i);
    LS_TRY(ls_replacement_write(file, prefix, sizeof prefix));
    LS_TRY(ls_replacement_write(file, text, length));
    return ls_replacement_write(file, spaces, padding);
}

/* The data of all tensors of one element size. */
static ls_status write_size(ls_replacement *file, const checkpoint_contents *contents, size_t element_size) {
    for (int i = 0; i < contents->count; i++) {
        const ls_tensor *tensor = contents->tensors[i].tensor;
        if (ls_dtype_size(ls_tensor_dtype(tensor)) != element_size) continue;
        /* In logical order, whatever the layout: so the file is what other tools expect. */
        LS_TRY(ls_tensor_copy_out(tensor, contents->scratch));
        LS_TRY(ls_replacement_write(file, contents->scratch, checkpoint_tensor_bytes(tensor)));
        ls_point("checkpoint.save.tensor");
    }
    return LS_OK;
}

/* Any failure discards the new file; the old one was not touched. */
static ls_status write_file(const char *path, const checkpoint_contents *contents, const char *header) {
    ls_replacement file;
    LS_TRY(ls_replacement_open(&file, path));
    ls_status status = write_header(&file, header);
    for (size_t i = 0; i < ELEMENT_SIZES && !status; i++) status = write_size(&file, contents, element_sizes[i]);
    if (!status) return ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    return status;
}

ls_status ls_checkpoint_save(const char *path, const ls_module *module, const ls_optim *optim,
                             const ls_checkpoint_state *state) {
    if (!path || !*path || !module)
        return ls_fail(LS_ERR_ARGUMENT, "ls_checkpoint_save: the path or the module is missing; give both");
    if (state && (state->epoch < 0 || state->batch < 0))
        return ls_fail(LS_ERR_ARGUMENT, "ls_checkpoint_save: epoch %" PRId64 ", batch %" PRId64 ": expected 0 or more",
                       state->epoch, state->batch);
    checkpoint_contents contents;
    char *header = NULL;
    LS_TRY(checkpoint_list(&contents, module, optim));
    ls_status status = make_header(&contents, optim, state, &header);
    if (!status) status = write_file(path, &contents, header);
    if (status) status = ls_fail_within(status, "checkpoint \"%s\"", path);
    free(header); /* jansson's own memory */
    checkpoint_contents_free(&contents);
    return status;
}
