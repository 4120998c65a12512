/* tensor.c: making and counting handles and their storage. */
#include "tensor/tensor.h"

#include "base/error.h"
#include "base/memory.h"
#include "tensor/arena.h"

#include <string.h>

/* Elements start on a cache line behind the storage's record. */
#define STORAGE_BYTES LS_ALIGNMENT
_Static_assert(sizeof(tensor_storage) <= STORAGE_BYTES, "elements would overlap the storage's record");

/* ---- Versions: each thread draws numbers from a range of its own, so that the counter is seldom shared ---- */

#define VERSIONS_A_RANGE ((uint64_t)1 << 20)

static _Atomic uint64_t ranges_given; /* relaxed: only uniqueness matters */
static _Thread_local uint64_t next_version, versions_end;

static uint64_t new_version(void) {
    if (next_version == versions_end) {
        next_version = atomic_fetch_add_explicit(&ranges_given, 1, memory_order_relaxed) * VERSIONS_A_RANGE + 1;
        versions_end = next_version + VERSIONS_A_RANGE;
    }
    return next_version++;
}

void tensor_touch(ls_tensor *tensor) {
    tensor->storage->version = new_version();
}

uint64_t ls_tensor_version(const ls_tensor *tensor) {
    return tensor ? tensor->storage->version : 0;
}

/* ---- Making ---- */

/* Files and collectives know more types than there is arithmetic for. */
static bool is_tensor_dtype(ls_dtype dtype) {
    return dtype == LS_F32 || dtype == LS_F64 || dtype == LS_I64 || dtype == LS_U8;
}

/* Fills in the shape of a new handle; its size in bytes fits into a ptrdiff_t. */
static ls_status set_shape(ls_tensor *tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout) {
    /* Every later function may rely on the four types, and says nothing of the others. */
    if (!is_tensor_dtype(dtype))
        return ls_fail(LS_ERR_ARGUMENT, "tensor: elements of type %s are not supported; use f32, f64, i64 or u8",
                       ls_dtype_name(dtype));
    if (ndim < 0 || ndim > LS_MAX_DIMS || (ndim > 0 && !dims))
        return ls_fail(LS_ERR_ARGUMENT, "tensor: %d dims%s; expected 0 to %d", ndim, dims ? "" : " (NULL)",
                       LS_MAX_DIMS);
    if (layout != LS_LAYOUT_PLAIN && ((layout != LS_LAYOUT_NHWC && layout != LS_LAYOUT_HWIO) || ndim != 4))
        return ls_fail(LS_ERR_ARGUMENT, "tensor: layout %d with %d dims; nhwc and hwio have 4 dims", (int)layout, ndim);

    /* Zeroes are left out of the product, so that [0, 2^62, 2^62] is refused like [1, 2^62, 2^62]. */
    int64_t bytes = (int64_t)ls_dtype_size(dtype);
    bool is_empty = false;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0)
            return ls_fail(LS_ERR_ARGUMENT, "tensor: dim %d is %lld; dims are not negative", i, (long long)dims[i]);
        if (dims[i] == 0) is_empty = true;
        /* From here on no product of dims, in whatever order, can overflow. */
        if (__builtin_mul_overflow(bytes, dims[i] > 0 ? dims[i] : 1, &bytes))
            return ls_fail(LS_ERR_ARGUMENT,
                           "tensor: the product of the dims, at dim %d of %lld, is past what memory can hold", i,
                           (long long)dims[i]);
        tensor->dims[i] = dims[i];
    }
    tensor->numel = is_empty ? 0 : bytes / (int64_t)ls_dtype_size(dtype);
    tensor->dtype = dtype;
    tensor->layout = layout;
    tensor->ndim = ndim;
    return LS_OK;
}

/* A handle with its shape, without storage. */
static ls_status make_handle(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout) {
    /* Checked on the stack first: a wrong shape costs no memory. */
    ls_tensor shape = {0};
    LS_TRY(set_shape(&shape, dtype, ndim, dims, layout));
    ls_tensor *made = arena_take(sizeof *made);
    if (!made) return LS_ERR_MEMORY;
    *made = shape;
    atomic_init(&made->holders, 1);
    *tensor = made;
    return LS_OK;
}

