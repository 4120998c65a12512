/* linear.c: the three passes of a linear layer as matrix products on plain layouts, which cost as little as packed ones
 * here; a weight's gradient goes straight to where the caller wants it.                                              */
#include "tensor/kernels/onednn/onednn.h"

#include "base/error.h"
#include "tensor/kernels/onednn/session.h"
#include "tensor/kernels/reference/reference.h"

enum {
    LINEAR_FORWARD = 1,
    LINEAR_FORWARD_BIAS,
    LINEAR_BACKWARD_DATA,
    LINEAR_BACKWARD_WEIGHT,
    LINEAR_BACKWARD_WEIGHT_ADD
};

/* y [rows][columns] = a [rows][inner] b [inner][columns]; transposed operands lie the other way round in memory. */
typedef struct product {
    int64_t rows, inner, columns;
    bool a_is_transposed, b_is_transposed, has_bias, adds;
} product;

static product product_of(const plan_key *key) {
    const int64_t batch = key->sizes[0], in = key->sizes[1], out = key->sizes[2];
    switch (key->operation) {
    /* dx = dy w: both as they lie. */
    case LINEAR_BACKWARD_DATA: return (product){.rows = batch, .inner = out, .columns = in};
    /* dw = dy^T x: the batch is what is summed over. */
    case LINEAR_BACKWARD_WEIGHT: return (product){.rows = out, .inner = batch, .columns = in, .a_is_transposed = true};
    case LINEAR_BACKWARD_WEIGHT_ADD:
        return (product){.rows = out, .inner = batch, .columns = in, .a_is_transposed = true, .adds = true};
    default:
        /* y = x w^T + b: w lies [out][in], which is the transposed operand. */
        return (product){.rows = batch,
                         .inner = in,
                         .columns = out,
                         .b_is_transposed = true,
                         .has_bias = key->operation == LINEAR_FORWARD_BIAS};
    }
}

static ls_status build(session *here, plan *made) {
    const product p = product_of(&made->key);
    layout a = {0}, b = {0}, bias = {0}, y = {0};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t refused = layout_tagged(&a, 2, (dnnl_dims_t){p.rows, p.inner}, p.a_is_transposed ? dnnl_ba : dnnl_ab);
    if (!refused) {
        refused = layout_tagged(&b, 2, (dnnl_dims_t){p.inner, p.columns}, p.b_is_transposed ? dnnl_ba : dnnl_ab);
    }
    if (!refused) refused = layout_tagged(&y, 2, (dnnl_dims_t){p.rows, p.columns}, dnnl_ab);
    /* A row that is added to each row of y. */
    if (!refused && p.has_bias) refused = layout_tagged(&bias, 2, (dnnl_dims_t){1, p.columns}, dnnl_ab);

    ls_status status = onednn_status(refused, "the layouts of a linear layer");
    if (status == LS_OK) status = attributes_create(&attributes, p.adds);
    if (status == LS_OK) {
        status = onednn_status(describe_matmul(&description, here->engine, layout_view(&a), layout_view(&b),
                                               layout_view(&bias), layout_view(&y), attributes),
                               "a matrix product");
    }
    if (status == LS_OK) {
        status =
            call_create(here, &made->main, description, p.has_bias ? 4 : 3,
                        (const int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
                        (const layout_ref[]){layout_view(&a), layout_view(&b), layout_view(&y), layout_view(&bias)});
    }
    if (description) dnnl_primitive_desc_destroy(description);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    layout_close(&a);
    layout_close(&b);
    layout_close(&bias);
    layout_close(&y);
    return status;
}

static ls_status run(int operation, const kernels_linear *shape, const void *a, const void *b, const void *bias,
                     void *y) {
    session *here = NULL;
    plan *found = NULL;
    void *scratch = NULL;
    LS_TRY(session_here(&here));
    const plan_key key = {.operation = operation, .sizes = {shape->batch, shape->in, shape->out}};
    LS_TRY(session_plan(here, &key, build, &found));
    LS_TRY(session_scratch(here, found->main.scratch_bytes, &scratch));
    return call_run(here, &found->main, (const void *const[]){a, b, y, bias}, scratch);
}

/* Sums over nothing are the reference's. */
static bool is_empty(const kernels_linear *shape) {
    return shape->batch == 0 || shape->in == 0 || shape->out == 0;
}

ls_status onednn_linear_forward(const kernels_linear *shape, const void *x, const void *w, const void *b, void *y) {
    if (is_empty(shape)) return reference_f32()->linear_forward(shape, x, w, b, y);
    return run(b ? LINEAR_FORWARD_BIAS : LINEAR_FORWARD, shape, x, w, b, y);
}

ls_status onednn_linear_backward_data(const kernels_linear *shape, const void *dy, const void *w, void *dx) {
    if (is_empty(shape)) return reference_f32()->linear_backward_data(shape, dy, w, dx);
    return run(LINEAR_BACKWARD_DATA, shape, dy, w, NULL, dx);
}

ls_status onednn_linear_backward_weight(const kernels_linear *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db) {
    if (is_empty(shape)) return reference_f32()->linear_backward_weight(shape, x, dy, dw, db);
    if (dw.data) {
        LS_TRY(run(dw.accumulate ? LINEAR_BACKWARD_WEIGHT_ADD : LINEAR_BACKWARD_WEIGHT, shape, dy, x, NULL, dw.data));
    }
    /* Rows added up: a plain loop is as fast as memory. */
    return reference_f32()->linear_backward_weight(shape, x, dy, (kernels_target){.data = NULL}, db);
}
