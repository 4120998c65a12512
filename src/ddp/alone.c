/* alone.c: the reducer without our autograd: begin, ready, finish, on gradients that the caller computes.
 *
 * What is used is known at finish only, so the header carries no bitmap and the footer does (late_use in reducer.h). */
#include "base/memory.h"
#include "ddp/bitmap.h"
#include "ddp/reducer.h"
#include "ddp/strided.h"

#include <stdatomic.h>
#include <string.h>

struct ls_reducer {
    ls_reduction core;
    ls_gradient *gradients; /* [core.count]; names are the core's; strides are filled in */
    atomic_bool is_stepping;
};

static ls_status check_gradient(const ls_gradient *gradient, int index) {
    /* Names are what errors speak of, and what is compared over ranks. */
    if (!gradient->name || !*gradient->name) return ls_fail(LS_ERR_ARGUMENT, "gradient %d has no name", index);
    if (gradient->dtype != LS_F32 && gradient->dtype != LS_F64)
        return ls_fail(LS_ERR_ARGUMENT, "gradient \"%s\" is %s: expected f32 or f64", gradient->name,
                       ls_dtype_name(gradient->dtype));
    if (gradient->ndim < 0 || gradient->ndim > 8)
        return ls_fail(LS_ERR_ARGUMENT, "gradient \"%s\" has %d dims: expected 0 to 8", gradient->name, gradient->ndim);
    int64_t bytes = (int64_t)ls_dtype_size(gradient->dtype);
    for (int dim = 0; dim < gradient->ndim; dim++)
        if (gradient->dims[dim] < 0 || __builtin_mul_overflow(bytes, gradient->dims[dim], &bytes))
            return ls_fail(LS_ERR_ARGUMENT, "gradient \"%s\": dim %d is %lld, negative or past what memory can hold",
                           gradient->name, dim, (long long)gradient->dims[dim]);
    return LS_OK;
}

static ls_status take_gradients(ls_reducer *reducer, const ls_gradient *gradients, int count, verify_item *items) {
    for (int i = 0; i < count; i++) {
        LS_TRY(check_gradient(&gradients[i], i));
        ls_gradient *own = &reducer->gradients[i];
        *own = gradients[i];
        /* Strides that are all zero would let all elements be one: free to mean contiguous. */
        bool has_strides = false;
        for (int dim = 0; dim < own->ndim; dim++) has_strides |= own->strides[dim] != 0;
        uint64_t stride = 1; /* wraps only where a dim of 0 makes strides meaningless */
        for (int dim = own->ndim - 1; dim >= 0 && !has_strides; stride *= (uint64_t)own->dims[dim--])
            own->strides[dim] = (int64_t)stride;
        /* Whoever hands a gradient in wants it averaged: none is frozen. */
        items[i] = (verify_item){own->name, own->dtype, own->ndim, own->dims, true};
    }
    return LS_OK;
}

ls_status ls_reducer_create(ls_reducer **reducer, ls_group *group, const ls_gradient *gradients, int count,
                            const ls_reducer_options *options) {
    if (!reducer) return ls_fail(LS_ERR_ARGUMENT, "ls_reducer_create: the place for the handle is NULL");
    *reducer = NULL;
    if (!group || (count > 0 && !gradients) || count < 0)
        return ls_fail(LS_ERR_ARGUMENT, "ls_reducer_create: expected a group and a list of gradients");
    const size_t size = (size_t)count;
    const reducer_options core_options = {
        .bucket_cap_bytes = options ? options->bucket_cap_bytes : 0,
        .first_bucket_cap_bytes = options ? options->first_bucket_cap_bytes : 0,
        .find_unused_parameters = options && options->find_unused_parameters,
        .find_nonfinite = options && options->find_nonfinite,
        .late_use = true,
    };
    ls_reducer *made = ls_alloc(sizeof *made);
    /* The others are on their way to compare lists: this rank goes there too, to say that it failed. */
    if (!made) return reducer_refuse(group, LS_ERR_MEMORY, &core_options);
    verify_item *items = ls_alloc_array(size, sizeof *items);
    made->gradients = ls_alloc_array(size, sizeof *made->gradients);
    ls_status status = items && made->gradients ? take_gradients(made, gradients, count, items) : LS_ERR_MEMORY;
    status = reducer_init(&made->core, group, status, items, status == LS_OK ? count : 0, &core_options);
    /* The caller's names may go after this call; the core has copies. */
    for (int i = 0; i < count && status == LS_OK; i++) made->gradients[i].name = made->core.names[i];
    ls_free(items);
    if (status != LS_OK)
        ls_reducer_close(&made);
    else
        *reducer = made;
    return status;
}

