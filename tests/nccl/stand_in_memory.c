/* stand_in_memory.c: memory of GPUs and memory of the host that they reach, and copies on streams. */
#include "stand_in_parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory that CUDA knows. The address of a device's has no access; `alias` is the same memory, with. */
typedef struct block {
    struct block *next;
    char *address, *alias;
    size_t bytes;
    int device; /* -1: of the host */
} block;

static block *blocks;

cuda_result cuMemAlloc_v2(cuda_pointer *pointer, size_t bytes);
cuda_result cuMemFree_v2(cuda_pointer pointer);
cuda_result cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
cuda_result cuMemFreeHost(void *pointer);
cuda_result cuMemsetD8Async(cuda_pointer to, unsigned char value, size_t bytes, cuda_stream stream);
cuda_result cuMemcpyHtoDAsync_v2(cuda_pointer to, const void *from, size_t bytes, cuda_stream stream);
cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_pointer from, size_t bytes, cuda_stream stream);
cuda_result cuMemcpyDtoDAsync_v2(cuda_pointer to, cuda_pointer from, size_t bytes, cuda_stream stream);
cuda_result cuPointerGetAttribute(void *value, cuda_attribute attribute, cuda_pointer pointer);

static block *find(const void *address, size_t bytes) {
    const uintptr_t at = (uintptr_t)address;
    for (block *each = blocks; each; each = each->next)
        if (at >= (uintptr_t)each->address && at + bytes <= (uintptr_t)each->address + each->bytes) return each;
    return NULL;
}

static void list(block *added) {
    stand_in_acquire();
    added->next = blocks;
    blocks = added;
    stand_in_let_go();
    stand_in_count_live(1);
}

/* Without the lock. NULL: it is not the start of a block. */
static block *unlist(const void *address) {
    block *found = NULL;
    stand_in_acquire();
    for (block **link = &blocks; *link && !found;)
        if ((*link)->address == address) {
            found = *link;
            *link = found->next;
        } else {
            link = &(*link)->next;
        }
    stand_in_let_go();
    if (!found)
        stand_in_complain("memory was freed that is none");
    else
        stand_in_count_live(-1);
    return found;
}

void *stand_in_reach(const char *function, int device, const void *address, size_t bytes) {
    const block *found = find(address, bytes);
    if (found && found->device == device) return found->alias + ((const char *)address - found->address);
    stand_in_complain("%s with memory %p of %zu bytes, which is not %s", function, address, bytes,
                      device < 0 ? "the host's that the GPU reaches" : "its GPU's");
    return NULL;
}

void *stand_in_allocate(int device, size_t bytes) {
    block *made = calloc(1, sizeof *made);
    const int file = memfd_create("stand-in", MFD_CLOEXEC);
    if (!made || file < 0 || ftruncate(file, (off_t)bytes) != 0) abort();
    made->address = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, file, 0);
    made->alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (made->address == MAP_FAILED || made->alias == MAP_FAILED) abort();
    close(file);
    memset(made->alias, 0xa5, bytes);
    made->bytes = bytes;
    made->device = device;
    list(made);
    return made->address;
}

void stand_in_free(void *memory) {
    block *found = unlist(memory);
    if (!found) return;
    munmap(found->address, found->bytes);
    munmap(found->alias, found->bytes);
    free(found);
}

static char *host_way(const void *memory, size_t bytes) {
    stand_in_acquire();
    const block *found = find(memory, bytes);
    if (!found) abort();
    char *way = found->alias + ((const char *)memory - found->address);
    stand_in_let_go();
    return way;
}

void stand_in_write(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(host_way(to, bytes), from, bytes);
}

void stand_in_read(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, host_way(from, bytes), bytes);
}

/* --- the driver's functions ----------------------------------------------------------------------------------------- */

/* Leaves the current one in `device`. */
#define ENTER_ON_DEVICE()                                   \
    const unsigned enter_result = stand_in_enter(__func__); \
    if (enter_result) return enter_result;                  \
    const int device = stand_in_current_device(__func__);   \
    if (device < 0) return 201

static void *pointer_of(cuda_pointer pointer) {
    return (void *)(uintptr_t)pointer; /* NOLINT(performance-no-int-to-ptr): CUDA's are numbers */
}

cuda_result cuMemAlloc_v2(cuda_pointer *pointer, size_t bytes) {
    ENTER_ON_DEVICE();
    *pointer = (cuda_pointer)(uintptr_t)stand_in_allocate(device, bytes);
    return 0;
}

