/* move.c: the same elements in another order. Only their size matters, so these serve every element type. */
#include "tensor/kernels/kernels.h"

#include <string.h>

/* A square of this many elements a side is read and written while it is in the nearest cache. */
enum { TILE = 16 };

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* One matrix; `bytes` is a constant wherever this is inlined, so that memcpy becomes one move. `to_stride` and
 * `from_stride` are the elements from one row to the next. */
static inline __attribute__((always_inline)) void transpose(size_t bytes, int64_t rows, int64_t columns,
                                                            const char *from, int64_t from_stride, char *to,
                                                            int64_t to_stride) {
    for (int64_t row0 = 0; row0 < rows; row0 += TILE) {
        for (int64_t column0 = 0; column0 < columns; column0 += TILE) {
            /* One side is read along its rows, the other written across them: in a tile both stay near. */
            const int64_t row1 = smaller(rows, row0 + TILE), column1 = smaller(columns, column0 + TILE);
            for (int64_t column = column0; column < column1; column++) {
                for (int64_t row = row0; row < row1; row++) {
                    memcpy(to + (size_t)(column * to_stride + row) * bytes,
                           from + (size_t)(row * from_stride + column) * bytes, bytes);
                }
            }
        }
    }
}

static void transpose_any(size_t bytes, int64_t rows, int64_t columns, const char *from, int64_t from_stride, char *to,
                          int64_t to_stride) {
    /* Each size is compiled for itself, with moves of that width. */
    switch (bytes) {
    case 1: transpose(1, rows, columns, from, from_stride, to, to_stride); break;
    case 2: transpose(2, rows, columns, from, from_stride, to, to_stride); break;
    case 4: transpose(4, rows, columns, from, from_stride, to, to_stride); break;
    default: transpose(8, rows, columns, from, from_stride, to, to_stride); break;
    }
}

void kernels_transpose(size_t element_bytes, int64_t batch, int64_t rows, int64_t columns, const void *from, void *to) {
    const size_t matrix_bytes = (size_t)(rows * columns) * element_bytes;
    for (int64_t b = 0; b < batch; b++) {
        transpose_any(element_bytes, rows, columns, (const char *)from + (size_t)b * matrix_bytes, columns,
                      (char *)to + (size_t)b * matrix_bytes, rows);
    }
}

void kernels_reverse_dims(size_t element_bytes, int64_t a, int64_t b, int64_t c, const void *from, void *to) {
    /* For each b the matrix [a][c] of the source, whose rows lie b c apart, becomes [c][a] with rows b a apart. */
    for (int64_t i = 0; i < b; i++) {
        transpose_any(element_bytes, a, c, (const char *)from + (size_t)(i * c) * element_bytes, b * c,
                      (char *)to + (size_t)(i * a) * element_bytes, b * a);
    }
}
