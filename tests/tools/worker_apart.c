/* A rank that does not call what its peer calls, and nobody compares calls: worker_apart calls, on one group; worker_apart
 * groups, each on another of two. Says what became of it, and when. */
#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/group.h>

#include <stdio.h>
#include <string.h>

#define LIMIT_MS (LS_UNDER_THREAD_SANITIZER ? 5000 : 700) /* opening has it too */

int main(int argc, char **argv) {
    ls_group *group = NULL, *copy = NULL;
    float data[8] = {0}, gathered[8];
    if (argc != 2 || ls_group_open(&group, &(ls_group_options){.timeout_ms = LIMIT_MS}) != LS_OK ||
        ls_group_duplicate(&copy, group) != LS_OK) {
        fprintf(stderr, "worker_apart: %s\n", ls_last_error());
        return 2;
    }
    const bool is_first = ls_group_rank(group) == 0, is_one_group = strcmp(argv[1], "calls") == 0;
    ls_status status = LS_OK;
    const int64_t start_ns = ls_now_ns();
    if (is_one_group) /* both only receive: so none of MPI's messages finds a wrong receiver */
        status = is_first ? ls_group_gather(group, data, gathered, 3, LS_F32, 0, NULL)
                          : ls_group_broadcast(group, data, 4, LS_F32, 0, NULL);
    else
        status = is_first ? ls_group_barrier(group, NULL) : ls_group_all_reduce(copy, data, 5, LS_F32, LS_MAX, NULL);
    printf("%s %s limit: %s\n", ls_status_name(status),
           ls_now_ns() - start_ns < LIMIT_MS * LS_NS_PER_MS ? "before the" : "at the", ls_last_error());
    fflush(stdout);
    /* MPI's launcher ends the others with the first that has lost a group. */
    ls_sleep_until(ls_now_ns() + LS_NS_PER_S);
    ls_group_close(&copy);
    ls_group_close(&group);
    return 0;
}
