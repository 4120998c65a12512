/* hosts_all_reduce.c: an all-reduce of BYTES bytes of f32 in memory of the group, ROUNDS times, over the backend of the
 * environment. Rank 0 prints the microseconds of each.
 *
 *   hosts_all_reduce BYTES ROUNDS [relaxed] */
#include <lockstep/group.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const size_t bytes = strtoull(argv[1], NULL, 10);
    ls_group *group = NULL;
    void *data = NULL;
    const ls_group_options options = {.timeout_ms = 60000, .relaxed_order = argc > 3};
    ls_status status = ls_group_open(&group, &options);
    if (status == LS_OK) status = ls_group_alloc(group, bytes, &data);
    for (int round = 0; status == LS_OK && round < atoi(argv[2]); round++) {
        if ((status = ls_group_barrier(group, NULL)) != LS_OK) break;
        const double start = now_us();
        status = ls_group_all_reduce(group, data, bytes / sizeof(float), LS_F32, LS_SUM, NULL);
        if (ls_group_rank(group) == 0) printf("%.1f\n", now_us() - start);
    }
    if (status != LS_OK) fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_last_error());
    ls_group_close(&group);
    return status != LS_OK;
}
