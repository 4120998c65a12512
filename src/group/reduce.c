/* reduce.c: combining the ranks' elements, block by block, so that each is read once; and copying for peers. */
#include "group/reduce.h"

#include <string.h>

/* Fits the first-level cache beside the sources' lines. */
#define BLOCK_BYTES 8192

/* What the sources come to in one block, before it ends, in `block`. */
static void combine_block(const reduce_kernel *kernel, void *const *sources, int source_count, size_t at, size_t count,
                          char *block) {
    kernel->begin(block, (char *)sources[0] + at, (char *)sources[1] + at, count);
    for (int i = 2; i < source_count; i++) {
        const char *next = (char *)sources[i] + at;
        if (kernel->next)
            kernel->next(block, next, count);
        else
            kernel->begin(block, block, next, count);
    }
}

static void end_block(const reduce_kernel *kernel, size_t element_bytes, const char *block, size_t count, int ranks,
                      void *into) {
    if (kernel->end)
        kernel->end(into, block, count, ranks);
    else
        memcpy(into, block, count * element_bytes);
}

void reduce_in_place(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                     size_t offset_bytes, size_t count) {
    if (source_count == 2 && kernel->both) {
        kernel->both((char *)sources[0] + offset_bytes, (char *)sources[1] + offset_bytes, count);
        return;
    }
    _Alignas(64) char block[BLOCK_BYTES], result[BLOCK_BYTES];
    const size_t most = BLOCK_BYTES / kernel->wide_bytes;
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < most ? count - done : most;
        const size_t at = offset_bytes + done * element_bytes;
        combine_block(kernel, sources, source_count, at, now, block);
        if (kernel->end) kernel->end(result, block, now, source_count);
        for (int i = 0; i < source_count; i++)
            memcpy((char *)sources[i] + at, kernel->end ? result : block, now * element_bytes);
    }
}

void reduce_into(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                 size_t offset_bytes, size_t count, void *into) {
    if (source_count == 2 && !kernel->end) {
        kernel->begin(into, (char *)sources[0] + offset_bytes, (char *)sources[1] + offset_bytes, count);
        return;
    }
    _Alignas(64) char block[BLOCK_BYTES];
    const size_t most = BLOCK_BYTES / kernel->wide_bytes;
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < most ? count - done : most;
        combine_block(kernel, sources, source_count, offset_bytes + done * element_bytes, now, block);
        end_block(kernel, element_bytes, block, now, source_count, (char *)into + done * element_bytes);
    }
}

#define LINE_BYTES 64
#define AHEAD_BYTES ((size_t)1024)

void fetch_for_writing(void *from, size_t bytes) {
    char *at = from;
    for (size_t line = 0; line < bytes; line += LINE_BYTES) {
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(at[line])); /* the compiler's own builtin would fetch for reading */
#else
        __builtin_prefetch(&at[line], 1);
#endif
    }
}

/* A call of the C library's memcpy: in line, the compiler's string move is slower, and unseen by ThreadSanitizer. */
#if defined(__clang__)
#define OPAQUE __attribute__((noinline))
#else
#define OPAQUE __attribute__((noipa))
#endif

OPAQUE static void copy(void *restrict into, const void *restrict from, size_t bytes) {
    memcpy(into, from, bytes);
}

void copy_for_peers(void *into, const void *from, size_t bytes) {
    char *to = into;
    const char *data = from;
    fetch_for_writing(to, bytes < AHEAD_BYTES ? bytes : AHEAD_BYTES);
    while (bytes > 0) {
        const size_t now = bytes < AHEAD_BYTES ? bytes : AHEAD_BYTES, next = bytes - now;
        fetch_for_writing(to + now, next < AHEAD_BYTES ? next : AHEAD_BYTES);
        copy(to, data, now);
        to += now;
        data += now;
        bytes = next;
    }
}
