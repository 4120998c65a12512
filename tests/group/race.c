/* race.c: two ranks as threads run every algorithm, for test_race.sh, which builds it with races planted in the library. */
#include <lockstep/group.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT (1 << 15)

typedef struct rank {
    ls_store *store;
    int number;
    ls_status status;
} rank;

static ls_status run_all(ls_group *group, float *ordinary) {
    ls_status status = LS_OK;
    void *shared = NULL;
    if ((status = ls_group_alloc(group, COUNT * sizeof(float), &shared))) return status;
    for (int round = 0; round < 4; round++) {
        float small = 1;
        if ((status = ls_group_all_reduce(group, &small, 1, LS_F32, LS_SUM, NULL))) return status;
        if ((status = ls_group_all_reduce(group, shared, COUNT, LS_F32, LS_SUM, NULL))) return status;
        /* What was reduced is read and written again, as a training step does. */
        for (int i = 0; i < COUNT; i++) ((float *)shared)[i] += 1;
        if ((status = ls_group_all_reduce(group, ordinary, COUNT, LS_F32, LS_SUM, NULL))) return status;
        for (int i = 0; i < COUNT; i++) ordinary[i] = (float)round;
    }
    return LS_OK;
}

static void *run(void *argument) {
    rank *self = argument;
    ls_group *group = NULL;
    float *ordinary = calloc(COUNT, sizeof *ordinary);
    const ls_group_options options = {.store = self->store, .rank = self->number, .world_size = 2, .timeout_ms = 60000};
    self->status = ls_group_open(&group, &options);
    if (self->status == LS_OK) self->status = run_all(group, ordinary);
    if (self->status != LS_OK) printf("rank %d: %s\n", self->number, ls_last_error());
    ls_group_close(&group);
    free(ordinary);
    return NULL;
}

int main(void) {
    rank ranks[2] = {{.number = 0}, {.number = 1}};
    pthread_t threads[2];
    ls_store *store = NULL;
    if (ls_store_open_hash(&store) != LS_OK) return 2;
    for (int i = 0; i < 2; i++) {
        ranks[i].store = store;
        if (pthread_create(&threads[i], NULL, run, &ranks[i]) != 0) return 2;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    ls_store_close(&store);
    return ranks[0].status != LS_OK || ranks[1].status != LS_OK;
}