void ls_reducer_close(ls_reducer **reducer) {
    if (!reducer || !*reducer) return;
    /* Without a group reducer_init has failed and let go of everything itself. */
    if ((*reducer)->core.group) reducer_clear(&(*reducer)->core);
    ls_free((*reducer)->gradients);
    ls_free(*reducer);
    *reducer = NULL;
}

static ls_status check_index(const ls_reducer *reducer, int index) {
    if (index >= 0 && index < reducer->core.count) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT, "there is no gradient %d: the reducer has %d", index, reducer->core.count);
}

void *ls_reducer_gradient(ls_reducer *reducer, int index) {
    if (check_index(reducer, index) != LS_OK) return NULL;
    void *own = reducer->gradients[index].gradient;
    /* Not the bucket where the caller has memory: that one is only a copy between ready and finish. */
    return own ? own : storage_gradient(&reducer->core.storage, index);
}

static ls_status move(void *context, int index, void *from, void *to) {
    const ls_reducer *reducer = context;
    /* Contents move, used or not: with this face of the room a gradient that nobody marks stays as it is. */
    if (reducer->core.bytes[index] > 0) memcpy(to, from, reducer->core.bytes[index]);
    return LS_OK;
}

ls_status ls_reducer_begin(ls_reducer *reducer) {
    if (atomic_load(&reducer->is_stepping))
        return ls_fail(LS_ERR_STATE, "ls_reducer_begin: a step is under way; call ls_reducer_finish first");
    /* Before the step, while no thread may mark: what ls_reducer_gradient returned before is stale from here on. */
    LS_TRY(reducer_rebuild(&reducer->core, move, reducer));
    atomic_store(&reducer->is_stepping, true);
    const ls_status status = reducer_begin(&reducer->core, LS_OK, NULL, NULL);
    if (status == LS_OK) return LS_OK;
    /* No step has begun: what little of it there is ends here. */
    ls_error failure;
    ls_error_capture(&failure, status);
    reducer_finish(&reducer->core, status);
    atomic_store(&reducer->is_stepping, false);
    return ls_error_raise(&failure);
}

ls_status ls_reducer_ready(ls_reducer *reducer, int index) {
    LS_TRY(check_index(reducer, index));
    if (!atomic_load(&reducer->is_stepping))
        return ls_fail(LS_ERR_STATE, "ls_reducer_ready(%d): no step is under way; call ls_reducer_begin first", index);
    const ls_gradient *gradient = &reducer->gradients[index];
    /* A second mark must not write: the bucket may be under way. reducer_mark refuses it with a sentence. */
    if (gradient->gradient && !reducer_is_marked(&reducer->core, index))
        strided_pack(gradient, storage_gradient(&reducer->core.storage, index));
    return reducer_mark(&reducer->core, index);
}

void ls_reducer_fail(ls_reducer *reducer, ls_status status, const char *reason) {
    if (status == LS_OK) return;
    /* Only to have a sentence that can travel. */
    ls_fail(status, "%s", reason ? reason : "the program gave no reason");
    reducer_fail(&reducer->core, status);
}

ls_status ls_reducer_finish(ls_reducer *reducer) {
    if (!atomic_load(&reducer->is_stepping))
        return ls_fail(LS_ERR_STATE, "ls_reducer_finish: no step is under way; call ls_reducer_begin first");
    const ls_status status = reducer_finish(&reducer->core, LS_OK);
    atomic_store(&reducer->is_stepping, false);
    /* After a failure, and where no rank marked it, the caller's memory keeps what it held. */
    for (int i = 0; i < reducer->core.count && status == LS_OK; i++)
        if (reducer->gradients[i].gradient && bitmap_has(reducer->core.used, i))
            strided_unpack(&reducer->gradients[i], storage_gradient(&reducer->core.storage, i));
    return status;
}
