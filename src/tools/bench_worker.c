/* bench_worker.c: one rank of `lockstep bench all-reduce`.
 *
 * Each size is measured in rounds, in each of which the library and the yardstick run in turn, so that what disturbs the
 * machine disturbs both. An operation is timed by itself on rank 0, from call to return; the ranks keep each other in step.
 * "fresh": every rank has just written its whole buffer, as after a backward pass; the writing is not timed.          */
#include "tools/bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 7
#define ROUND_NS (15 * LS_NS_PER_MS)
#define MOST_OPERATIONS 4000

const size_t bench_sizes[] = {4,         64,      256,     1 << 10,  4 << 10,   16 << 10, 64 << 10,
                              256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20, 0};

typedef struct sitting {
    ls_group *group;
    bench_yardstick *yardstick;
    float *shared, *ordinary; /* each of the largest size */
    int64_t clock_ns;         /* between two readings of the clock with nothing in between */
    int64_t *samples;         /* [ROUNDS][MOST_OPERATIONS] */
} sitting;

typedef enum method { LOCKSTEP, LOCKSTEP_ASYNC, IN_PLACE, ONE_PHASE } method;

/* A rank on each processor, where there are enough: measured is the library, not the scheduler. */
static void bind_to_processor(int rank, int ranks) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
    int left = rank;
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (!CPU_ISSET((size_t)processor, &allowed) || left-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)processor, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static ls_status run_once(sitting *bench, method way, float *data, size_t bytes) {
    ls_work *work = NULL;
    ls_status status = LS_OK;
    switch (way) {
    case LOCKSTEP: return ls_group_all_reduce(bench->group, data, bytes / sizeof(float), LS_F32, LS_SUM, NULL);
    case LOCKSTEP_ASYNC:
        status = ls_group_all_reduce(bench->group, data, bytes / sizeof(float), LS_F32, LS_SUM, &work);
        if (status == LS_OK) status = ls_work_wait(work, 0);
        ls_work_close(&work);
        return status;
    case IN_PLACE: bench_in_place(bench->yardstick, bytes); return LS_OK;
    case ONE_PHASE: bench_one_phase(bench->yardstick, data, bytes); return LS_OK;
    }
    return LS_OK;
}

static void write_all(float *data, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(float); i++) data[i] = 1;
}

