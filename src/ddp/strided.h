/* strided.h: moving gradients between a caller's strided memory and a bucket, where they lie contiguous. */
#ifndef LS_DDP_STRIDED_H
#define LS_DDP_STRIDED_H

#include <lockstep/ddp.h>

/* Copies all elements of `gradient` into `packed`, last dim fastest; and back. Any dtype. */
void strided_pack(const ls_gradient *gradient, void *packed);
void strided_unpack(const ls_gradient *gradient, const void *packed);

#endif
