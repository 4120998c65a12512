/* A rank that reduces 16 MiB in place, of memory of the group, and 1 MiB of its own; says "mapped KB": how much
 * shared memory its page tables hold. */
#include <lockstep/group.h>

#include <stdio.h>
#include <stdlib.h>

#define SHARED_COUNT ((size_t)4 << 20)
#define ORDINARY_COUNT ((size_t)1 << 18)

static long mapped_kb(void) {
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssShmem: %ld", &kb) == 1) break;
    if (file) fclose(file);
    return kb;
}

static ls_status sum_of(ls_group *group, float *data, size_t count) {
    for (size_t i = 0; i < count; i++) data[i] = 1;
    const ls_status status = ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        if (data[i] != (float)ls_group_world_size(group)) return LS_ERR_FORMAT;
    return status;
}

int main(void) {
    ls_group *group = NULL;
    void *shared = NULL;
    float *ordinary = malloc(ORDINARY_COUNT * sizeof *ordinary);
    ls_status status = ordinary ? ls_group_open(&group, NULL) : LS_ERR_MEMORY;
    if (status == LS_OK) status = ls_group_alloc(group, SHARED_COUNT * sizeof(float), &shared);
    if (status == LS_OK) status = sum_of(group, shared, SHARED_COUNT);
    if (status == LS_OK) status = sum_of(group, ordinary, ORDINARY_COUNT);
    if (status == LS_OK)
        printf("mapped %ld\n", mapped_kb());
    else
        printf("%s\n", ls_last_error());
    ls_group_close(&group);
    free(ordinary);
    return status != LS_OK;
}
