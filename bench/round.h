/* round.h: one rank of `lockstep bench all-reduce`: what the library's own ranks and every peer's have in common, so that all
 * are measured by the same code. Of C and C++; of the library it needs nothing.
 *
 * All contenders live at the same time, and each sleeps until the command orders a round of it: so they run in turn, and what
 * disturbs the machine disturbs all. Orders and answers are lines in pipes, which a rank opens through the command's folder of
 * descriptors in /proc; when the command ends, however it ends, the pipes close and so do the ranks.
 *
 *   order    WAY BYTES IS_FRESH OPERATIONS PAUSE_US, to every rank
 *   answer   of rank 0: "= IMPL|VERSION" once it is ready, then "MEDIAN_US BEST_US" after each round; of the others "done", so
 *            that none still works when the next contender's turn comes; of any, "! WHY"
 *
 * An operation is timed by itself, from call to return. "Fresh": every rank has just written its whole buffer, as after a
 * backward pass; the writing is not timed.                                                                            */
#ifndef BENCH_ROUND_H
#define BENCH_ROUND_H

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BENCH_MOST_OPERATIONS 1000

typedef struct bench_order {
    char way[24]; /* which of several ways the contender has; peers have one */
    size_t bytes;
    int is_fresh, operations;
    double pause_us; /* for the ways that compute, or sleep, between posting and waiting */
} bench_order;

typedef struct bench_rank {
    int rank, ranks;
    void *context;
    float *(*data)(void *context, const bench_order *order);           /* at least `bytes` of it */
    int (*call)(void *context, const bench_order *order, float *data); /* 0: the sums are there */
    FILE *orders;
    int answers;      /* one pipe of all ranks: lines are short enough to stay whole */
    int64_t clock_ns; /* between two readings of the clock with nothing in between */
    int64_t samples[BENCH_MOST_OPERATIONS];
} bench_rank;

static inline int64_t bench_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Where there are enough, each rank has processors of its own, the same number or one less: measured is the library, not the
 * scheduler. What is to spare is for threads of the rank beside the one that computes. */
static inline void bench_bind(int rank, int ranks) {
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
    CPU_ZERO(&own);
    for (int processor = 0, seen = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET((size_t)processor, &allowed) && seen++ % ranks == rank) CPU_SET((size_t)processor, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static inline void bench_answer(const bench_rank *self, const char *text) {
    if (write(self->answers, text, strlen(text)) < 0) exit(1); /* the command has ended */
}

static inline int bench_by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns 0, or 1 when the contender failed or added wrongly. */
static inline int bench_round(bench_rank *self, const bench_order *order) {
    float *data = self->data(self->context, order);
    const size_t count = order->bytes / sizeof(float);
    const int warm = order->operations / 10 + 1;
    if (!order->is_fresh) memset(data, 0, order->bytes);
    for (int i = -warm; i < order->operations; i++) {
        for (size_t k = 0; order->is_fresh && k < count; k++) data[k] = 1;
        const int64_t start_ns = bench_now_ns();
        if (self->call(self->context, order, data) != 0) return 1;
        const int64_t taken_ns = bench_now_ns() - start_ns - self->clock_ns;
        if (i >= 0) self->samples[i] = taken_ns > 0 ? taken_ns : 0;
    }
    return order->is_fresh && data[count - 1] != (float)self->ranks;
}

/* `process` and `first` tell where the pipes are: descriptor first + r for the orders of rank r, first + ranks for answers. */
static inline int bench_open(bench_rank *self, const char *process, const char *first) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", atoi(process), atoi(first) + self->rank);
    self->orders = fopen(path, "r");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", atoi(process), atoi(first) + self->ranks);
    self->answers = open(path, O_WRONLY | O_CLOEXEC);
    self->clock_ns = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const int64_t start_ns = bench_now_ns(), taken_ns = bench_now_ns() - start_ns;
        if (taken_ns < self->clock_ns) self->clock_ns = taken_ns;
    }
    return self->orders && self->answers >= 0 ? 0 : 1;
}

/* Runs rounds until the command ends. Returns 0, or 1 after a failure. */
static inline int bench_serve(bench_rank *self, const char *impl, const char *version) {
    char line[128];
    bench_order order;
    snprintf(line, sizeof line, "= %s|%.60s\n", impl, version);
    if (self->rank == 0) bench_answer(self, line);
    while (fgets(line, sizeof line, self->orders)) {
        if (sscanf(line, "%23s %zu %d %d %lf", order.way, &order.bytes, &order.is_fresh, &order.operations,
                   &order.pause_us) != 5 ||
            order.operations < 1 || order.operations > BENCH_MOST_OPERATIONS)
            return 1;
        if (bench_round(self, &order) != 0) {
            bench_answer(self, "! a call failed, or came to a wrong sum\n");
            return 1;
        }
        qsort(self->samples, (size_t)order.operations, sizeof *self->samples, bench_by_value);
        const int middle = order.operations / 2;
        snprintf(line, sizeof line, "%.3f %.3f\n", (double)self->samples[middle] / 1000,
                 (double)self->samples[0] / 1000);
        bench_answer(self, self->rank == 0 ? line : "done\n");
    }
    return 0;
}

#endif
