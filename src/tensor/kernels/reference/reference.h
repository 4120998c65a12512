/* reference.h: the tables of plain loops: the oracle in tests, and what runs where nothing faster is built in. */
#ifndef LS_TENSOR_KERNELS_REFERENCE_H
#define LS_TENSOR_KERNELS_REFERENCE_H

#include "tensor/kernels/kernels.h"

const ls_kernels *reference_f32(void);
const ls_kernels *reference_f64(void);

#endif
