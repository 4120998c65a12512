/* A rank that runs all-reduces until something fails or SECONDS have passed: worker_hosts BYTES SECONDS TIMEOUT_MS [STOPS]
 *
 * LOCKSTEP_TEST_KILL as in support/faults.h; rank LOCKSTEP_TEST_REFUSED is refused memory when it allocates the group's. Rank
 * STOPS stops itself after the first, in no call. With LOCKSTEP_TEST_ASKS a rank that has waited for a second says whom a
 * monitored barrier misses, "asked: ...", and waits on. Says "ready" after the first, and at its end "done" or what failed. Exit
 * codes: 0, 3 after a failure, 4 when a sum is wrong. */
#include "support/faults.h"

#include "base/clock.h"

#include <lockstep/group.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int report(const char *what) {
    printf("%s: %s\n", what, ls_last_error());
    return 3;
}

/* Element i is i on every rank. */
static bool sums_are_right(const int32_t *data, size_t count, int ranks) {
    for (size_t i = 0; i < count; i++)
        if (data[i] != (int32_t)(i % 1000) * ranks) return false;
    return true;
}

static ls_status finish(ls_group *group, ls_status posted, ls_work **work) {
    if (posted != LS_OK || !work) return posted;
    ls_status status = ls_work_wait(*work, 1000);
    if (status == LS_ERR_TIMEOUT) {
        if (ls_group_monitored_barrier(group, 1000) != LS_OK) printf("asked: %s\n", ls_last_error());
        status = ls_work_wait(*work, 0);
    }
    ls_work_close(work);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 2;
    const int stops = argc == 5 ? atoi(argv[4]) : -1;
    ls_kill_at_point_from_environment();
    const char *refused = getenv("LOCKSTEP_TEST_REFUSED");
    const size_t count = strtoull(argv[1], NULL, 10) / sizeof(int32_t);
    const ls_group_options options = {.timeout_ms = strtoll(argv[3], NULL, 10)};
    ls_group *group = NULL;
    void *memory = NULL;
    ls_work *work = NULL, **handle = getenv("LOCKSTEP_TEST_ASKS") ? &work : NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (ls_group_open(&group, &options) != LS_OK) return report("open");
    if (refused && atoi(refused) == ls_group_rank(group)) {
        ls_fault_first(LS_FAULT_MEMORY);
        ls_fault_next(__FILE__, __LINE__);
    }
    if (ls_group_alloc(group, count * sizeof(int32_t), &memory) != LS_OK) return report("alloc");
    int32_t *data = memory, go_on = 1;
    const int64_t end_ns = ls_now_ns() + strtoll(argv[2], NULL, 10) * LS_NS_PER_S;
    for (int round = 0; go_on; round++) {
        for (size_t i = 0; i < count; i++) data[i] = (int32_t)(i % 1000);
        ls_status status = ls_group_all_reduce(group, data, count, LS_I32, LS_SUM, handle);
        if (finish(group, status, handle) != LS_OK) return report("error");
        if (!sums_are_right(data, count, ls_group_world_size(group))) return 4;
        if (round == 0) printf("ready\n");
        /* Rank 0's clock ends the job. */
        go_on = ls_now_ns() < end_ns;
        status = ls_group_broadcast(group, &go_on, 1, LS_I32, 0, handle);
        if (finish(group, status, handle) != LS_OK) return report("error");
        if (round == 0 && ls_group_rank(group) == stops) raise(SIGSTOP);
    }
    printf("done\n");
    ls_group_close(&group);
    return 0;
}
