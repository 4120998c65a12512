/* arena.h: memory of a step: blocks that come back are kept by size and handed out again, so that a shape seen before
 * allocates nothing.
 *
 * Each thread has an arena of its own. Whatever thread gives a block back, it returns to the arena that it came
 * from. */
#ifndef LS_TENSOR_ARENA_H
#define LS_TENSOR_ARENA_H

#include <stddef.h>

/* `bytes` of memory on LS_ALIGNMENT, not zeroed; NULL with the error set when refused. Zero bytes yield a valid
 * pointer. */
void *arena_take(size_t bytes);

/* As arena_take, zeroed. */
void *arena_take_zeroed(size_t bytes);

/* Gives a block back; any thread; NULL is harmless. */
void arena_give(void *memory);

#endif
