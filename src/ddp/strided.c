/* strided.c: an odometer over the dims, rows of the last dim at a time. */
#include "ddp/strided.h"

#include <string.h>

static int64_t numel(const ls_gradient *gradient) {
    int64_t count = 1;
    for (int dim = 0; dim < gradient->ndim; dim++) count *= gradient->dims[dim];
    return count;
}

static bool is_contiguous(const ls_gradient *gradient) {
    int64_t expected = 1;
    for (int dim = gradient->ndim - 1; dim >= 0; dim--) {
        /* A dim of one element has no neighbour: whatever its stride says. */
        if (gradient->dims[dim] != 1 && gradient->strides[dim] != expected) return false;
        expected *= gradient->dims[dim];
    }
    return true;
}

/* Calls copy(at, packed) for each element, in order. */
static void walk(const ls_gradient *gradient, char *packed, void (*copy)(char *at, char *packed, size_t size)) {
    const size_t size = ls_dtype_size(gradient->dtype);
    int64_t index[8] = {0}, offset = 0;
    for (int64_t left = numel(gradient); left > 0; left--, packed += size) {
        copy((char *)gradient->gradient + offset * (int64_t)size, packed, size);
        for (int dim = gradient->ndim - 1; dim >= 0; dim--) {
            offset += gradient->strides[dim];
            if (++index[dim] < gradient->dims[dim]) break;
            /* The wheel has gone round: back to its start, and the one before it moves on. */
            offset -= gradient->strides[dim] * gradient->dims[dim];
            index[dim] = 0;
        }
    }
}

static void copy_in(char *at, char *packed, size_t size) {
    memcpy(packed, at, size);
}

static void copy_out(char *at, char *packed, size_t size) {
    memcpy(at, packed, size);
}

void strided_pack(const ls_gradient *gradient, void *packed) {
    const size_t bytes = (size_t)numel(gradient) * ls_dtype_size(gradient->dtype);
    if (bytes == 0) return;
    if (is_contiguous(gradient))
        memcpy(packed, gradient->gradient, bytes);
    else
        walk(gradient, packed, copy_in);
}

void strided_unpack(const ls_gradient *gradient, const void *packed) {
    const size_t bytes = (size_t)numel(gradient) * ls_dtype_size(gradient->dtype);
    if (bytes == 0) return;
    if (is_contiguous(gradient))
        memcpy(gradient->gradient, packed, bytes);
    else
        walk(gradient, (char *)packed, copy_out); /* copy_out only reads it */
}
