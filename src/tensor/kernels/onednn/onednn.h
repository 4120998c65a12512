/* onednn.h: the one shim through which oneDNN is called; 2.6 and 3.x. */
#ifndef LS_TENSOR_KERNELS_ONEDNN_H
#define LS_TENSOR_KERNELS_ONEDNN_H

#include "tensor/kernels/kernels.h"

/* Overwrites the entries of an f32 table where oneDNN is faster. */
void onednn_overwrite(ls_kernels *table);

/* Frees what the shim keeps for the calling thread. */
void onednn_thread_release(void);

#endif
