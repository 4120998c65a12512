/* conv2d.c: convolutions. Activations are nhwc; weights take whatever layout oneDNN likes best for the shape and pass
 * (it differs between passes, may be padded, and depends on the processor), and move between that and hwio by a pass
 * over them: before forward and backward-data, where the packed copy is kept while the weight's version lasts, and
 * after backward-weight, where the pass stores or adds. Measured at 0.1 to 9% of the convolution; computing on hwio
 * itself takes up to 3.4 times as long. */
#include "tensor/kernels/onednn/onednn.h"

#include "base/error.h"
#include "base/memory.h"
#include "tensor/kernels/onednn/session.h"
#include "tensor/kernels/reference/reference.h"

/* Apart from linear.c's: plans of both are looked up in one list. */
enum { CONV_FORWARD = 16, CONV_FORWARD_BIAS, CONV_BACKWARD_DATA, CONV_BACKWARD_WEIGHT };

/* How the arrays lie; `w` is oneDNN's choice, `hwio` ours. */
typedef struct layouts {
    layout x, w, hwio, b, y;
} layouts;

static void layouts_close(layouts *l) {
    layout_close(&l->x);
    layout_close(&l->w);
    layout_close(&l->hwio);
    layout_close(&l->b);
    layout_close(&l->y);
}

static plan_key key_of(int operation, const kernels_conv2d *s) {
    return (plan_key){.operation = operation,
                      .sizes = {s->batch, s->in_channels, s->in_height, s->in_width, s->out_channels, s->kernel_height,
                                s->kernel_width, s->stride, s->padding}};
}

static kernels_conv2d shape_of(const plan_key *key) {
    const int64_t *const s = key->sizes;
    return (kernels_conv2d){s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]};
}

static ls_status layouts_open(layouts *l, const kernels_conv2d *s, bool has_bias) {
    const dnnl_dims_t x = {s->batch, s->in_channels, s->in_height, s->in_width};
    const dnnl_dims_t w = {s->out_channels, s->in_channels, s->kernel_height, s->kernel_width};
    const dnnl_dims_t y = {s->batch, s->out_channels, kernels_conv2d_out_height(s), kernels_conv2d_out_width(s)};
    const dnnl_dims_t b = {s->out_channels};
    dnnl_status_t refused = layout_tagged(&l->x, 4, x, dnnl_nhwc);
    /* "any": oneDNN chooses, and the primitive's description tells afterwards. */
    if (!refused) refused = layout_tagged(&l->w, 4, w, dnnl_format_tag_any);
    if (!refused) refused = layout_tagged(&l->hwio, 4, w, dnnl_hwio);
    if (!refused) refused = layout_tagged(&l->y, 4, y, dnnl_nhwc);
    if (!refused && has_bias) refused = layout_tagged(&l->b, 1, b, dnnl_a);
    return onednn_status(refused, "the layouts of a convolution");
}

/* The description of the pass `operation`; backward ones need the forward's as a hint. */
static ls_status describe(session *here, int64_t operation, const kernels_conv2d *s, const layouts *l,
                          dnnl_primitive_desc_t *description) {
    const dnnl_dims_t strides = {s->stride, s->stride}, padding = {s->padding, s->padding};
    const layout_ref x = layout_view(&l->x), w = layout_view(&l->w), y = layout_view(&l->y);
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t forward = NULL;
    LS_TRY(attributes_create(&attributes, false));
    dnnl_status_t refused =
        describe_conv_forward(&forward, here->engine, x, w, layout_view(&l->b), y, strides, padding, attributes);
    if (!refused && operation == CONV_BACKWARD_DATA) {
        refused =
            describe_conv_backward_data(description, here->engine, x, w, y, strides, padding, forward, attributes);
    } else if (!refused && operation == CONV_BACKWARD_WEIGHT) {
        refused =
            describe_conv_backward_weight(description, here->engine, x, w, y, strides, padding, forward, attributes);
    } else {
        /* It is what was asked for, not only the hint. */
        *description = forward;
        forward = NULL;
    }
    if (forward) dnnl_primitive_desc_destroy(forward);
    dnnl_primitive_attr_destroy(attributes);
    return onednn_status(refused, "a convolution");
}