/* The address stands in the handle too: every op reads it. */
static void set_storage(ls_tensor *tensor, tensor_storage *storage) {
    tensor->storage = storage;
    /* It never moves while the storage lives. */
    tensor->data = storage->data;
}

ls_status tensor_create_raw(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout) {
    *tensor = NULL;
    ls_tensor *made = NULL;
    LS_TRY(make_handle(&made, dtype, ndim, dims, layout));
    /* Record and elements in one block: one trip to the arena, and one back. */
    tensor_storage *storage = arena_take(STORAGE_BYTES + tensor_bytes(made));
    if (!storage) {
        arena_give(made);
        return LS_ERR_MEMORY;
    }
    *storage = (tensor_storage){.data = (char *)storage + STORAGE_BYTES, .version = new_version()};
    atomic_init(&storage->holders, 1);
    set_storage(made, storage);
    *tensor = made;
    return LS_OK;
}

ls_status ls_tensor_create_layout(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout) {
    LS_TRY(tensor_create_raw(tensor, dtype, ndim, dims, layout));
    /* Here rather than in the arena: what ops make is written whole, and need not be zeroed before. */
    memset((*tensor)->data, 0, tensor_bytes(*tensor));
    return LS_OK;
}

ls_status ls_tensor_create(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims) {
    return ls_tensor_create_layout(tensor, dtype, ndim, dims, LS_LAYOUT_PLAIN);
}

ls_status ls_tensor_borrow(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout,
                           void *data, void (*release)(void *context), void *context) {
    *tensor = NULL;
    ls_tensor *made = NULL;
    LS_TRY(make_handle(&made, dtype, ndim, dims, layout));
    /* On error `release` is not called: the memory was never ours. */
    if (!data && made->numel > 0) {
        arena_give(made);
        return ls_fail(LS_ERR_ARGUMENT, "ls_tensor_borrow: data is NULL for a tensor that has elements");
    }
    tensor_storage *storage = arena_take(sizeof *storage);
    if (!storage) {
        arena_give(made);
        return LS_ERR_MEMORY;
    }
    *storage = (tensor_storage){.data = data, .release = release, .context = context, .version = new_version()};
    atomic_init(&storage->holders, 1);
    set_storage(made, storage);
    *tensor = made;
    return LS_OK;
}

ls_status tensor_create_view(ls_tensor **view, const ls_tensor *tensor, int ndim, const int64_t *dims,
                             ls_layout layout) {
    *view = NULL;
    ls_tensor *made = NULL;
    LS_TRY(make_handle(&made, tensor->dtype, ndim, dims, layout));
    /* Our own mistake, not the user's: checked since it would read past the end. */
    if (made->numel != tensor->numel) {
        arena_give(made);
        return ls_fail(LS_ERR_ARGUMENT, "tensor: a view of %lld elements over %lld", (long long)made->numel,
                       (long long)tensor->numel);
    }
    /* Relaxed: whoever adds a holder is one. */
    atomic_fetch_add_explicit(&tensor->storage->holders, 1, memory_order_relaxed);
    set_storage(made, tensor->storage);
    *view = made;
    return LS_OK;
}

ls_status tensor_create_alias(ls_tensor **alias, const ls_tensor *tensor) {
    return tensor_create_view(alias, tensor, tensor->ndim, tensor->dims, tensor->layout);
}

/* ---- Counting ---- */

ls_tensor *ls_tensor_keep(ls_tensor *tensor) {
    if (tensor) atomic_fetch_add_explicit(&tensor->holders, 1, memory_order_relaxed);
    return tensor;
}

/* True for the last holder. Release: what this holder did comes before the end; acquire: the end comes after all of
 * that. */
static bool let_go(_Atomic uint32_t *holders) {
    return atomic_fetch_sub_explicit(holders, 1, memory_order_acq_rel) == 1;
}

static void storage_let_go(tensor_storage *storage) {
    if (!let_go(&storage->holders)) return;
    if (storage->release) storage->release(storage->context);
    arena_give(storage);
}

void ls_tensor_close(ls_tensor **tensor) {
    if (!tensor || !*tensor) return;
    ls_tensor *closed = *tensor;
    *tensor = NULL;
    if (!let_go(&closed->holders)) return;
    /* The record above first: it may hold aliases of this storage. */
    if (closed->attachment) closed->attachment->release(closed->attachment);
    storage_let_go(closed->storage);
    arena_give(closed);
}
