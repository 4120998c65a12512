/* dataset.c: data sets as such, and the one over the caller's arrays. */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

void ls_dataset_close(ls_dataset *dataset) {
    if (!dataset) return;
    /* A set that was never opened is all zeroes. */
    if (dataset->close) dataset->close(dataset->context);
    *dataset = (ls_dataset){0};
}

/* Bytes of one sample's x or y. */
static ls_status half_bytes(const char *half, ls_dtype dtype, int ndim, const int64_t *dims, size_t *bytes) {
    if (dtype != LS_F32 && dtype != LS_F64 && dtype != LS_I64 && dtype != LS_U8)
        return ls_fail(LS_ERR_ARGUMENT, "data set: %s_dtype is %s: expected f32, f64, i64 or u8", half,
                       ls_dtype_name(dtype));
    if (ndim < 0 || ndim > LS_MAX_DIMS - 1)
        return ls_fail(LS_ERR_ARGUMENT, "data set: %s_ndim is %d: expected 0 to %d", half, ndim, LS_MAX_DIMS - 1);
    /* Multiplied with a check: the fields are the user's, and memory is asked for by them. */
    *bytes = ls_dtype_size(dtype);
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 1 || __builtin_mul_overflow(*bytes, (size_t)dims[i], bytes))
            return ls_fail(LS_ERR_ARGUMENT,
                           "data set: %s_dims[%d] is %" PRId64 ": expected a positive size of one sample", half, i,
                           dims[i]);
    }
    return LS_OK;
}

ls_status data_sample_bytes(const ls_dataset *dataset, size_t *x_bytes, size_t *y_bytes) {
    if (dataset->count < 0)
        return ls_fail(LS_ERR_ARGUMENT, "data set: count is %" PRId64 ": expected 0 or more", dataset->count);
    LS_TRY(half_bytes("x", dataset->x_dtype, dataset->x_ndim, dataset->x_dims, x_bytes));
    return half_bytes("y", dataset->y_dtype, dataset->y_ndim, dataset->y_dims, y_bytes);
}

/* ---- Arrays in the caller's memory ---- */

typedef struct arrays {
    const char *x, *y;
    size_t x_bytes, y_bytes; /* of one sample */
} arrays;

static ls_status read_arrays(void *context, int64_t index, void *x, void *y) {
    const arrays *from = context;
    /* Only reads: two loaders may share the set. */
    memcpy(x, from->x + (size_t)index * from->x_bytes, from->x_bytes);
    memcpy(y, from->y + (size_t)index * from->y_bytes, from->y_bytes);
    return LS_OK;
}

ls_status ls_dataset_from_arrays(ls_dataset *dataset, const void *x, const void *y) {
    if (!dataset || !x || !y)
        return ls_fail(LS_ERR_ARGUMENT, "ls_dataset_from_arrays: the data set, x or y is NULL; give all three");
    size_t x_bytes = 0, y_bytes = 0;
    LS_TRY(data_sample_bytes(dataset, &x_bytes, &y_bytes));
    /* Sizes are kept, not the shape: a sample is a block of bytes here. */
    arrays *from = ls_alloc(sizeof *from);
    if (!from) return LS_ERR_MEMORY;
    *from = (arrays){.x = x, .y = y, .x_bytes = x_bytes, .y_bytes = y_bytes};
    dataset->read = read_arrays;
    dataset->close = ls_free;
    dataset->context = from;
    return LS_OK;
}
