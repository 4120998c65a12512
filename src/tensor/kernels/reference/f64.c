/* f64.c: the reference kernels over `double`. */
#include "tensor/kernels/reference/reference.h"

typedef double real;

#include "tensor/kernels/reference/table.h"

const ls_kernels *reference_f64(void) {
    return &table;
}
