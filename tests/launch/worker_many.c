/* worker_many.c: one of many ranks: worker_many MODE
 *
 *   all     every collective and a ring of messages, small, each checked
 *   killed  rank 1 is killed before it has met anybody
 *   fails   it exits with 7 there
 *   dies    the last rank is killed when the group is open
 *
 * A failure is printed as "error STATUS: SENTENCE", exit code 3. */
#include <lockstep/group.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 512, COUNT = 3 };

static void check(ls_status status) {
    if (status == LS_OK) return;
    printf("error %s: %s\n", ls_status_name(status), ls_last_error());
    fflush(stdout);
    _exit(3);
}

static void expect(const char *what, int64_t found, int64_t wanted) {
    if (found == wanted) return;
    printf("%s: %lld in place of %lld\n", what, (long long)found, (long long)wanted);
    fflush(stdout);
    _exit(4);
}

static int64_t rows[MOST_RANKS][COUNT], others[MOST_RANKS][COUNT];

/* Row r of rank s holds s * 1000 + r. */
static void fill(int rank, int size) {
    for (int r = 0; r < size; r++)
        for (int i = 0; i < COUNT; i++) rows[r][i] = rank * 1000 + r;
}

static void run_reductions(ls_group *group, int rank, int size) {
    const int64_t sum = (int64_t)size * (size - 1) / 2;
    int64_t data[COUNT] = {rank, rank, rank};
    check(ls_group_all_reduce(group, data, COUNT, LS_I64, LS_SUM, NULL));
    expect("all-reduce", data[2], sum);
    check(ls_group_reduce(group, data, COUNT, LS_I64, LS_MAX, size - 1, NULL));
    expect("reduce", data[0], sum);
    fill(rank, size);
    check(ls_group_reduce_scatter(group, rows, data, COUNT, LS_I64, LS_SUM, NULL));
    expect("reduce-scatter", data[1], sum * 1000 + (int64_t)size * rank);
}

static void run_copies(ls_group *group, int rank, int size) {
    int64_t data[COUNT] = {rank, rank, rank};
    check(ls_group_broadcast(group, data, COUNT, LS_I64, size / 2, NULL));
    expect("broadcast", data[1], size / 2);
    data[0] = data[1] = data[2] = rank;
    check(ls_group_all_gather(group, data, others, COUNT, LS_I64, NULL));
    for (int r = 0; r < size; r++) expect("all-gather", others[r][2], r);
    memset(others, 0, sizeof others);
    check(ls_group_gather(group, data, others, COUNT, LS_I64, size - 1, NULL));
    for (int r = 0; r < size && rank == size - 1; r++) expect("gather", others[r][0], r);
    fill(rank, size);
    check(ls_group_scatter(group, rows, data, COUNT, LS_I64, 1, NULL));
    expect("scatter", data[2], 1000 + rank);
    check(ls_group_all_to_all(group, rows, others, COUNT, LS_I64, NULL));
    for (int r = 0; r < size; r++) expect("all-to-all", others[r][1], r * 1000 + rank);
}

static void run_ring(ls_group *group, int rank, int size) {
    ls_work *works[2];
    int64_t own = rank, got = -1;
    check(ls_group_send(group, &own, 1, LS_I64, (rank + 1) % size, 5, &works[0]));
    check(ls_group_receive(group, &got, 1, LS_I64, (rank + size - 1) % size, 5, NULL, &works[1]));
    check(ls_work_wait_all(works, 2, 0));
    for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
    expect("ring", got, (rank + size - 1) % size);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *own = getenv("RANK");
    ls_group *group = NULL;
    const bool is_rank_1 = own && strcmp(own, "1") == 0;
    if (is_rank_1 && strcmp(mode, "killed") == 0) kill(getpid(), SIGKILL);
    if (is_rank_1 && strcmp(mode, "fails") == 0) return 7;
    check(ls_group_open(&group, NULL));
    const int rank = ls_group_rank(group), size = ls_group_world_size(group);
    if (strcmp(mode, "dies") == 0 && rank == size - 1) kill(getpid(), SIGKILL);
    run_reductions(group, rank, size);
    run_copies(group, rank, size);
    run_ring(group, rank, size);
    check(ls_group_barrier(group, NULL));
    ls_group_close(&group);
    printf("rank %d of %d is done\n", rank, size);
    return 0;
}
