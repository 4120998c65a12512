/* reorder.h: the same elements in the same logical order under other dims and another layout, differentiable. */
#ifndef LS_AUTOGRAD_REORDER_H
#define LS_AUTOGRAD_REORDER_H

#include <lockstep/autograd.h>

/* `a` in nhwc (4 dims): one that is so already gets a view. For ops that want their input so. */
ls_tensor *autograd_to_nhwc(ls_tensor *a);

#endif
