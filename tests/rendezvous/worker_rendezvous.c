/* A rank that meets the others as the environment says, reduces, and says what came of it.
 *
 *   worker_rendezvous [ROUNDS [TIMEOUT_MS [both]]]     opens and closes its group ROUNDS times; "both": two at a time,
 *                                                      the second over a backend that is named
 *
 * Exit codes: 0, or 3 after a failure, whose status and sentence are printed. */
#include "support/faults.h"

#include <lockstep/group.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int report(const char *what, ls_status status) {
    printf("%s: %s: %s\n", what, ls_status_name(status), ls_last_error());
    return 3;
}

static int use(ls_group *group) {
    const int size = ls_group_world_size(group), rank = ls_group_rank(group);
    float sum = (float)rank, *memory = NULL;
    ls_status status = ls_group_all_reduce(group, &sum, 1, LS_F32, LS_SUM, NULL);
    if (status != LS_OK) return report("all-reduce", status);
    if (2 * sum != (float)(size * (size - 1))) return report("a wrong sum", LS_ERR_INTERNAL);
    if ((status = ls_group_alloc(group, 100000, (void **)&memory)) != LS_OK) return report("alloc", status);
    memory[7] = 1;
    if ((status = ls_group_all_reduce(group, memory, 10, LS_F32, LS_SUM, NULL)) != LS_OK)
        return report("second", status);
    if (memory[7] != (float)size) return report("a wrong second sum", LS_ERR_INTERNAL);
    if ((status = ls_group_barrier(group, NULL)) != LS_OK) return report("barrier", status);
    return 0;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    const ls_group_options options = {.timeout_ms = argc > 2 ? atoi(argv[2]) : 30000};
    ls_group_options named = options;
    named.backend = "tcp";
    const bool has_both = argc > 3 && strcmp(argv[3], "both") == 0;
    ls_kill_at_point_from_environment();
    setvbuf(stdout, NULL, _IOLBF, 0);
    int rank = -1, size = 0;
    for (int round = 0; round < rounds; round++) {
        ls_group *group = NULL, *other = NULL;
        ls_status status = ls_group_open(&group, &options);
        if (status == LS_OK && has_both) status = ls_group_open(&other, &named);
        if (status != LS_OK) {
            const int code = report("open", status);
            ls_group_close(&group);
            return code;
        }
        rank = ls_group_rank(group);
        size = ls_group_world_size(group);
        const int code = use(group) ? 3 : has_both ? use(other) : 0;
        /* In either order. */
        ls_group_close(round % 2 ? &group : &other);
        ls_group_close(&group);
        ls_group_close(&other);
        if (code) return code;
    }
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
