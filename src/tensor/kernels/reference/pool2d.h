/* pool2d.h: max-pooling in nhwc, all channels of a pixel at a time. A template as rows.h. */
#ifndef LS_REFERENCE_POOL2D_H
#define LS_REFERENCE_POOL2D_H

#include <stddef.h>
#include <stdint.h>

/* Where a channel of x at `pixel` is larger than y, takes it. NaN is taken, and kept, so that it is seen further on. */
static inline void take_larger(int64_t channels, const real *restrict x, int32_t pixel, real *restrict y,
                               int32_t *restrict argmax) {
    for (int64_t c = 0; c < channels; c++) {
        /* Both sides in any case, so that the loop has no branch. */
        const bool takes = (x[c] > y[c]) | (x[c] != x[c]);
        y[c] = takes ? x[c] : y[c];
        argmax[c] = takes ? pixel : argmax[c];
    }
}

static ls_status max_pool2d_forward(const kernels_pool2d *shape, const void *x, void *y, int32_t *argmax) {
    const int64_t channels = shape->channels, image = shape->in_height * shape->in_width;
    if (image > INT32_MAX) {
        return ls_fail(LS_ERR_ARGUMENT,
                       "max-pooling of images of %lld pixels: places are kept in 32 bits, use smaller images",
                       (long long)image);
    }
    const int64_t out_height = kernels_pool2d_out_height(shape), out_width = kernels_pool2d_out_width(shape);
    for (int64_t n = 0; n < shape->batch; n++) {
        for (int64_t p = 0; p < out_height; p++) {
            for (int64_t q = 0; q < out_width; q++) {
                const int64_t first = p * shape->stride * shape->in_width + q * shape->stride;
                const int64_t output = ((n * out_height + p) * out_width + q) * channels;
                for (int64_t c = 0; c < channels; c++) {
                    ((real *)y)[output + c] = ((const real *)x)[(n * image + first) * channels + c];
                    argmax[output + c] = (int32_t)first;
                }
                /* The first pixel is compared with itself, which changes nothing. */
                for (int64_t r = 0; r < shape->kernel; r++) {
                    for (int64_t s = 0; s < shape->kernel; s++) {
                        const int64_t pixel = first + r * shape->in_width + s;
                        take_larger(channels, (const real *)x + (n * image + pixel) * channels, (int32_t)pixel,
                                    (real *)y + output, argmax + output);
                    }
                }
            }
        }
    }
    return LS_OK;
}

static ls_status max_pool2d_backward(const kernels_pool2d *shape, const void *dy, const int32_t *argmax, void *dx) {
    const int64_t channels = shape->channels, image = shape->in_height * shape->in_width;
    const int64_t windows = kernels_pool2d_out_height(shape) * kernels_pool2d_out_width(shape);
    zero(shape->batch * image * channels, dx);
    for (int64_t output = 0; output < shape->batch * windows; output++) {
        /* Places are counted within the image. */
        real *const dx_image = (real *)dx + output / windows * image * channels;
        for (int64_t c = 0; c < channels; c++) {
            dx_image[argmax[output * channels + c] * channels + c] += ((const real *)dy)[output * channels + c];
        }
    }
    return LS_OK;
}

#endif
