/* onednn.c: which entries of the f32 table oneDNN serves. */
#include "tensor/kernels/onednn/onednn.h"

void onednn_overwrite(ls_kernels *table) {
    table->name = "onednn";
}

void onednn_thread_release(void) {
}
