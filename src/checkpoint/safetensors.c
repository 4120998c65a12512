/* safetensors.c: the parser. It believes nothing: each number is checked before it is used, each name comes once, and
 * the file is exactly as long as its tensors say.
 *
 * jansson checks the text (UTF-8, depth, no duplicate keys, integers of 64 bits); the rest is checked here. */
#include "checkpoint/safetensors.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The length's own bytes, and the format's limit on what it may say. */
#define LENGTH_BYTES 8
#define HEADER_LIMIT ((uint64_t)100000000)

/* All types of the format: the ones that Lockstep has not are still checked, since their sizes place the others. */
static const struct {
    const char *name;
    size_t size;
    ls_dtype dtype;
} types[] = {
    {"F32", 4, LS_F32},         {"F64", 8, LS_F64},         {"F16", 2, LS_F16},         {"BF16", 2, LS_BF16},
    {"I8", 1, LS_I8},           {"U8", 1, LS_U8},           {"I32", 4, LS_I32},         {"I64", 8, LS_I64},
    {"BOOL", 1, LS_BOOL},       {"I16", 2, LS_DTYPE_COUNT}, {"U16", 2, LS_DTYPE_COUNT}, {"U32", 4, LS_DTYPE_COUNT},
    {"U64", 8, LS_DTYPE_COUNT},
};
#define TYPE_COUNT (sizeof types / sizeof *types)

const char *safetensors_type(ls_dtype dtype) {
    size_t i = 0;
    /* Every type of ours is in the table. */
    while (types[i].dtype != dtype) i++;
    return types[i].name;
}

/* A non-negative integer; false for anything else. */
static bool read_size(const json_t *value, int64_t *size) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *size = json_integer_value(value);
    return true;
}

/* Multiplies the shape's dims into `bytes`, which holds the element's size. */
static ls_status read_shape(const json_t *shape, safetensors_entry *entry, size_t *bytes) {
    if (!json_is_array(shape) || json_array_size(shape) > LS_MAX_DIMS)
        return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": its shape is not a list of at most %d sizes", entry->name,
                       LS_MAX_DIMS);
    entry->ndim = (int)json_array_size(shape);
    for (int i = 0; i < entry->ndim; i++) {
        if (!read_size(json_array_get(shape, (size_t)i), &entry->dims[i]))
            return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": dim %d is not a size", entry->name, i);
        if (__builtin_mul_overflow(*bytes, (size_t)entry->dims[i], bytes))
            return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": its shape is past what a size can hold", entry->name);
    }
    return LS_OK;
}

/* Everything about one tensor but its place among the others. */
static ls_status read_entry(const char *name, const json_t *value, safetensors_entry *entry) {
    entry->name = name;
    const json_t *type = json_object_get(value, "dtype"), *offsets = json_object_get(value, "data_offsets");
    /* Three members, and each is asked for by name below: so nothing else can be among them. */
    if (!json_is_object(value) || json_object_size(value) != 3 || !json_is_string(type))
        return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": expected dtype, shape and data_offsets, and nothing else", name);

    size_t known = 0;
    while (known < TYPE_COUNT && strcmp(types[known].name, json_string_value(type)) != 0) known++;
    if (known == TYPE_COUNT)
        return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": the format has no dtype \"%s\"", name, json_string_value(type));
    entry->type = types[known].name;
    entry->dtype = types[known].dtype;

    /* The shape decides how many bytes there must be; the offsets have to agree, not to be believed. */
    size_t bytes = types[known].size;
    LS_TRY(read_shape(json_object_get(value, "shape"), entry, &bytes));
    int64_t begin = 0, end = 0;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !read_size(json_array_get(offsets, 0), &begin) ||
        !read_size(json_array_get(offsets, 1), &end) || begin > end)
        return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": its data_offsets are not [begin, end]", name);
    if ((size_t)(end - begin) != bytes)
        return ls_fail(LS_ERR_FORMAT, "tensor \"%s\": its shape takes %zu bytes, its data_offsets %" PRId64, name,
                       bytes, end - begin);
    entry->begin = (size_t)begin;
    entry->end = (size_t)end;
    return LS_OK;
}

/* Numbers and nested tables are refused: whoever reads a text may rely on its being one. */
static ls_status check_metadata(json_t *metadata) {
    if (!json_is_object(metadata)) return ls_fail(LS_ERR_FORMAT, "__metadata__ is not a table of texts");
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) return ls_fail(LS_ERR_FORMAT, "__metadata__: \"%s\" is not a text", key);
    }
    return LS_OK;
}

