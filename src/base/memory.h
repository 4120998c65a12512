/* memory.h: our one door to malloc: aligned, counted, and able to fail on purpose in tests. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* A cache line and the widest vector. */
#define LS_ALIGNMENT 64

/* `bytes` of zeroed memory on LS_ALIGNMENT; NULL with the error set when refused. Zero bytes yield a valid pointer. */
void *ls_alloc(size_t bytes);

/* As ls_alloc for `count` elements; a product past SIZE_MAX is refused. */
void *ls_alloc_array(size_t count, size_t element_bytes);

/* As ls_alloc without zeroing, for memory that is written before it is read. */
void *ls_alloc_raw(size_t bytes);

/* A copy of `text`; NULL with the error set when refused or when `text` is NULL. */
char *ls_strdup(const char *text);

/* Frees what the functions above returned; NULL is harmless. */
void ls_free(void *memory);

/* Blocks allocated by all threads since the start and those still live: tests assert that neither grows. */
uint64_t ls_alloc_count(void);
uint64_t ls_alloc_live(void);

#endif
