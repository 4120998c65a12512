/* f32.c: the reference kernels over `float`. */
#include "tensor/kernels/reference/reference.h"

typedef float real;

#include "tensor/kernels/reference/table.h"

const ls_kernels *reference_f32(void) {
    return &table;
}