static ls_status read_entries(safetensors *file) {
    file->metadata = json_object_get(file->header, SAFETENSORS_METADATA);
    if (file->metadata) LS_TRY(check_metadata(file->metadata));
    /* At most one entry a key, so the table is bounded by the header, which is bounded by the file. */
    const size_t limit = json_object_size(file->header);
    file->entries = ls_alloc_array(limit, sizeof *file->entries);
    if (!file->entries) return LS_ERR_MEMORY;
    const char *name;
    json_t *value;
    json_object_foreach(file->header, name, value) {
        if (value != file->metadata) LS_TRY(read_entry(name, value, &file->entries[file->count++]));
    }
    return LS_OK;
}

static int compare_places(const void *a, const void *b) {
    const safetensors_entry *one = a, *two = b;
    if (one->begin != two->begin) return one->begin < two->begin ? -1 : 1;
    return (one->end > two->end) - (one->end < two->end); /* empty tensors first */
}

/* Sorted by place, the tensors must follow each other exactly and end where the file does. */
static ls_status check_places(safetensors *file, size_t data_bytes) {
    qsort(file->entries, file->count, sizeof *file->entries, compare_places);
    /* With no hole and no overlap each byte of the data belongs to one tensor, or the file is refused. */
    size_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        const safetensors_entry *entry = &file->entries[i];
        if (entry->begin != at)
            return ls_fail(LS_ERR_FORMAT, "tensor \"%s\" begins at %zu: expected %zu, without a hole or an overlap",
                           entry->name, entry->begin, at);
        at = entry->end;
    }
    if (at != data_bytes)
        return ls_fail(LS_ERR_FORMAT, "the tensors take %zu bytes, the file has %zu: it is %s", at, data_bytes,
                       at > data_bytes ? "truncated" : "too long");
    return LS_OK;
}

/* The header's JSON, between its length and the data. */
static ls_status read_header(safetensors *file, const uint8_t *bytes, size_t size, size_t *data_bytes) {
    if (size < LENGTH_BYTES) return ls_fail(LS_ERR_FORMAT, "%zu bytes are too few for a safetensors file", size);
    /* Byte by byte: neither the machine's order nor alignment matters. */
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > HEADER_LIMIT)
        return ls_fail(LS_ERR_FORMAT,
                       "the header's length is %" PRIu64 ": expected at most %" PRIu64 "; is it a safetensors file?",
                       length, HEADER_LIMIT);
    if (length > size - LENGTH_BYTES)
        return ls_fail(LS_ERR_FORMAT, "the file is truncated: its header has %" PRIu64 " bytes, %zu are there", length,
                       size - LENGTH_BYTES);
    /* The format demands it of the first byte: no space before, no other kind of JSON. */
    if (length == 0 || bytes[LENGTH_BYTES] != '{') return ls_fail(LS_ERR_FORMAT, "the header does not begin with {");

    /* jansson bounds the depth itself and refuses zero bytes in names, which would cut them for us. */
    json_error_t error;
    file->header = json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!file->header) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return ls_fail(LS_ERR_MEMORY, "cannot read the header of %" PRIu64 " bytes: memory was refused", length);
        return ls_fail(LS_ERR_FORMAT, "the header is no proper JSON at byte %d: %s", error.position, error.text);
    }
    file->data = bytes + LENGTH_BYTES + length;
    *data_bytes = size - LENGTH_BYTES - (size_t)length;
    return LS_OK;
}

ls_status safetensors_parse(safetensors *file, const uint8_t *bytes, size_t size) {
    *file = (safetensors){0};
    size_t data_bytes = 0;
    ls_status status = read_header(file, bytes, size, &data_bytes);
    if (!status) status = read_entries(file);
    if (!status) status = check_places(file, data_bytes);
    if (status) safetensors_free(file);
    return status;
}

void safetensors_free(safetensors *file) {
    json_decref(file->header);
    ls_free(file->entries);
    *file = (safetensors){0};
}

const safetensors_entry *safetensors_find(const safetensors *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    return NULL;
}

const char *safetensors_text(const safetensors *file, const char *key) {
    return json_string_value(json_object_get(file->metadata, key));
}
