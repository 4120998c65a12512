/* onednn.h: the one shim through which oneDNN is called, built against 2.6 or 3.x. */
#ifndef LS_TENSOR_KERNELS_ONEDNN_H
#define LS_TENSOR_KERNELS_ONEDNN_H

#include "tensor/kernels/kernels.h"

/* Overwrites the entries of an f32 table where oneDNN is faster. */
void onednn_overwrite(ls_kernels *table);

/* Frees what the shim keeps for the calling thread. */
void onednn_thread_release(void);

/* The entries, as ls_kernels describes them. */
ls_status onednn_linear_forward(const kernels_linear *shape, const void *x, const void *w, const void *b, void *y);
ls_status onednn_linear_backward_data(const kernels_linear *shape, const void *dy, const void *w, void *dx);
ls_status onednn_linear_backward_weight(const kernels_linear *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db);
ls_status onednn_conv2d_forward(const kernels_conv2d *shape, const void *x, const void *w, uint64_t weight_version,
                                const void *b, void *y);
ls_status onednn_conv2d_backward_data(const kernels_conv2d *shape, const void *dy, const void *w,
                                      uint64_t weight_version, void *dx);
ls_status onednn_conv2d_backward_weight(const kernels_conv2d *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db);

#endif
