/* tensor.h: what a tensor is made of: a handle with a shape, over storage that views share.
 *
 * Handles and storages are counted apart. A storage is owned (its elements lie behind it, in one block of the arena) or
 * borrowed (a pointer and a release callback). Rooms above hang their own record on a handle (`attachment`).         */
#ifndef LS_TENSOR_TENSOR_H
#define LS_TENSOR_TENSOR_H

#include <lockstep/tensor.h>

#include <stdatomic.h>

/* Memory that holds elements. holders: atomic, since the last holder may be any thread. */
typedef struct tensor_storage {
    _Atomic uint32_t holders;
    uint64_t version; /* of the content; see tensor_touch */
    void *data;
    void (*release)(void *context); /* borrowed memory; NULL when there is nothing to tell */
    void *context;
} tensor_storage;

/* The record of a room above: `release` is called when the last holder of the tensor lets go. */
typedef struct tensor_attachment {
    void (*release)(struct tensor_attachment *attachment);
} tensor_attachment;

struct ls_tensor {
    _Atomic uint32_t holders;
    ls_dtype dtype;
    ls_layout layout;
    int ndim;
    int64_t dims[LS_MAX_DIMS];
    int64_t numel;
    void *data; /* the storage's */
    tensor_storage *storage;
    tensor_attachment *attachment; /* autograd's: a leaf's record or the op that made the tensor; NULL: neither */
};

/* A tensor as ls_tensor_create_layout makes it, its elements not zeroed. */
ls_status tensor_create_raw(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout);

/* A second handle on the storage of `tensor` under other dims of the same number of elements. It has no attachment. */
ls_status tensor_create_view(ls_tensor **view, const ls_tensor *tensor, int ndim, const int64_t *dims,
                             ls_layout layout);

/* tensor_create_view under the same dims: the same elements, apart from the tape. */
ls_status tensor_create_alias(ls_tensor **alias, const ls_tensor *tensor);

/* Tells that the content has changed. A version is a number never given before in this process, so that caches may be
 * keyed by address and version alone. */
void tensor_touch(ls_tensor *tensor);

/* Distances in elements between neighbours along each logical dim. */
void tensor_strides(const ls_tensor *tensor, int64_t *strides);

/* Whether the elements lie in plain order: always so for the plain layout, and for others when the dims that moved are
 * 1. */
bool tensor_is_plain(const ls_tensor *tensor);

bool tensor_is_same_shape(const ls_tensor *a, const ls_tensor *b); /* dims, whatever layout and dtype */
bool tensor_is_alike(const ls_tensor *a, const ls_tensor *b);      /* dims, layout and dtype */

size_t tensor_bytes(const ls_tensor *tensor);

/* "f32 [64, 1, 28, 28] nhwc", for errors. Returns `text`. */
#define TENSOR_TEXT_BYTES 224
const char *tensor_describe(const ls_tensor *tensor, char text[TENSOR_TEXT_BYTES]);

#endif
