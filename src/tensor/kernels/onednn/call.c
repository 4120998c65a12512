/* call.c: one oneDNN primitive, its memory objects, and its execution. */
#include "tensor/kernels/onednn/session.h"

#include "base/error.h"

ls_status attributes_create(dnnl_primitive_attr_t *made, bool adds) {
    dnnl_post_ops_t post_ops = NULL;
    *made = NULL;
    /* In user mode the scratchpad is an argument of each call: it comes from the session, not from malloc each
     * time. */
    dnnl_status_t status = dnnl_primitive_attr_create(made);
    if (!status) status = dnnl_primitive_attr_set_scratchpad_mode(*made, dnnl_scratchpad_mode_user);
    if (!status && adds) {
        /* "y = result + y": how a later contribution to a gradient is added without a pass of its own. */
        status = dnnl_post_ops_create(&post_ops);
        if (!status) status = append_sum(post_ops);
        if (!status) status = dnnl_primitive_attr_set_post_ops(*made, post_ops);
        if (post_ops) dnnl_post_ops_destroy(post_ops);
    }
    if (status && *made) {
        dnnl_primitive_attr_destroy(*made);
        *made = NULL;
    }
    return onednn_status(status, "attributes");
}

static dnnl_status_t append_argument(session *here, call *made, int kind, layout_ref lies) {
    dnnl_exec_arg_t *const argument = &made->arguments[made->argument_count];
    argument->arg = kind;
    /* Without memory yet: each run sets the pointers. */
    const dnnl_status_t status = dnnl_memory_create(&argument->memory, lies, here->engine, DNNL_MEMORY_NONE);
    /* Counted one by one, so that call_close knows what there is after a failure half-way. */
    if (!status) made->argument_count++;
    return status;
}

ls_status call_create(session *here, call *made, const_dnnl_primitive_desc_t description, int count, const int *kinds,
                      const layout_ref *layouts) {
    *made = (call){0};
    dnnl_status_t status = dnnl_primitive_create(&made->primitive, description);
    for (int i = 0; i < count && !status; i++) status = append_argument(here, made, kinds[i], layouts[i]);
    if (!status) {
        /* How much a primitive wants is only known once it is described for these shapes. */
        const layout_ref scratchpad = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
        made->scratch_bytes = dnnl_memory_desc_get_size(scratchpad);
        status = append_argument(here, made, DNNL_ARG_SCRATCHPAD, scratchpad);
    }
    if (status) call_close(made);
    return onednn_status(status, "a primitive");
}

ls_status call_create_move(session *here, call *made, layout_ref from, layout_ref to, bool adds) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    LS_TRY(attributes_create(&attributes, adds));
    ls_status status = onednn_status(
        dnnl_reorder_primitive_desc_create(&description, from, here->engine, to, here->engine, attributes),
        "a reorder");
    if (status == LS_OK) {
        status = call_create(here, made, description, 2, (const int[]){DNNL_ARG_FROM, DNNL_ARG_TO},
                             (const layout_ref[]){from, to});
    }
    if (description) dnnl_primitive_desc_destroy(description);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

void call_close(call *made) {
    for (int i = 0; i < made->argument_count; i++) dnnl_memory_destroy(made->arguments[i].memory);
    if (made->primitive) dnnl_primitive_destroy(made->primitive);
    *made = (call){0};
}

ls_status call_run(session *here, const call *made, const void *const *pointers, void *scratch) {
    const int scratchpad = made->argument_count - 1;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i <= scratchpad && !status; i++) {
        /* oneDNN takes all pointers alike, without const for what it only reads. */
        void *const pointer = i == scratchpad ? scratch : (void *)pointers[i];
        status = dnnl_memory_set_data_handle(made->arguments[i].memory, pointer);
    }
    if (!status) status = dnnl_primitive_execute(made->primitive, here->stream, made->argument_count, made->arguments);
    /* On a CPU stream the work is done by then; the call is what the interface asks for. */
    if (!status) status = dnnl_stream_wait(here->stream);
    return onednn_status(status, "an execution");
}
