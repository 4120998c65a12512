/* content.c: reading and writing the elements, as they are stored or in logical order. */
#include "tensor/tensor.h"

#include "base/error.h"
#include "tensor/kernels/kernels.h"

#include <math.h>
#include <string.h>

const void *ls_tensor_data(const ls_tensor *tensor) {
    return tensor ? tensor->data : NULL;
}

/* Whoever asks for it is taken to write: that is all a version can know. */
void *ls_tensor_data_mut(ls_tensor *tensor) {
    if (!tensor) return NULL;
    tensor_touch(tensor);
    return tensor->data;
}

ls_status ls_tensor_copy_in(ls_tensor *tensor, const void *values) {
    if (!tensor) return ls_fail(LS_ERR_ARGUMENT, "ls_tensor_copy_in: the tensor is NULL");
    /* An empty tensor needs no values. */
    if (tensor->numel == 0) return LS_OK;
    if (!values) return ls_fail(LS_ERR_ARGUMENT, "ls_tensor_copy_in: values is NULL");
    const int64_t *dims = tensor->dims;
    const size_t size = ls_dtype_size(tensor->dtype);
    /* [n][c][h w] to [n][h w][c], and [out][in][kh kw] to [kh kw][in][out]. */
    switch (tensor->layout) {
    case LS_LAYOUT_PLAIN: memcpy(tensor->data, values, tensor_bytes(tensor)); break;
    case LS_LAYOUT_NHWC: kernels_transpose(size, dims[0], dims[1], dims[2] * dims[3], values, tensor->data); break;
    case LS_LAYOUT_HWIO: kernels_reverse_dims(size, dims[0], dims[1], dims[2] * dims[3], values, tensor->data); break;
    }
    /* After the write: a cache that was filled meanwhile is not taken for the new content. */
    tensor_touch(tensor);
    return LS_OK;
}

ls_status ls_tensor_copy_out(const ls_tensor *tensor, void *values) {
    if (!tensor) return ls_fail(LS_ERR_ARGUMENT, "ls_tensor_copy_out: the tensor is NULL");
    if (tensor->numel == 0) return LS_OK;
    if (!values) return ls_fail(LS_ERR_ARGUMENT, "ls_tensor_copy_out: values is NULL");
    const int64_t *dims = tensor->dims;
    const size_t size = ls_dtype_size(tensor->dtype);
    /* The same the other way round. */
    switch (tensor->layout) {
    case LS_LAYOUT_PLAIN: memcpy(values, tensor->data, tensor_bytes(tensor)); break;
    case LS_LAYOUT_NHWC: kernels_transpose(size, dims[0], dims[2] * dims[3], dims[1], tensor->data, values); break;
    case LS_LAYOUT_HWIO: kernels_reverse_dims(size, dims[2] * dims[3], dims[1], dims[0], tensor->data, values); break;
    }
    return LS_OK;
}

/* As a double, so that a loss can be printed or compared whatever its type. */
double ls_tensor_item(const ls_tensor *tensor) {
    if (!tensor) {
        ls_fail(LS_ERR_ARGUMENT, "ls_tensor_item: the tensor is NULL: an earlier operation failed");
        return NAN;
    }
    if (tensor->numel != 1) {
        char text[TENSOR_TEXT_BYTES];
        ls_fail(LS_ERR_ARGUMENT, "ls_tensor_item: expected one element, found %s", tensor_describe(tensor, text));
        return NAN;
    }
    switch (tensor->dtype) {
    case LS_F32: return *(const float *)tensor->data;
    case LS_F64: return *(const double *)tensor->data;
    case LS_I64: return (double)*(const int64_t *)tensor->data;
    default: return *(const uint8_t *)tensor->data; /* the only other type that a tensor can have */
    }
}