/* The calls of a plan: the convolution, and the moves of its weights. */
static ls_status create_calls(session *here, plan *made, const layouts *l, const_dnnl_primitive_desc_t description) {
    const layout_ref x = layout_view(&l->x), y = layout_view(&l->y), hwio = layout_view(&l->hwio);
    if (made->key.operation == CONV_BACKWARD_WEIGHT) {
        const layout_ref dw = dnnl_primitive_desc_query_md(description, dnnl_query_diff_weights_md, 0);
        made->weight_bytes = dnnl_memory_desc_get_size(dw);
        LS_TRY(call_create(here, &made->main, description, 3,
                           (const int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
                           (const layout_ref[]){x, y, dw}));
        /* Both ways out: the first contribution is stored, later ones are added. */
        LS_TRY(call_create_move(here, &made->store, dw, hwio, false));
        return call_create_move(here, &made->add, dw, hwio, true);
    }
    const layout_ref w = dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    made->weight_bytes = dnnl_memory_desc_get_size(w);
    LS_TRY(call_create_move(here, &made->store, hwio, w, false));
    if (made->key.operation == CONV_BACKWARD_DATA) {
        return call_create(here, &made->main, description, 3,
                           (const int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
                           (const layout_ref[]){y, w, x});
    }
    return call_create(here, &made->main, description, made->key.operation == CONV_FORWARD_BIAS ? 4 : 3,
                       (const int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                       (const layout_ref[]){x, w, y, layout_view(&l->b)});
}

static ls_status build(session *here, plan *made) {
    const kernels_conv2d shape = shape_of(&made->key);
    layouts l = {0};
    dnnl_primitive_desc_t description = NULL;
    ls_status status = layouts_open(&l, &shape, made->key.operation == CONV_FORWARD_BIAS);
    if (status == LS_OK) status = describe(here, made->key.operation, &shape, &l, &description);
    if (status == LS_OK) status = create_calls(here, made, &l, description);
    if (description) dnnl_primitive_desc_destroy(description);
    layouts_close(&l);
    return status;
}

/* Sums over nothing are the reference's. */
static bool is_empty(const kernels_conv2d *s) {
    return s->batch == 0 || s->in_channels == 0 || s->out_channels == 0 || s->kernel_height == 0 ||
           s->kernel_width == 0 || kernels_conv2d_out_height(s) == 0 || kernels_conv2d_out_width(s) == 0;
}

/* A pass that reads weights: forward (a is x, to is y) or backward-data (a is dy, to is dx). */
static ls_status run(int operation, const kernels_conv2d *shape, const void *a, const void *w, uint64_t weight_version,
                     const void *b, void *to) {
    session *here = NULL;
    plan *found = NULL;
    void *scratch = NULL, *packed = NULL;
    LS_TRY(session_here(&here));
    const plan_key key = key_of(operation, shape);
    LS_TRY(session_plan(here, &key, build, &found));
    LS_TRY(session_scratch(here, found->main.scratch_bytes, &scratch));
    LS_TRY(session_pack(here, found, w, weight_version, &packed));
    return call_run(here, &found->main, (const void *const[]){a, packed, to, b}, scratch);
}

ls_status onednn_conv2d_forward(const kernels_conv2d *shape, const void *x, const void *w, uint64_t weight_version,
                                const void *b, void *y) {
    if (is_empty(shape)) return reference_f32()->conv2d_forward(shape, x, w, weight_version, b, y);
    return run(b ? CONV_FORWARD_BIAS : CONV_FORWARD, shape, x, w, weight_version, b, y);
}

ls_status onednn_conv2d_backward_data(const kernels_conv2d *shape, const void *dy, const void *w,
                                      uint64_t weight_version, void *dx) {
    if (is_empty(shape)) return reference_f32()->conv2d_backward_data(shape, dy, w, weight_version, dx);
    return run(CONV_BACKWARD_DATA, shape, dy, w, weight_version, NULL, dx);
}

/* The gradient into scratch in oneDNN's layout, then one pass into the target. */
static ls_status weight_gradient(const kernels_conv2d *shape, const void *x, const void *dy, kernels_target dw) {
    session *here = NULL;
    plan *found = NULL;
    void *scratch = NULL;
    LS_TRY(session_here(&here));
    const plan_key key = key_of(CONV_BACKWARD_WEIGHT, shape);
    LS_TRY(session_plan(here, &key, build, &found));
    /* One piece of scratch for both: the gradient in front, the primitive's own behind it. */
    const size_t gradient_bytes = (found->weight_bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
    LS_TRY(session_scratch(here, gradient_bytes + found->main.scratch_bytes, &scratch));
    LS_TRY(call_run(here, &found->main, (const void *const[]){x, dy, scratch}, (char *)scratch + gradient_bytes));
    return call_run(here, dw.accumulate ? &found->add : &found->store, (const void *const[]){scratch, dw.data}, NULL);
}

ls_status onednn_conv2d_backward_weight(const kernels_conv2d *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db) {
    if (is_empty(shape)) return reference_f32()->conv2d_backward_weight(shape, x, dy, dw, db);
    if (dw.data) LS_TRY(weight_gradient(shape, x, dy, dw));
    /* Pixels added up: a plain loop is as fast as memory. */
    return reference_f32()->conv2d_backward_weight(shape, x, dy, (kernels_target){.data = NULL}, db);
}
