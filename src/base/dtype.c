/* dtype.c: the one table of element types. */
#include <lockstep/base.h>

static const struct {
    size_t size;
    const char *name;
} dtypes[LS_DTYPE_COUNT] = {
    [LS_F32] = {4, "f32"}, [LS_F64] = {8, "f64"}, [LS_F16] = {2, "f16"}, [LS_BF16] = {2, "bf16"}, [LS_I8] = {1, "i8"},
    [LS_U8] = {1, "u8"},   [LS_I32] = {4, "i32"}, [LS_I64] = {8, "i64"}, [LS_BOOL] = {1, "bool"},
};

static bool is_dtype(ls_dtype dtype) {
    /* Unsigned, so that a negative value is past the end too: types also come out of files and messages. */
    return (unsigned)dtype < LS_DTYPE_COUNT;
}

size_t ls_dtype_size(ls_dtype dtype) {
    return is_dtype(dtype) ? dtypes[dtype].size : 0;
}

const char *ls_dtype_name(ls_dtype dtype) {
    return is_dtype(dtype) ? dtypes[dtype].name : "unknown";
}
