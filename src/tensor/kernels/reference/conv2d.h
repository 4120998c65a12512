/* conv2d.h: convolution in nhwc with weights in hwio: the innermost loops run over channels, which lie together. A
 * template as rows.h.
 *
 * All passes walk the same pairs: output pixel (n, p, q) and kernel tap (r, s) meet at the input pixel (n, p stride +
 * r - padding, q stride + s - padding), if that lies inside the image. They differ in what they do there. */
#ifndef LS_REFERENCE_CONV2D_H
#define LS_REFERENCE_CONV2D_H

#include "tensor/kernels/reference/rows.h"

typedef struct pair {
    int64_t n, p, q, r, s;
    int64_t input, output; /* which pixel, counted over the batch */
    int64_t tap;           /* r kernel_width + s */
} pair;

/* Before the first pair. */
static inline pair before_pairs(void) {
    return (pair){.s = -1};
}

/* Moves on to the next tap, whether or not it falls inside the image; false past the last. */
static inline bool next_tap(const kernels_conv2d *shape, pair *at) {
    if (++at->s < shape->kernel_width) return true;
    at->s = 0;
    if (++at->r < shape->kernel_height) return true;
    at->r = 0;
    at->output++;
    if (++at->q < kernels_conv2d_out_width(shape)) return true;
    at->q = 0;
    if (++at->p < kernels_conv2d_out_height(shape)) return true;
    at->p = 0;
    return ++at->n < shape->batch;
}

/* Moves on to the next pair in order of samples, output pixels, taps; false past the last. */
static inline bool next_pair(const kernels_conv2d *shape, pair *at) {
    while (next_tap(shape, at)) {
        const int64_t row = at->p * shape->stride + at->r - shape->padding;
        const int64_t column = at->q * shape->stride + at->s - shape->padding;
        if (row < 0 || row >= shape->in_height || column < 0 || column >= shape->in_width) continue;
        at->input = (at->n * shape->in_height + row) * shape->in_width + column;
        at->tap = at->r * shape->kernel_width + at->s;
        return true;
    }
    return false;
}

static inline int64_t output_pixels(const kernels_conv2d *shape) {
    return shape->batch * kernels_conv2d_out_height(shape) * kernels_conv2d_out_width(shape);
}

/* No pair at all: also keeps before_pairs honest, which stands in front of output pixel 0 and tap 0. */
static inline bool has_no_pairs(const kernels_conv2d *shape) {
    return output_pixels(shape) * shape->kernel_height * shape->kernel_width == 0;
}

static ls_status conv2d_forward(const kernels_conv2d *shape, const void *x, const void *w, uint64_t weight_version,
                                const void *b, void *y) {
    (void)weight_version; /* nothing is packed here */
    const int64_t in = shape->in_channels, out = shape->out_channels;
    zero(output_pixels(shape) * out, y);
    for (int64_t pixel = 0; b && pixel < output_pixels(shape); pixel++) add_row(out, b, (real *)y + pixel * out);

    if (has_no_pairs(shape)) return LS_OK;
    for (pair at = before_pairs(); next_pair(shape, &at);) {
        add_vector_matrix(in, out, (const real *)x + at.input * in, (const real *)w + at.tap * in * out,
                          (real *)y + at.output * out);
    }
    return LS_OK;
}

static ls_status conv2d_backward_data(const kernels_conv2d *shape, const void *dy, const void *w,
                                      uint64_t weight_version, void *dx) {
    (void)weight_version;
    const int64_t in = shape->in_channels, out = shape->out_channels;
    zero(shape->batch * shape->in_height * shape->in_width * in, dx);

    if (has_no_pairs(shape)) return LS_OK;
    for (pair at = before_pairs(); next_pair(shape, &at);) {
        add_matrix_vector(in, out, (const real *)w + at.tap * in * out, (const real *)dy + at.output * out,
                          (real *)dx + at.input * in);
    }
    return LS_OK;
}

static ls_status conv2d_backward_weight(const kernels_conv2d *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db) {
    const int64_t in = shape->in_channels, out = shape->out_channels;
    real *const weight = open_target(dw, shape->kernel_height * shape->kernel_width * in * out);
    real *const bias = open_target(db, out);
    for (int64_t pixel = 0; bias && pixel < output_pixels(shape); pixel++) {
        add_row(out, (const real *)dy + pixel * out, bias);
    }

    if (!weight || has_no_pairs(shape)) return LS_OK;
    for (pair at = before_pairs(); next_pair(shape, &at);) {
        add_outer_product(in, out, (const real *)x + at.input * in, (const real *)dy + at.output * out,
                          weight + at.tap * in * out);
    }
    return LS_OK;
}

#endif
