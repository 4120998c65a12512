/* onednn.c: which entries of the f32 table oneDNN serves. The others stay plain loops: they are bound by memory. */
#include "tensor/kernels/onednn/onednn.h"

#include "tensor/kernels/onednn/session.h"

void onednn_overwrite(ls_kernels *table) {
    /* What a test or a log calls the table as a whole. */
    table->name = "onednn";
    table->linear_forward = onednn_linear_forward;
    table->linear_backward_data = onednn_linear_backward_data;
    table->linear_backward_weight = onednn_linear_backward_weight;
    table->conv2d_forward = onednn_conv2d_forward;
    table->conv2d_backward_data = onednn_conv2d_backward_data;
    table->conv2d_backward_weight = onednn_conv2d_backward_weight;
}

void onednn_thread_release(void) {
    session_release();
}
