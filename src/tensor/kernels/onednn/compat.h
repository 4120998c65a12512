/* compat.h: where oneDNN 2.6 and 3.x differ. 3.x has no operation descriptors; memory descriptors are opaque. */
#ifndef LS_ONEDNN_COMPAT_H
#define LS_ONEDNN_COMPAT_H

#include <oneapi/dnnl/dnnl.h>

/* How an array lies in memory, owned: made by layout_tagged, let go by layout_close; a zeroed one is none (no bias). */
typedef dnnl_memory_desc_t layout;

#if DNNL_VERSION_MAJOR < 3

typedef const dnnl_memory_desc_t *layout_ref;

/* 2.6 passes descriptors by address, and a missing bias is NULL. */
static inline layout_ref layout_view(const layout *owned) {
    return owned->ndims == 0 ? NULL : owned;
}

static inline void layout_close(layout *owned) {
    /* The struct is all there is: nothing to free. */
    owned->ndims = 0;
}

static inline dnnl_status_t layout_tagged(layout *made, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(made, ndims, dims, dnnl_f32, tag);
}

static inline dnnl_status_t append_sum(dnnl_post_ops_t post_ops) {
    return dnnl_post_ops_append_sum(post_ops, 1.0F);
}

static inline dnnl_status_t describe_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine, layout_ref a,
                                            layout_ref b, layout_ref bias, layout_ref y,
                                            const_dnnl_primitive_attr_t attributes) {
    /* 2.6 describes in two steps: the operation, then the operation on an engine. */
    dnnl_matmul_desc_t operation;
    const dnnl_status_t status = dnnl_matmul_desc_init(&operation, a, b, bias, y);
    return status ? status : dnnl_primitive_desc_create(made, &operation, attributes, engine, NULL);
}

static inline dnnl_status_t describe_conv_forward(dnnl_primitive_desc_t *made, dnnl_engine_t engine, layout_ref x,
                                                  layout_ref w, layout_ref b, layout_ref y, const dnnl_dims_t strides,
                                                  const dnnl_dims_t padding, const_dnnl_primitive_attr_t attributes) {
    dnnl_convolution_desc_t operation;
    const dnnl_status_t status = dnnl_convolution_forward_desc_init(
        &operation, dnnl_forward_training, dnnl_convolution_direct, x, w, b, y, strides, padding, padding);
    return status ? status : dnnl_primitive_desc_create(made, &operation, attributes, engine, NULL);
}

static inline dnnl_status_t describe_conv_backward_data(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                                        layout_ref dx, layout_ref w, layout_ref dy,
                                                        const dnnl_dims_t strides, const dnnl_dims_t padding,
                                                        const_dnnl_primitive_desc_t forward,
                                                        const_dnnl_primitive_attr_t attributes) {
    dnnl_convolution_desc_t operation;
    const dnnl_status_t status = dnnl_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, dx, w,
                                                                          dy, strides, padding, padding);
    return status ? status : dnnl_primitive_desc_create(made, &operation, attributes, engine, forward);
}

static inline dnnl_status_t describe_conv_backward_weight(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                                          layout_ref x, layout_ref dw, layout_ref dy,
                                                          const dnnl_dims_t strides, const dnnl_dims_t padding,
                                                          const_dnnl_primitive_desc_t forward,
                                                          const_dnnl_primitive_attr_t attributes) {
    dnnl_convolution_desc_t operation;
    const dnnl_status_t status = dnnl_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, x, dw,
                                                                             NULL, dy, strides, padding, padding);
    return status ? status : dnnl_primitive_desc_create(made, &operation, attributes, engine, forward);
}

#else

/* 3.x hands out pointers to something that it owns. */
typedef const_dnnl_memory_desc_t layout_ref;

static inline layout_ref layout_view(const layout *owned) {
    return *owned;
}

static inline void layout_close(layout *owned) {
    dnnl_memory_desc_destroy(*owned);
    *owned = NULL;
}

static inline dnnl_status_t layout_tagged(layout *made, int ndims, const dnnl_dims_t dims, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(made, ndims, dims, dnnl_f32, tag);
}

static inline dnnl_status_t append_sum(dnnl_post_ops_t post_ops) {
    /* No zero point, and the type of what is there: as 2.6 has it. */
    return dnnl_post_ops_append_sum(post_ops, 1.0F, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t describe_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine, layout_ref a,
                                            layout_ref b, layout_ref bias, layout_ref y,
                                            const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(made, engine, a, b, bias, y, attributes);
}

/* Dilations of 0: taps lie side by side. */
static inline dnnl_status_t describe_conv_forward(dnnl_primitive_desc_t *made, dnnl_engine_t engine, layout_ref x,
                                                  layout_ref w, layout_ref b, layout_ref y, const dnnl_dims_t strides,
                                                  const dnnl_dims_t padding, const_dnnl_primitive_attr_t attributes) {
    const dnnl_dims_t dilations = {0};
    return dnnl_convolution_forward_primitive_desc_create(made, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                          x, w, b, y, strides, dilations, padding, padding, attributes);
}

static inline dnnl_status_t describe_conv_backward_data(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                                        layout_ref dx, layout_ref w, layout_ref dy,
                                                        const dnnl_dims_t strides, const dnnl_dims_t padding,
                                                        const_dnnl_primitive_desc_t forward,
                                                        const_dnnl_primitive_attr_t attributes) {
    const dnnl_dims_t dilations = {0};
    return dnnl_convolution_backward_data_primitive_desc_create(
        made, engine, dnnl_convolution_direct, dx, w, dy, strides, dilations, padding, padding, forward, attributes);
}

static inline dnnl_status_t describe_conv_backward_weight(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                                          layout_ref x, layout_ref dw, layout_ref dy,
                                                          const dnnl_dims_t strides, const dnnl_dims_t padding,
                                                          const_dnnl_primitive_desc_t forward,
                                                          const_dnnl_primitive_attr_t attributes) {
    const dnnl_dims_t dilations = {0};
    return dnnl_convolution_backward_weights_primitive_desc_create(made, engine, dnnl_convolution_direct, x, dw, NULL,
                                                                   dy, strides, dilations, padding, padding, forward,
                                                                   attributes);
}

#endif
#endif
