/* A rank under mpirun: worker_table SEED TURN FILE walks the table of collectives (support/table.h) and adds what it covered to
 * FILE; worker_table SEED large walks it with rows of several pieces. worker_table SEED, a rank on one of several hosts, walks it
 * once. */
#include "mpi/part.h"

/* Rank 0's. */
static void add_to_file(const char *path, table_coverage covered) {
    table_coverage before;
    FILE *file = fopen(path, "r+b");
    MUST(file && fread(&before, sizeof before, 1, file) == 1);
    for (int entry = 0; entry < TABLE_ENTRIES; entry++) covered.cells[entry] |= before.cells[entry];
    rewind(file);
    MUST(fwrite(&covered, sizeof covered, 1, file) == 1);
    fclose(file);
}

int main(int argc, char **argv) {
    const bool is_large = argc == 3 && strcmp(argv[2], "large") == 0;
    if (argc != 2 && argc != 4 && !is_large) return 2;
    table_coverage covered = {0};
    table_plan plan = {.seed = strtoull(argv[1], NULL, 10), .adds_in_any_order = true};
    ls_group *group = open_group(0);
    if (is_large) {
        MUST(table_walk_large(group, &plan));
    } else {
        plan.adds_by_host = argc == 2;
        if (argc == 4) plan.turn = atoi(argv[2]);
        MUST(table_walk(group, &plan, &covered));
        if (argc == 4 && rank == 0) add_to_file(argv[3], covered);
    }
    ls_group_close(&group);
    printf("rank %d is done\n", rank);
    return 0;
}
