/* A rank with more elements than 31 bits count, for scripts/check-large.sh: collectives and a message of COUNT bytes, which
 * an index tells apart; where it is cut or wraps around, another byte comes. Two ranks hold 2 x 2 x 2 GiB. */
#include "group/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (((size_t)1 << 31) + 101)

static ls_group *group;
static int rank;

static void must(ls_status status, const char *what) {
    if (status != LS_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, what, ls_last_error());
        exit(1);
    }
    if (rank == 0) printf("%s\n", what);
    fflush(stdout);
}

/* Element `i` of what rank `of` has. */
static uint8_t value(size_t i, int of) {
    return (uint8_t)((((uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 56) + (uint64_t)of * 41);
}

static void fill(uint8_t *row, int of) {
    for (size_t i = 0; i < COUNT; i++) row[i] = value(i, of);
}

/* `first` of what rank `of` has, or with `of` negative of the sum. */
static void check(const uint8_t *row, int of, const char *what) {
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT; i++)
        wrong += row[i] != (of < 0 ? (uint8_t)(value(i, 0) + value(i, 1)) : value(i, of));
    if (wrong == 0) return;
    fprintf(stderr, "rank %d: %s: %zu elements are wrong\n", rank, what, wrong);
    exit(1);
}

/* In memory of the group, which shared memory reduces where it lies. */
static void check_group_memory(void) {
    void *memory = NULL;
    must(ls_group_alloc(group, COUNT, &memory), "memory of the group");
    fill(memory, rank);
    must(ls_group_all_reduce(group, memory, COUNT, LS_U8, LS_SUM, NULL), "all-reduce in it");
    check(memory, -1, "all-reduce in memory of the group");
    if (rank == 1) fill(memory, 1);
    must(ls_group_broadcast(group, memory, COUNT, LS_U8, 1, NULL), "broadcast in it");
    check(memory, 1, "broadcast in memory of the group");
    ls_group_free(group, memory);
}

static void check_ordinary_memory(uint8_t *rows) {
    uint8_t *own = rows + COUNT * (size_t)rank, *other = rows + COUNT * (size_t)(1 - rank);
    fill(own, rank);
    must(ls_group_all_reduce(group, own, COUNT, LS_U8, LS_SUM, NULL), "all-reduce");
    check(own, -1, "all-reduce");
    fill(own, rank);
    must(ls_group_all_gather(group, own, rows, COUNT, LS_U8, NULL), "all-gather");
    check(other, 1 - rank, "all-gather");
    check(own, rank, "all-gather");
    if (rank == 0) memset(other, 0, COUNT);
    must(ls_group_gather(group, own, rows, COUNT, LS_U8, 0, NULL), "gather");
    check(other, 1 - rank, "gather");
    if (rank == 1) memset(own, 0, COUNT);
    must(ls_group_scatter(group, rows, own, COUNT, LS_U8, 0, NULL), "scatter");
    check(own, rank, "scatter");
    /* Of what is the same on both, which it stays; and an op that MPI has, as it has none for sums of bytes. */
    must(ls_group_all_reduce(group, rows, 2 * COUNT, LS_U8, LS_BITWISE_AND, NULL), "all-reduce of twice as many");
    check(other, 1 - rank, "all-reduce of twice as many");
    if (rank == 0) memset(other, 0, COUNT);
    must(rank == 0 ? ls_group_receive(group, other, COUNT, LS_U8, 1, 3, NULL, NULL)
                   : ls_group_send(group, own, COUNT, LS_U8, 0, 3, NULL),
         "message");
    check(other, 1 - rank, "message");
    must(ls_group_reduce_scatter(group, rows, own, COUNT, LS_U8, LS_MAX, NULL), "reduce-scatter");
    check(own, rank, "reduce-scatter");
    must(ls_group_broadcast(group, own, COUNT, LS_U8, 0, NULL), "broadcast");
    check(own, 0, "broadcast");
}

/* Between ranks of one host only the named table goes over connections. */
static ls_status open_group(bool over_connections) {
    ls_group_options found;
    const ls_backend *backend = NULL;
    ls_status status = group_choose(&(ls_group_options){0}, &found, &backend);
    if (status != LS_OK) return status;
    status = group_open_backend(&group, &found, over_connections ? &tcp_backend : backend);
    ls_store_close(&found.store);
    return status;
}

int main(int argc, char **argv) {
    must(open_group(argc == 2 && strcmp(argv[1], "connections") == 0), "open");
    rank = ls_group_rank(group);
    if (ls_group_world_size(group) != 2) return 2;
    check_group_memory();
    uint8_t *rows = malloc(2 * COUNT);
    if (!rows) return 3;
    check_ordinary_memory(rows);
    free(rows);
    ls_group_close(&group);
    return 0;
}
