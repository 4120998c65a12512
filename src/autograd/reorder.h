/* reorder.h: the same elements in the same logical order under other dims and another layout, differentiable. */
#ifndef LS_AUTOGRAD_REORDER_H
#define LS_AUTOGRAD_REORDER_H

#include <lockstep/autograd.h>

/* Plain images [n, c, h, w] in nhwc, for ops that want them so. */
ls_tensor *autograd_to_nhwc(ls_tensor *a);

#endif
