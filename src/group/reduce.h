/* reduce.h: the loops that combine elements, for each dtype and op. */
#ifndef LS_GROUP_REDUCE_H
#define LS_GROUP_REDUCE_H

#include "group/post.h"

/* Elements are combined in rank order, in a type that may be wider (16-bit floats in f32, averages of integers in 64 bits),
 * and rounded once, at the end. */
typedef struct reduce_kernel {
    size_t wide_bytes; /* of one element while it is combined */
    /* wide[i] = a[i] op b[i]; where the type is no wider, `wide` may be `a` or `b`. Nothing else overlaps. */
    void (*begin)(void *wide, const void *a, const void *b, size_t count);
    /* wide[i] = wide[i] op b[i]. NULL: the type is no wider, `begin` does it. */
    void (*next)(void *wide, const void *b, size_t count);
    /* into[i] = the result. NULL: it is what was combined. */
    void (*end)(void *into, const void *wide, size_t count, int ranks);
    /* All of it for two ranks, into both. NULL: by the three above. */
    void (*both)(void *a, void *b, size_t count);
} reduce_kernel;

/* NULL where the op is not defined for the dtype. */
const reduce_kernel *reduce_kernel_for(ls_dtype dtype, ls_op op);
/* Of what `call` combines; NULL where it combines nothing. */
const reduce_kernel *reduce_kernel_of(const group_call *call);

/* Combines `count` elements of `sources[0 .. source_count)`, from `offset_bytes` on, in that order, block by block, so that
 * each is read once. reduce_in_place writes the result into every source, reduce_into to `into`, which may be where one
 * source's elements lie. */
void reduce_in_place(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                     size_t offset_bytes, size_t count);
void reduce_into(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                 size_t offset_bytes, size_t count, void *into);

/* Starts to fetch `bytes` bytes, as what is about to be written: peers' caches let go of their copies. Waits for nothing. */
void fetch_for_writing(void *from, size_t bytes);

/* memcpy into memory whose lines a peer's cache holds: fetched for writing ahead of the stores, many at a time, where the
 * stores by themselves would wait for one line after the other. */
void copy_for_peers(void *into, const void *from, size_t bytes);

#endif
