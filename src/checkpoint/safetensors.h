/* safetensors.h: the file format, from and to memory: what reader, writer and fuzzer share.
 *
 *     u64 little-endian: bytes of the header | header: JSON, padded with spaces | data
 *
 * The header maps each name to {"dtype", "shape", "data_offsets": [begin, end)}, relative to the data, and
 * "__metadata__" to texts. The tensors fill the data without hole or overlap, in logical order, little-endian.       */
#ifndef LS_CHECKPOINT_SAFETENSORS_H
#define LS_CHECKPOINT_SAFETENSORS_H

#include <lockstep/tensor.h>

#include <jansson.h>

#define SAFETENSORS_METADATA "__metadata__"

typedef struct safetensors_entry {
    const char *name; /* lives in the header */
    const char *type; /* as the file spells it */
    ls_dtype dtype;   /* LS_DTYPE_COUNT: a type that the format has and Lockstep has not */
    int ndim;
    int64_t dims[LS_MAX_DIMS];
    size_t begin, end; /* in the data */
} safetensors_entry;

/* A parsed file over the caller's bytes. */
typedef struct safetensors {
    json_t *header;             /* owned */
    safetensors_entry *entries; /* [count], owned, in the order of the data */
    size_t count;
    json_t *metadata;    /* an object of texts, or NULL */
    const uint8_t *data; /* [entries[count - 1].end], in the caller's bytes, aligned to nothing */
} safetensors;

/* Parses the `size` bytes of a file, which are taken as hostile. On error `file` is zeroed.
 * Errors: LS_ERR_FORMAT (what is wrong and where), LS_ERR_MEMORY. */
ls_status safetensors_parse(safetensors *file, const uint8_t *bytes, size_t size);
void safetensors_free(safetensors *file);

/* The entry called `name`, or NULL. */
const safetensors_entry *safetensors_find(const safetensors *file, const char *name);

/* The text under `key` of the metadata, or NULL. */
const char *safetensors_text(const safetensors *file, const char *key);

/* The format's name of a type. */
const char *safetensors_type(ls_dtype dtype);

#endif
