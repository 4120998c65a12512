/* A rank of three, the first of which ends as soon as it has done its own part, while the others take their time:
 *
 *   worker_early subgroup     a subgroup of the others, which sums
 *   worker_early barrier      a monitored barrier, the last thing that all do
 *
 * Exit codes: 0, or 3 after a failure, whose status and sentence are printed. */
#include "support/faults.h"

#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/group.h>

#include <stdio.h>
#include <string.h>

static void nap(void *argument) {
    (void)argument;
    ls_sleep_until(ls_now_ns() + 300 * LS_NS_PER_MS);
}

static ls_status sum_without_rank_0(ls_group *group) {
    ls_group *others = NULL;
    float sum = 1;
    ls_status status = ls_group_subgroup(&others, group, (const int[]){1, 2}, 2);
    if (status == LS_OK && ls_group_is_member(others))
        status = ls_group_all_reduce(others, &sum, 1, LS_F32, LS_SUM, NULL);
    ls_group_close(&others);
    return status;
}

int main(int argc, char **argv) {
    const bool is_barrier = argc > 1 && strcmp(argv[1], "barrier") == 0;
    ls_group *group = NULL;
    /* Rank 2 has come, and not heard yet that all have; or all have agreed, and what is left is between the group's ranks. */
    ls_at_point(is_barrier ? "monitored.barrier.come" : "related.group.agreed", 2, 1, nap, NULL);
    ls_status status = ls_group_open(&group, NULL);
    if (status == LS_OK) status = is_barrier ? ls_group_monitored_barrier(group, 20000) : sum_without_rank_0(group);
    printf("%s: %s\n", ls_status_name(status), status == LS_OK ? "done" : ls_last_error());
    ls_group_close(&group);
    return status == LS_OK ? 0 : 3;
}
