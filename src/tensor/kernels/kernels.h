/* kernels.h: the arithmetic of the library as a table of functions over raw pointers, one table an element type.
 *
 * The table is filled with plain C loops that read like the formula (reference/) and, for f32 where oneDNN is built
 * in, overwritten by what is faster there (onednn/). Callers have checked shapes; kernels know of no tensor, tape or
 * group.
 *
 * In every comment below `x` are inputs, `y` outputs, `d...` gradients, all of the table's dtype; images are nhwc,
 * weights of convolutions hwio. Pointers are aligned to the element at least. Dims of 0 are fine: sums over nothing
 * are 0, means NaN. Where nothing else is said outputs are stored, not added to, and overlap no input. Sums run in a
 * fixed order, samples in theirs: the same call yields the same bits.
 *
 * Errors of all: LS_ERR_MEMORY (scratch was refused), LS_ERR_INTERNAL (oneDNN refused a call); others where they are
 * named. Any thread may call, with memory that no other uses meanwhile; but never the progress thread, since oneDNN
 * starts OpenMP's threads. */
#ifndef LS_TENSOR_KERNELS_KERNELS_H
#define LS_TENSOR_KERNELS_KERNELS_H

#include <lockstep/base.h>

#define KERNELS_VERSION 1

/* Where a parameter's gradient goes: the caller's own memory, for instance a bucket. */
typedef struct kernels_target {
    void *data;      /* NULL: this gradient is not wanted */
    bool accumulate; /* true adds to what is there, false stores (what was there is not read) */
} kernels_target;

/* y = x w^T + b. */
typedef struct kernels_linear {
    int64_t batch, in, out;
} kernels_linear;

/* A convolution (cross-correlation), square stride and padding, no dilation, no groups. */
typedef struct kernels_conv2d {
    int64_t batch, in_channels, in_height, in_width;
    int64_t out_channels, kernel_height, kernel_width;
    int64_t stride, padding;
} kernels_conv2d;

/* Max-pooling with a square window and no padding. */
typedef struct kernels_pool2d {
    int64_t batch, channels, in_height, in_width;
    int64_t kernel, stride;
} kernels_pool2d;

/* How many windows fit along one side: (in + 2 padding - kernel) / stride + 1, 0 when none does. */
static inline int64_t kernels_windows(int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
    const int64_t room = in + 2 * padding - kernel;
    return room < 0 ? 0 : room / stride + 1;
}
static inline int64_t kernels_conv2d_out_height(const kernels_conv2d *shape) {
    return kernels_windows(shape->in_height, shape->kernel_height, shape->stride, shape->padding);
}
static inline int64_t kernels_conv2d_out_width(const kernels_conv2d *shape) {
    return kernels_windows(shape->in_width, shape->kernel_width, shape->stride, shape->padding);
}
static inline int64_t kernels_pool2d_out_height(const kernels_pool2d *shape) {
    return kernels_windows(shape->in_height, shape->kernel, shape->stride, 0);
}
static inline int64_t kernels_pool2d_out_width(const kernels_pool2d *shape) {
    return kernels_windows(shape->in_width, shape->kernel, shape->stride, 0);
}

/* PyTorch's SGD. is_first: the parameter's first update, which sets the momentum to the gradient. */
typedef struct kernels_sgd {
    double lr, momentum, weight_decay;
    bool nesterov, is_first;
} kernels_sgd;

/* PyTorch's AdamW. update: 1 for the parameter's first update. */
typedef struct kernels_adamw {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t update;
} kernels_adamw;

