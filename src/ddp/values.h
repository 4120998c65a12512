/* values.h: the loop over gradients' values that the reducer needs. f32 and f64. */
#ifndef LS_DDP_VALUES_H
#define LS_DDP_VALUES_H

#include <lockstep/base.h>

/* Whether none is NaN or infinite. */
bool values_are_finite(ls_dtype dtype, const void *values, size_t count);

#endif
