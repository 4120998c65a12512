/* bitmap.h: sets of parameters as they travel: one bit each, in 64-bit words. */
#ifndef LS_DDP_BITMAP_H
#define LS_DDP_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Words as wide as LS_I64, the type that the reduction ORs. */
static inline size_t bitmap_words(int count) {
    return ((size_t)count + 63) / 64;
}

static inline bool bitmap_has(const uint64_t *bitmap, int index) {
    return bitmap[index / 64] >> (index % 64) & 1;
}

static inline void bitmap_add(uint64_t *bitmap, int index) {
    bitmap[index / 64] |= UINT64_C(1) << (index % 64);
}

#endif
