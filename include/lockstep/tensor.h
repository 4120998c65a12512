/* lockstep/tensor.h: arrays of numbers with a shape.
 *
 * Handles are counted: ls_tensor_keep adds a holder, ls_tensor_close lets one go. A tensor that an op returned inside a
 * step (ls_step_begin ... ls_step_end) belongs to the step and is not closed by the caller; one from ls_tensor_create
 * is.
 *
 * A thread keeps the memory of closed tensors for its next ones, so that a training step allocates nothing; it goes
 * back to the system when the thread closes its last tensor, or ends.
 *
 * A tensor is used by one thread at a time. Ops take NULL for "an earlier op failed" and pass it on.                 */
#ifndef LOCKSTEP_TENSOR_H
#define LOCKSTEP_TENSOR_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_DIMS 8

typedef struct ls_tensor ls_tensor;

/* How elements lie in memory behind the logical dims. */
typedef enum ls_layout {
    LS_LAYOUT_PLAIN = 0, /* the last dim is the fastest */
    LS_LAYOUT_NHWC,      /* 4 dims n, c, h, w; c is the fastest: activations of convolutions */
    LS_LAYOUT_HWIO       /* 4 dims out, in, kh, kw stored kh, kw, in, out: weights of convolutions */
} ls_layout;

/* A zeroed tensor of `ndim` dims (0 for a scalar, at most LS_MAX_DIMS), plain layout, owned by the caller.
 * dtype    LS_F32, LS_F64, LS_I64, LS_U8
 * Errors: LS_ERR_ARGUMENT (negative dims, too many, a product past SIZE_MAX), LS_ERR_MEMORY. */
LS_API ls_status ls_tensor_create(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims);

/* As ls_tensor_create with a layout other than plain (4 dims). The same errors. */
LS_API ls_status ls_tensor_create_layout(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims,
                                         ls_layout layout);

/* A tensor over the caller's memory: `data` [product of dims] in the given layout, aligned to the element.
 * `release(context)` is called once when the last holder lets go, by the thread that does; NULL when the memory
 * outlives the tensor. On error `release` is not called. Errors: as ls_tensor_create; LS_ERR_ARGUMENT when data is
 * NULL and there are elements. */
LS_API ls_status ls_tensor_borrow(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout,
                                  void *data, void (*release)(void *context), void *context);

/* One holder more, and one less: the last one frees. Keep returns its argument. NULL is harmless. Any thread that
 * holds one. */
LS_API ls_tensor *ls_tensor_keep(ls_tensor *tensor);
LS_API void ls_tensor_close(ls_tensor **tensor);

/* Dims are logical: [n, c, h, w] for images whatever the layout. dim(tensor, -1) is the last; 0 with the error set
 * (LS_ERR_ARGUMENT) for one that is not there. NULL, an earlier failure, has no dims and no elements. */
LS_API ls_dtype ls_tensor_dtype(const ls_tensor *tensor);
LS_API ls_layout ls_tensor_layout(const ls_tensor *tensor);
LS_API int ls_tensor_ndim(const ls_tensor *tensor);
LS_API int64_t ls_tensor_dim(const ls_tensor *tensor, int index);
LS_API int64_t ls_tensor_numel(const ls_tensor *tensor);

/* The elements as they are stored, valid while the tensor has a holder; NULL for NULL. The mutable form tells the
 * library that the content changes: ask anew for each time that you write. */
LS_API const void *ls_tensor_data(const ls_tensor *tensor);
LS_API void *ls_tensor_data_mut(ls_tensor *tensor);

/* Copies all elements in logical order, last dim fastest, from or to `values` of the same dtype ([numel]).
 * Errors: LS_ERR_ARGUMENT for NULL. */
LS_API ls_status ls_tensor_copy_in(ls_tensor *tensor, const void *values);
LS_API ls_status ls_tensor_copy_out(const ls_tensor *tensor, void *values);

/* The only element of a tensor of one element, as a double; NAN with the error set otherwise, and for NULL. */
LS_API double ls_tensor_item(const ls_tensor *tensor);

/* Changes with each write, of this tensor or of one that shares its memory: unequal versions mean that the content may
 * differ. 0 for NULL. */
LS_API uint64_t ls_tensor_version(const ls_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