typedef struct ls_kernels {
    const char *name; /* "reference", "onednn" */
    int version;      /* KERNELS_VERSION */
    ls_dtype dtype;   /* LS_F32 or LS_F64 */

    /* ---- Linear: x [batch][in], w [out][in], b [out] or NULL, y [batch][out] ---- */

    /* y[n][o] = b[o] + sum_i x[n][i] w[o][i] */
    ls_status (*linear_forward)(const kernels_linear *shape, const void *x, const void *w, const void *b, void *y);
    /* dx[n][i] = sum_o dy[n][o] w[o][i] */
    ls_status (*linear_backward_data)(const kernels_linear *shape, const void *dy, const void *w, void *dx);
    /* dw[o][i] (+)= sum_n dy[n][o] x[n][i],  db[o] (+)= sum_n dy[n][o] */
    ls_status (*linear_backward_weight)(const kernels_linear *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db);

    /* ---- Convolution: x [batch][in_height][in_width][in_channels], b [out_channels] or NULL,
     * w [kernel_height][kernel_width][in_channels][out_channels], y [batch][out_height][out_width][out_channels].
     *
     * weight_version lets a packed copy of w be kept: a call with the same (w, weight_version) as an earlier one of
     * this thread promises the same elements. So no version is used again for other content at that address, not even
     * when the memory belongs to another tensor by then. 0 promises nothing. ---- */

    /* y[n][p][q][o] = b[o] + sum_{r,s,i} x[n][p stride + r - padding][q stride + s - padding][i] w[r][s][i][o] */
    ls_status (*conv2d_forward)(const kernels_conv2d *shape, const void *x, const void *w, uint64_t weight_version,
                                const void *b, void *y);
    /* dx[n][h][v][i] = sum of dy[n][p][q][o] w[r][s][i][o] over all o and all (p, r), (q, s) with
     * p stride + r - padding = h and q stride + s - padding = v */
    ls_status (*conv2d_backward_data)(const kernels_conv2d *shape, const void *dy, const void *w,
                                      uint64_t weight_version, void *dx);
    /* dw[r][s][i][o] (+)= sum_{n,p,q} x[n][p stride + r - padding][q stride + s - padding][i] dy[n][p][q][o],
     * db[o] (+)= sum_{n,p,q} dy[n][p][q][o] */
    ls_status (*conv2d_backward_weight)(const kernels_conv2d *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db);

    /* ---- Max-pooling: x [batch][in_height][in_width][channels],
     * y and argmax [batch][out_height][out_width][channels] ---- */

    /* y: the largest of each window; argmax: where it was, row * in_width + column of the image. Ties go to the
     * first, NaN wins over numbers. Errors: LS_ERR_ARGUMENT (an image of 2^31 pixels or more). */
    ls_status (*max_pool2d_forward)(const kernels_pool2d *shape, const void *x, void *y, int32_t *argmax);
    /* dx[n][argmax[n][p][q][c]][c] += dy[n][p][q][c] into zeroes */
    ls_status (*max_pool2d_backward)(const kernels_pool2d *shape, const void *dy, const int32_t *argmax, void *dx);

    /* ---- Element by element; y (dx) may be any of the inputs ---- */

    /* y = max(x, 0); NaN stays */
    ls_status (*relu_forward)(size_t count, const void *x, void *y);
    /* dx = y > 0 ? dy : 0, where y is the output */
    ls_status (*relu_backward)(size_t count, const void *y, const void *dy, void *dx);
    /* y = a + b */
    ls_status (*add)(size_t count, const void *a, const void *b, void *y);
    /* y = a * b */
    ls_status (*mul)(size_t count, const void *a, const void *b, void *y);
    /* y = factor * x */
    ls_status (*scale)(size_t count, double factor, const void *x, void *y);
    /* y += factor * x */
    ls_status (*axpy)(size_t count, double factor, const void *x, void *y);
    /* y = value */
    ls_status (*fill)(size_t count, double value, void *y);
    /* y = mask ? factor * x : 0 */
    ls_status (*mask_scale)(size_t count, double factor, const void *x, const uint8_t *mask, void *y);

    /* ---- Reductions and losses: y and loss are one element; dloss is the gradient from above ---- */

    ls_status (*sum)(size_t count, const void *x, void *y);
    ls_status (*mean)(size_t count, const void *x, void *y);
    /* mean of (x - target)^2, and dx = dloss 2 (x - target) / count */
    ls_status (*mse_forward)(size_t count, const void *x, const void *target, void *loss);
    ls_status (*mse_backward)(size_t count, const void *x, const void *target, double dloss, void *dx);
    /* probabilities[n] = softmax(x[n]); loss = mean_n(log sum_c exp(x[n][c]) - x[n][labels[n]]), safe against overflow.
     * x [batch][classes]; labels [batch] of label_dtype LS_I64 or LS_U8.
     * Errors: LS_ERR_ARGUMENT (another label_dtype; the first label outside [0, classes) is named). */
    ls_status (*cross_entropy_forward)(int64_t batch, int64_t classes, const void *x, ls_dtype label_dtype,
                                       const void *labels, void *probabilities, void *loss);
    /* dx[n][c] = dloss (probabilities[n][c] - [c = labels[n]]) / batch; dx may be `probabilities` */
    ls_status (*cross_entropy_backward)(int64_t batch, int64_t classes, const void *probabilities, ls_dtype label_dtype,
                                        const void *labels, double dloss, void *dx);

    /* ---- Optimizers: one pass over memory ---- */

    /* g = dw + weight_decay w;  m = is_first ? g : momentum m + g;  w -= lr (nesterov ? g + momentum m : m).
     * m [count]; NULL without momentum, then w -= lr g */
    ls_status (*sgd_step)(size_t count, const kernels_sgd *sgd, const void *dw, void *w, void *m);
    /* w -= lr weight_decay w;  m += (1 - beta1)(dw - m);  v = beta2 v + (1 - beta2) dw^2;
     * w -= lr / (1 - beta1^update) m / (sqrt(v / (1 - beta2^update)) + eps) */
    ls_status (*adamw_step)(size_t count, const kernels_adamw *adamw, const void *dw, void *w, void *m, void *v);
} ls_kernels;

/* The table that ops use for LS_F32 or LS_F64: the fastest built in, or what LOCKSTEP_KERNELS=reference|onednn asks
 * for, which is read once a process. NULL with the error set: LS_ERR_UNSUPPORTED for other types, LS_ERR_ENVIRONMENT
 * for another value. */
const ls_kernels *kernels_for(ls_dtype dtype);

/* The plain loops; NULL for a dtype without kernels. */
const ls_kernels *kernels_reference(ls_dtype dtype);

/* The table with oneDNN's kernels in it; NULL where oneDNN is not built in or has nothing for the dtype. */
const ls_kernels *kernels_onednn(ls_dtype dtype);

/* Frees what the kernels keep for the calling thread (primitives by shape, packed weights, scratch). Happens by
 * itself when a thread ends; the next call starts anew. */
void kernels_thread_release(void);

/* ---- Moving elements between layouts, for every element size (1, 2, 4 or 8 bytes) ---- */

/* to[b][column][row] = from[b][row][column]. So nchw to nhwc is (batch n, rows c, columns h w), and nhwc to nchw
 * (batch n, rows h w, columns c). */
void kernels_transpose(size_t element_bytes, int64_t batch, int64_t rows, int64_t columns, const void *from, void *to);

/* to[c][b][a] = from[a][b][c]. So plain weights (out, in, kh kw) become hwio, and (kh kw, in, out) plain again. */
void kernels_reverse_dims(size_t element_bytes, int64_t a, int64_t b, int64_t c, const void *from, void *to);

#endif
