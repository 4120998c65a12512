/* shape.c: dims, strides and how a tensor is described in an error. */
#include "tensor/tensor.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Questions about NULL, an earlier failure, get the answers of nothing: no dims, no elements. */
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
    /* As in PyTorch, -1 is the last. */
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

/* The logical dim that stands at `place` when dims are listed from the slowest to the fastest in memory. */
static int stored_at(ls_layout layout, int place) {
    static const int nhwc[4] = {0, 2, 3, 1}, hwio[4] = {2, 3, 1, 0};
    if (layout == LS_LAYOUT_NHWC) return nhwc[place];
    return layout == LS_LAYOUT_HWIO ? hwio[place] : place;
}

void tensor_strides(const ls_tensor *tensor, int64_t *strides) {
    int64_t distance = 1;
    for (int place = tensor->ndim - 1; place >= 0; place--) {
        const int dim = stored_at(tensor->layout, place);
        strides[dim] = distance;
        distance *= tensor->dims[dim];
    }
}

bool tensor_is_plain(const ls_tensor *tensor) {
    /* The usual case costs a comparison. */
    if (tensor->layout == LS_LAYOUT_PLAIN) return true;
    /* Dims of one element have no neighbours to be far from. */
    int64_t strides[LS_MAX_DIMS] = {0}, distance = 1;
    tensor_strides(tensor, strides);
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->dims[i] != 1 && strides[i] != distance) return false;
        distance *= tensor->dims[i];
    }
    return true;
}

/* Dims past ndim are zero in every tensor, but only those before it are looked at. */
bool tensor_is_same_shape(const ls_tensor *a, const ls_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof a->dims[0]) == 0;
}

bool tensor_is_alike(const ls_tensor *a, const ls_tensor *b) {
    return tensor_is_same_shape(a, b) && a->layout == b->layout && a->dtype == b->dtype;
}

const char *tensor_describe(const ls_tensor *tensor, char text[TENSOR_TEXT_BYTES]) {
    static const char *const layouts[] = {
        [LS_LAYOUT_PLAIN] = "", [LS_LAYOUT_NHWC] = " nhwc", [LS_LAYOUT_HWIO] = " hwio"};
    /* TENSOR_TEXT_BYTES holds 8 dims of 20 digits, so nothing is ever cut. */
    int length = snprintf(text, TENSOR_TEXT_BYTES, "%s [", ls_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->ndim; i++)
        length += snprintf(text + length, (size_t)(TENSOR_TEXT_BYTES - length), "%s%lld", i ? ", " : "",
                           (long long)tensor->dims[i]);
    snprintf(text + length, (size_t)(TENSOR_TEXT_BYTES - length), "]%s", layouts[tensor->layout]);
    return text;
}
