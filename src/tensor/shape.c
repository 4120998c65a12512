/* shape.c: dims, strides and how a tensor is described in an error. */
#include "tensor/tensor.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

ls_dtype ls_tensor_dtype(const ls_tensor *tensor) {
    return tensor ? tensor->dtype : LS_F32;
}

ls_layout ls_tensor_layout(const ls_tensor *tensor) {
    return tensor ? tensor->layout : LS_LAYOUT_PLAIN;
}

int ls_tensor_ndim(const ls_tensor *tensor) {
    return tensor ? tensor->ndim : 0;
}

int64_t ls_tensor_dim(const ls_tensor *tensor, int index) {
    if (!tensor) return 0;
    const int place = index < 0 ? index + tensor->ndim : index;
    if (place < 0 || place >= tensor->ndim) {
        ls_fail(LS_ERR_ARGUMENT, "ls_tensor_dim: there is no dim %d in a tensor of %d dims", index, tensor->ndim);
        return 0;
    }
    return tensor->dims[place];
}

int64_t ls_tensor_numel(const ls_tensor *tensor) {
    return tensor ? tensor->numel : 0;
}

size_t tensor_bytes(const ls_tensor *tensor) {
    return (size_t)tensor->numel * ls_dtype_size(tensor->dtype);
}

/* The logical dims from the slowest to the fastest as they are stored. */
static void storage_order(const ls_tensor *tensor, int order[LS_MAX_DIMS]) {
    static const int nhwc[4] = {0, 2, 3, 1}, hwio[4] = {2, 3, 1, 0};
    for (int i = 0; i < tensor->ndim; i++) {
        switch (tensor->layout) {
        case LS_LAYOUT_PLAIN: order[i] = i; break;
        case LS_LAYOUT_NHWC: order[i] = nhwc[i]; break;
        case LS_LAYOUT_HWIO: order[i] = hwio[i]; break;
        }
    }
}

void tensor_strides(const ls_tensor *tensor, int64_t *strides) {
    int order[LS_MAX_DIMS];
    storage_order(tensor, order);
    int64_t distance = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        strides[order[i]] = distance;
        distance *= tensor->dims[order[i]];
    }
}

bool tensor_is_plain(const ls_tensor *tensor) {
    if (tensor->layout == LS_LAYOUT_PLAIN) return true;
    /* Dims of one element have no neighbours to be far from. */
    int64_t strides[LS_MAX_DIMS], distance = 1;
    tensor_strides(tensor, strides);
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->dims[i] != 1 && strides[i] != distance) return false;
        distance *= tensor->dims[i];
    }
    return true;
}

bool tensor_is_same_shape(const ls_tensor *a, const ls_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof a->dims[0]) == 0;
}

bool tensor_is_alike(const ls_tensor *a, const ls_tensor *b) {
    return tensor_is_same_shape(a, b) && a->layout == b->layout && a->dtype == b->dtype;
}

const char *tensor_describe(const ls_tensor *tensor, char text[TENSOR_TEXT_BYTES]) {
    static const char *const layouts[] = {
        [LS_LAYOUT_PLAIN] = "", [LS_LAYOUT_NHWC] = " nhwc", [LS_LAYOUT_HWIO] = " hwio"};
    int length = snprintf(text, TENSOR_TEXT_BYTES, "%s [", ls_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->ndim; i++)
        length += snprintf(text + length, (size_t)(TENSOR_TEXT_BYTES - length), "%s%lld", i ? ", " : "",
                           (long long)tensor->dims[i]);
    snprintf(text + length, (size_t)(TENSOR_TEXT_BYTES - length), "]%s", layouts[tensor->layout]);
    return text;
}
