/* bench_worker.c: one rank of the library's own job in `lockstep bench all-reduce`. Its ways, of which each round
 * takes one:
 *
 *   group, ordinary      a blocking call, on memory of the group and on memory of malloc
 *   ...-async            posted, and waited for at once
 *   ...-overlap          posted, then computed for a while without a call, then waited for; the computing is taken off
 *   ...-asleep           the same, but asleep instead of computing
 *   in-place, one-phase  the two yardsticks */
#include "tools/bench.h"

#include "../bench/round.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sitting {
    ls_group *group;
    bench_yardstick *yardstick;
    float *shared, *ordinary;
    double turns_per_us; /* of the loop that stands for computing */
} sitting;

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static float *data_of(void *context, const bench_order *order) {
    const sitting *bench = context;
    /* By what a way's name begins with: its ending says how the call is made. */
    if (starts_with(order->way, "group")) return bench->shared;
    return starts_with(order->way, "ordinary") ? bench->ordinary : bench_yardstick_data(bench->yardstick);
}

/* Computing without memory: a chain of dependent operations, which begins and ends where the compiler sees it. */
static void compute(double turns) {
    /* Volatile at both ends: else the compiler would compute it once, or not at all. */
    volatile double seen = 1;
    double value = seen;
    for (int64_t i = 0; i < (int64_t)turns; i++) value = value * 0.999 + 0.001;
    seen = value;
}

#define EARLY_NS 100000

/* Until that moment, which a sleep alone would miss: the rest it looks at the clock. */
static void sleep_for(double pause_us) {
    const int64_t end_ns = bench_now_ns() + (int64_t)(pause_us * 1000);
    ls_sleep_until(end_ns - EARLY_NS);
    while (bench_now_ns() < end_ns) {}
}

/* How many turns a microsecond takes where nothing disturbs. The most of twenty: whatever disturbs makes it fewer,
 * nothing makes it more. */
static double measure_turns(void) {
    double most = 0;
    for (int i = 0; i < 20; i++) {
        const int64_t start_ns = bench_now_ns();
        compute(20000);
        const double turns = 20000 * 1000.0 / (double)(bench_now_ns() - start_ns);
        if (turns > most) most = turns;
    }
    return most;
}

static int call(void *context, const bench_order *order, float *data) {
    sitting *bench = context;
    const size_t count = order->bytes / sizeof(float);
    if (strcmp(order->way, "in-place") == 0) {
        bench_in_place(bench->yardstick, order->bytes);
        return 0;
    }
    if (strcmp(order->way, "one-phase") == 0) {
        bench_one_phase(bench->yardstick, data, order->bytes);
        return 0;
    }
    /* A way without an ending is the blocking call. */
    if (!strchr(order->way, '-')) return ls_group_all_reduce(bench->group, data, count, LS_F32, LS_SUM, NULL);
    ls_work *work = NULL;
    ls_status status = ls_group_all_reduce(bench->group, data, count, LS_F32, LS_SUM, &work);
    /* Without a call of the library: what goes on meanwhile, others do. */
    if (strstr(order->way, "-asleep"))
        sleep_for(order->pause_us);
    else if (order->pause_us > 0)
        compute(order->pause_us * bench->turns_per_us);
    if (status == LS_OK) status = ls_work_wait(work, 0);
    ls_work_close(&work);
    return status;
}

static ls_status set_up(sitting *bench, size_t most_bytes) {
    void *shared = NULL;
    LS_TRY(ls_group_open(&bench->group, NULL));
    LS_TRY(ls_group_alloc(bench->group, most_bytes, &shared));
    bench->shared = shared;
    /* As a program's own arrays: nothing of it is known to the peers. */
    bench->ordinary = ls_alloc(most_bytes);
    if (!bench->ordinary) return LS_ERR_MEMORY;
    LS_TRY(bench_yardstick_open(&bench->yardstick, bench->group, most_bytes));
    /* With the group open, as it is in the rounds. */
    bench->turns_per_us = measure_turns();
    return LS_OK;
}

int bench_all_reduce_worker(int argc, char **argv) {
    /* Static: both are filled bit by bit, and what is not yet there has to read as absent at the end. */
    static bench_rank self;
    static sitting bench;
    if (argc != 4) return 2;
    /* Before the group is open: a rank is bound to its processors first, so that its memory is near. */
    const char *rank = getenv("RANK"), *ranks = getenv("WORLD_SIZE");
    self.rank = rank ? atoi(rank) : 0;
    self.ranks = ranks ? atoi(ranks) : 1;
    bench_bind(self.rank, self.ranks);
    self.context = &bench;
    self.data = data_of;
    self.call = call;
    ls_status status = set_up(&bench, strtoull(argv[1], NULL, 10));
    if (status == LS_OK && bench_open(&self, argv[2], argv[3]) != 0)
        status = ls_fail(LS_ERR_IO, "cannot open the pipes of the command that started this rank");
    if (status != LS_OK) fprintf(stderr, "lockstep bench: %s\n", ls_last_error());
    if (status == LS_OK && bench_serve(&self, "lockstep-shm", ls_version()) != 0) {
        fprintf(stderr, "lockstep bench: rank %d: %s\n", self.rank, ls_last_error());
        status = LS_ERR_INTERNAL;
    }
    if (self.orders) fclose(self.orders);
    bench_yardstick_close(&bench.yardstick);
    ls_free(bench.ordinary);
    ls_group_close(&bench.group);
    return status != LS_OK;
}
