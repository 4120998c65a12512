/* A rank of four that calls something else than others, and says what failed: worker_mismatch WHICH
 *
 * within   rank 1 has less data than the others
 * between  ranks from 2 on want an average of halves
 * ways     ranks 0 and 3 gather, each to itself, over all ranks; the others have a barrier, in their hosts first
 * order    rank 3 leaves out a scatter
 * ahead    rank 3 alone gathers seventy times, for which it need not wait */
#include <lockstep/group.h>

#include <stdio.h>
#include <string.h>

/* Operation 2, and those after it. */
static ls_status call_apart(ls_group *group, const char *which) {
    const int rank = ls_group_rank(group);
    float data[16] = {0}, own[4] = {0};
    if (strcmp(which, "within") == 0)
        return ls_group_all_reduce(group, data, rank == 1 ? 10 : 12, LS_F32, LS_SUM, NULL);
    if (strcmp(which, "between") == 0)
        return rank < 2 ? ls_group_reduce(group, data, 8, LS_F32, LS_SUM, 1, NULL)
                        : ls_group_all_reduce(group, data, 16, LS_F16, LS_AVERAGE, NULL);
    if (strcmp(which, "ways") == 0)
        return rank == 1 || rank == 2 ? ls_group_barrier(group, NULL)
                                      : ls_group_gather(group, own, data, 4, LS_F32, rank, NULL);
    for (int i = 0; i < 70 && rank == 3 && strcmp(which, "ahead") == 0; i++)
        if (ls_group_gather(group, own, NULL, 4, LS_F32, 0, NULL) != LS_OK) return LS_ERR_STATE;
    if (rank != 3 && strcmp(which, "order") == 0) {
        const ls_status status = ls_group_scatter(group, data, own, 4, LS_F32, 0, NULL);
        if (status != LS_OK) return status;
    }
    return ls_group_all_reduce(group, own, 4, LS_F32, LS_MAX, NULL);
}

int main(int argc, char **argv) {
    ls_group *group = NULL;
    if (argc != 2) return 2;
    if (ls_group_open(&group, NULL) != LS_OK || ls_group_barrier(group, NULL) != LS_OK) return 1;
    if (call_apart(group, argv[1]) == LS_ERR_MISMATCH) printf("%s\n", ls_last_error());
    ls_group_close(&group);
    return 0;
}
