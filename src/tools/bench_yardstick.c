/* bench_yardstick.c: what is reachable: data and flags in shared memory, and nothing else. The loops that add are the
 * library's own, so that what is compared is the way to them. */
#include "tools/bench.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/wait.h"
#include "group/backend/shm/segment.h"
#include "group/reduce.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* On lines of their own, two for each, since processors fetch lines in pairs. */
typedef struct flags {
    _Alignas(128) _Atomic uint64_t begun;
    _Alignas(128) _Atomic uint64_t ended;
    _Alignas(128) struct slot {
        _Atomic uint64_t number;
        float data[BENCH_ONE_PHASE_BYTES / sizeof(float)];
        _Alignas(128) char after[128];
    } slots[2];
} flags;

struct bench_yardstick {
    int rank, ranks;
    uint64_t number;
    const reduce_kernel *kernel;
    /* [ranks] each, as all that follows. */
    shm_segment **segments;
    flags **flags;
    void **data;
};

/* Two numbers, gathered by the library itself before anything is measured. */
typedef struct where {
    int64_t process, descriptor;
} where;

/* A peer's descriptor, through /proc: it lives until all have mapped it. */
static ls_status map_peer(bench_yardstick *yardstick, int rank, const where *at, size_t bytes) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)at->process, (long long)at->descriptor);
    const int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return ls_fail(LS_ERR_IO, "cannot open %s: the yardstick needs the peers' memory", path);
    const ls_status status = shm_segment_map(descriptor, bytes, &yardstick->segments[rank]);
    close(descriptor);
    if (status != LS_OK) return status;
    /* Before the clock runs: no first touch of a page is measured. */
    shm_segment_fill_tables(yardstick->segments[rank], 0, yardstick->segments[rank]->bytes);
    yardstick->flags[rank] = yardstick->segments[rank]->base;
    yardstick->data[rank] = (char *)yardstick->segments[rank]->base + sizeof(flags);
    return LS_OK;
}

static ls_status share(bench_yardstick *yardstick, ls_group *group, size_t bytes, where *all) {
    int descriptor = -1;
    LS_TRY(shm_segment_create(bytes, &descriptor));
    /* The library's own ways are what is measured: the yardstick meets by /proc, once. */
    const where own = {.process = getpid(), .descriptor = descriptor};
    ls_status status = shm_segment_allocate(descriptor, 0, bytes);
    if (status == LS_OK) status = ls_group_all_gather(group, &own, all, 2, LS_I64, NULL);
    for (int rank = 0; status == LS_OK && rank < yardstick->ranks; rank++)
        status = map_peer(yardstick, rank, &all[rank], bytes);
    if (status == LS_OK) status = ls_group_barrier(group, NULL);
    close(descriptor);
    return status;
}

ls_status bench_yardstick_open(bench_yardstick **result, ls_group *group, size_t most_bytes) {
    bench_yardstick *yardstick = *result = ls_alloc(sizeof *yardstick);
    if (!yardstick) return LS_ERR_MEMORY;
    yardstick->rank = ls_group_rank(group);
    yardstick->ranks = ls_group_world_size(group);
    /* The library's own loop: what differs is the way to it, not how well it adds. */
    yardstick->kernel = reduce_kernel_for(LS_F32, LS_SUM);
    const size_t ranks = (size_t)yardstick->ranks;
    yardstick->segments = ls_alloc_array(ranks, sizeof(shm_segment *));
    yardstick->flags = ls_alloc_array(ranks, sizeof(flags *));
    yardstick->data = ls_alloc_array(ranks, sizeof *yardstick->data);
    where *all = ls_alloc_array(ranks, sizeof *all);
    ls_status status = yardstick->segments && yardstick->flags && yardstick->data && all ? LS_OK : LS_ERR_MEMORY;
    if (status == LS_OK) status = share(yardstick, group, sizeof(flags) + most_bytes, all);
    ls_free(all);
    if (status != LS_OK) bench_yardstick_close(result);
    return status;
}

void bench_yardstick_close(bench_yardstick **yardstick) {
    bench_yardstick *held = *yardstick;
    *yardstick = NULL;
    if (!held) return;
    for (int rank = 0; held->segments && rank < held->ranks; rank++) shm_segment_drop(&held->segments[rank]);
    ls_free(held->segments);
    ls_free(held->flags);
    ls_free(held->data);
    ls_free(held);
}

float *bench_yardstick_data(const bench_yardstick *yardstick) {
    return yardstick->data[yardstick->rank];
}

static void await(const _Atomic uint64_t *flag, uint64_t number) {
    /* Acquire: the data was written before the flag. */
    while (atomic_load_explicit(flag, memory_order_acquire) < number) ls_spin_hint();
}

static size_t border(size_t bytes, int rank, int ranks) {
    /* Shares begin on cache lines, so that no line has two writers. */
    return rank == ranks ? bytes : bytes / (size_t)ranks * (size_t)rank / 64 * 64;
}

void bench_in_place(bench_yardstick *yardstick, size_t bytes) {
    const uint64_t number = ++yardstick->number;
    flags *own = yardstick->flags[yardstick->rank];
    /* Release: who sees the number sees all that was written into the buffer before. */
    atomic_store_explicit(&own->begun, number, memory_order_release);
    for (int rank = 0; rank < yardstick->ranks; rank++) await(&yardstick->flags[rank]->begun, number);
    const size_t from = border(bytes, yardstick->rank, yardstick->ranks);
    const size_t to = border(bytes, yardstick->rank + 1, yardstick->ranks);
    if (to > from)
        reduce_in_place(yardstick->kernel, sizeof(float), yardstick->data, yardstick->ranks, from,
                        (to - from) / sizeof(float));
    /* Our share is in everybody's buffer; nobody returns before all shares are. */
    atomic_store_explicit(&own->ended, number, memory_order_release);
    for (int rank = 0; rank < yardstick->ranks; rank++) await(&yardstick->flags[rank]->ended, number);
}

void bench_one_phase(bench_yardstick *yardstick, float *data, size_t bytes) {
    const uint64_t number = ++yardstick->number;
    /* Two slots in turn: whoever is slow may still read the one of the call before. */
    struct slot *own = &yardstick->flags[yardstick->rank]->slots[number % 2];
    const size_t count = bytes / sizeof(float);
    /* Published whole: each rank then adds all of it for itself, and waits once. */
    memcpy(own->data, data, bytes);
    atomic_store_explicit(&own->number, number, memory_order_release);
    for (int rank = 0; rank < yardstick->ranks; rank++)
        await(&yardstick->flags[rank]->slots[number % 2].number, number);
    yardstick->kernel->begin(data, yardstick->flags[0]->slots[number % 2].data,
                             yardstick->flags[1]->slots[number % 2].data, count);
    /* In the order of ranks, as the library adds: both give the same bits. */
    for (int rank = 2; rank < yardstick->ranks; rank++)
        yardstick->kernel->begin(data, data, yardstick->flags[rank]->slots[number % 2].data, count);
}