cuda_result cuMemFree_v2(cuda_pointer pointer) {
    ENTER_ON_DEVICE();
    stand_in_free(pointer_of(pointer));
    return 0;
}

cuda_result cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    ENTER_ON_DEVICE();
    if (flags != CUDA_HOST_MEMORY_OF_ALL_CONTEXTS) stand_in_complain("cuMemHostAlloc with flags %u", flags);
    block *made = calloc(1, sizeof *made);
    if (!made || !(made->address = malloc(bytes))) abort();
    made->alias = made->address;
    made->bytes = bytes;
    made->device = -1;
    list(made);
    *pointer = made->address;
    return 0;
}

cuda_result cuMemFreeHost(void *pointer) {
    ENTER_ON_DEVICE();
    block *found = unlist(pointer);
    if (!found) return 1;
    free(found->address);
    free(found);
    return 0;
}

cuda_result cuPointerGetAttribute(void *value, cuda_attribute attribute, cuda_pointer pointer) {
    ENTER_ON_DEVICE();
    stand_in_acquire();
    const block *found = find(pointer_of(pointer), 1);
    const int of = found ? found->device : -2;
    stand_in_let_go();
    if (of == -2) return 1;
    if (attribute == CUDA_POINTER_MEMORY_TYPE)
        *(unsigned *)value = of < 0 ? CUDA_MEMORY_OF_HOST : CUDA_MEMORY_OF_DEVICE;
    else if (attribute == CUDA_POINTER_DEVICE)
        *(int *)value = of < 0 ? 0 : of;
    else
        stand_in_complain("cuPointerGetAttribute of attribute %u", attribute);
    return 0;
}

/* --- copies --------------------------------------------------------------------------------------------------------- */

typedef struct copy {
    char *to;
    const char *from; /* NULL: fill with `value` */
    size_t bytes;
    unsigned char value;
} copy;

static void run_copy(void *argument) {
    copy *run = argument;
    stand_in_acquire();
    if (run->from)
        memmove(run->to, run->from, run->bytes);
    else
        memset(run->to, run->value, run->bytes);
    stand_in_let_go();
    free(run);
}

/* The lock is held. */
static cuda_result put_copy(const char *function, int device, cuda_stream stream, copy planned) {
    if (stream == NULL || stream == CUDA_DEFAULT_STREAM || stand_in_stream_device(stream) != device)
        stand_in_complain("%s on a stream of another device", function);
    else if (planned.to) {
        copy *made = malloc(sizeof *made);
        if (!made) abort();
        *made = planned;
        stand_in_put(stream, run_copy, made);
        return 0;
    }
    return 1;
}

cuda_result cuMemsetD8Async(cuda_pointer to, unsigned char value, size_t bytes, cuda_stream stream) {
    ENTER_ON_DEVICE();
    stand_in_acquire();
    char *at = stand_in_reach(__func__, device, pointer_of(to), bytes);
    const cuda_result result = put_copy(__func__, device, stream, (copy){.to = at, .value = value, .bytes = bytes});
    stand_in_let_go();
    return result;
}

static cuda_result copy_between(const char *function, int to_device, void *to, int from_device, const void *from,
                                size_t bytes, cuda_stream stream) {
    stand_in_acquire();
    char *into = stand_in_reach(function, to_device, to, bytes);
    const char *out = stand_in_reach(function, from_device, from, bytes);
    const cuda_result result = put_copy(function, to_device < 0 ? from_device : to_device, stream,
                                        (copy){.to = out ? into : NULL, .from = out, .bytes = bytes});
    stand_in_let_go();
    return result;
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_pointer to, const void *from, size_t bytes, cuda_stream stream) {
    ENTER_ON_DEVICE();
    return copy_between(__func__, device, pointer_of(to), -1, from, bytes, stream);
}

cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_pointer from, size_t bytes, cuda_stream stream) {
    ENTER_ON_DEVICE();
    return copy_between(__func__, -1, to, device, pointer_of(from), bytes, stream);
}

cuda_result cuMemcpyDtoDAsync_v2(cuda_pointer to, cuda_pointer from, size_t bytes, cuda_stream stream) {
    ENTER_ON_DEVICE();
    return copy_between(__func__, device, pointer_of(to), device, pointer_of(from), bytes, stream);
}
