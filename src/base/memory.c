/* memory.c: aligned memory from the C library, counted. */
#include "base/memory.h"

#include "base/error.h"
#include "base/fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Counters only: relaxed, since they order nothing. */
static _Atomic uint64_t allocated;
static _Atomic uint64_t released;

void *ls_alloc_raw(size_t bytes) {
    /* aligned_alloc wants a multiple of the alignment. Rounding up may wrap around, which `rounded >= bytes`
     * finds. */
    const size_t rounded = bytes == 0 ? LS_ALIGNMENT : (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
    void *memory = NULL;
    if (rounded >= bytes && !ls_fault(LS_FAULT_MEMORY)) memory = aligned_alloc(LS_ALIGNMENT, rounded);
    if (!memory) {
        ls_fail(LS_ERR_MEMORY, "cannot allocate %zu bytes: memory was refused", bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&allocated, 1, memory_order_relaxed);
    return memory;
}

void *ls_alloc(size_t bytes) {
    void *memory = ls_alloc_raw(bytes);
    /* Not what lies behind it, up to the alignment: a sanitizer shall see who reads there. */
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void *ls_alloc_array(size_t count, size_t element_bytes) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, element_bytes, &bytes)) {
        ls_fail(LS_ERR_MEMORY, "cannot allocate %zu elements of %zu bytes: the product is past what a size can hold",
                count, element_bytes);
        return NULL;
    }
    return ls_alloc(bytes);
}

char *ls_strdup(const char *text) {
    if (!text) {
        ls_fail(LS_ERR_ARGUMENT, "cannot copy a text that is NULL");
        return NULL;
    }
    const size_t bytes = strlen(text) + 1;
    char *copy = ls_alloc_raw(bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void ls_free(void *memory) {
    if (!memory) return;
    atomic_fetch_add_explicit(&released, 1, memory_order_relaxed);
    free(memory);
}

uint64_t ls_alloc_count(void) {
    return atomic_load_explicit(&allocated, memory_order_relaxed);
}

uint64_t ls_alloc_live(void) {
    return ls_alloc_count() - atomic_load_explicit(&released, memory_order_relaxed);
}
