/* idx.h: MNIST's file format, from memory: what a reader and a fuzzer share. The bytes are taken as hostile. */
#ifndef LS_DATA_IDX_H
#define LS_DATA_IDX_H

#include <lockstep/base.h>

#define IDX_MAX_DIMS 3

/* An array of unsigned bytes. */
typedef struct idx_array {
    int ndim;
    int64_t dims[IDX_MAX_DIMS];
    uint8_t *values; /* [product of dims], owned */
} idx_array;

/* Reads an array of exactly `ndim` dims (1 or 3, all but the first positive) from the `size` bytes of a file, gzipped
 * or not. On error `array` is zeroed.
 * Errors: LS_ERR_FORMAT (what was expected and found), LS_ERR_MEMORY. */
ls_status idx_read(idx_array *array, const uint8_t *bytes, size_t size, int ndim);

void idx_free(idx_array *array);

#endif