/* How many operations fill a round, all ranks alike. */
static int operations_for(size_t bytes, bool is_fresh) {
    const int64_t one_ns = 200 + (int64_t)(bytes / (is_fresh ? 5 : 20));
    const int64_t count = ROUND_NS / one_ns;
    return count < 3 ? 3 : count > MOST_OPERATIONS ? MOST_OPERATIONS : (int)count;
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int by_ratio(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of some samples, which it sorts. */
static double median_us(int64_t *samples, size_t count) {
    qsort(samples, count, sizeof *samples, by_value);
    const size_t middle = count / 2;
    return (double)samples[middle] / 1000;
}

static ls_status run_round(sitting *bench, method way, float *data, size_t bytes, bool is_fresh, int64_t *samples) {
    const int count = operations_for(bytes, is_fresh), warm = count / 10 + 1;
    if (!is_fresh) memset(data, 0, bytes);
    for (int i = -warm; i < count; i++) {
        if (is_fresh) write_all(data, bytes);
        const int64_t start_ns = ls_now_ns();
        const ls_status status = run_once(bench, way, data, bytes);
        const int64_t taken_ns = ls_now_ns() - start_ns - bench->clock_ns;
        if (status != LS_OK) return status;
        if (i >= 0) samples[i] = taken_ns > 0 ? taken_ns : 0;
    }
    if (is_fresh && data[bytes / sizeof(float) - 1] != (float)ls_group_world_size(bench->group))
        return ls_fail(LS_ERR_INTERNAL, "an all-reduce of %zu bytes came to a wrong sum", bytes);
    return LS_OK;
}

typedef struct contender {
    const char *impl, *memory, *mode;
    method way;
    float *data;
    double rounds_us[ROUNDS], median_us, best_us;
} contender;

/* All contenders of one size and pattern, in turn, round by round. */
static ls_status measure(sitting *bench, contender *contenders, int count, size_t bytes, bool is_fresh) {
    const size_t operations = (size_t)operations_for(bytes, is_fresh);
    for (int c = 0; c < count; c++) contenders[c].best_us = 1e30;
    for (int round = 0; round < ROUNDS; round++)
        for (int c = 0; c < count; c++) {
            contender *one = &contenders[c];
            LS_TRY(ls_group_barrier(bench->group, NULL));
            LS_TRY(run_round(bench, one->way, one->data, bytes, is_fresh, bench->samples));
            one->rounds_us[round] = median_us(bench->samples, operations);
            const double best_us = (double)bench->samples[0] / 1000;
            if (best_us < one->best_us) one->best_us = best_us;
        }
    for (int c = 0; c < count; c++) {
        double sorted[ROUNDS];
        memcpy(sorted, contenders[c].rounds_us, sizeof sorted);
        qsort(sorted, ROUNDS, sizeof *sorted, by_ratio);
        contenders[c].median_us = sorted[ROUNDS / 2];
    }
    return LS_OK;
}

static double paired_ratio(const contender *one, const contender *reachable) {
    double ratios[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) ratios[round] = one->rounds_us[round] / reachable->rounds_us[round];
    qsort(ratios, ROUNDS, sizeof *ratios, by_ratio);
    return ratios[ROUNDS / 2];
}

static void print(const sitting *bench, const contender *one, const contender *reachable, size_t bytes, bool is_fresh) {
    bench_record record = {.ranks = ls_group_world_size(bench->group),
                           .bytes = bytes,
                           .median_us = one->median_us,
                           .best_us = one->best_us,
                           .ratio = reachable ? paired_ratio(one, reachable) : 0};
    snprintf(record.impl, sizeof record.impl, "%s", one->impl);
    snprintf(record.memory, sizeof record.memory, "%s", one->memory);
    snprintf(record.mode, sizeof record.mode, "%s", one->mode);
    snprintf(record.pattern, sizeof record.pattern, "%s", is_fresh ? "fresh" : "repeat");
    bench_print(&record);
}

static ls_status measure_size(sitting *bench, size_t bytes, bool is_fresh) {
    float *yardstick = bench_yardstick_data(bench->yardstick);
    contender contenders[] = {
        {.impl = "lockstep-shm", .memory = "group", .mode = "blocking", .way = LOCKSTEP, .data = bench->shared},
        {.impl = "reachable", .memory = "group", .mode = "blocking", .way = IN_PLACE, .data = yardstick},
        {.impl = "lockstep-shm", .memory = "group", .mode = "async", .way = LOCKSTEP_ASYNC, .data = bench->shared},
        {.impl = "lockstep-shm", .memory = "ordinary", .mode = "blocking", .way = LOCKSTEP, .data = bench->ordinary},
        {.impl = "lockstep-shm", .memory = "ordinary", .mode = "async", .way = LOCKSTEP_ASYNC, .data = bench->ordinary},
        {.impl = "reachable", .memory = "group", .mode = "blocking", .way = ONE_PHASE, .data = yardstick},
    };
    const int count = bytes <= BENCH_ONE_PHASE_BYTES ? 6 : 5;
    LS_TRY(measure(bench, contenders, count, bytes, is_fresh));
    if (ls_group_rank(bench->group) != 0) return LS_OK;
    const contender *reachable = &contenders[1];
    if (count == 6 && contenders[5].median_us < reachable->median_us) reachable = &contenders[5];
    print(bench, &contenders[0], reachable, bytes, is_fresh);
    print(bench, reachable, NULL, bytes, is_fresh);
    for (int c = 2; c < 5; c++) print(bench, &contenders[c], reachable, bytes, is_fresh);
    return LS_OK;
}

static ls_status set_up(sitting *bench, size_t most_bytes) {
    void *shared = NULL;
    LS_TRY(ls_group_open(&bench->group, NULL));
    LS_TRY(ls_group_alloc(bench->group, most_bytes, &shared));
    bench->shared = shared;
    bench->ordinary = ls_alloc(most_bytes);
    bench->samples = ls_alloc_array(MOST_OPERATIONS, sizeof *bench->samples);
    if (!bench->ordinary || !bench->samples) return LS_ERR_MEMORY;
    LS_TRY(bench_yardstick_open(&bench->yardstick, bench->group, most_bytes));
    bench->clock_ns = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const int64_t start_ns = ls_now_ns(), taken_ns = ls_now_ns() - start_ns;
        if (taken_ns < bench->clock_ns) bench->clock_ns = taken_ns;
    }
    return LS_OK;
}

int bench_all_reduce_worker(int argc, char **argv) {
    const size_t most_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    sitting bench = {0};
    const char *rank = getenv("RANK"), *ranks = getenv("WORLD_SIZE");
    bind_to_processor(rank ? atoi(rank) : 0, ranks ? atoi(ranks) : 1);
    ls_status status = set_up(&bench, most_bytes);
    for (int i = 0; status == LS_OK && bench_sizes[i] && bench_sizes[i] <= most_bytes; i++)
        for (int is_fresh = 0; status == LS_OK && is_fresh < 2; is_fresh++)
            status = measure_size(&bench, bench_sizes[i], is_fresh);
    if (status != LS_OK) fprintf(stderr, "lockstep bench: %s\n", ls_last_error());
    bench_yardstick_close(&bench.yardstick);
    ls_free(bench.ordinary);
    ls_free(bench.samples);
    ls_group_close(&bench.group);
    return status != LS_OK;
}
