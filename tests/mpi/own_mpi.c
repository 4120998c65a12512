/* A program that initialises MPI itself, built for each family: own_mpi LEVEL, or "unset" or "conflict" (see
 * test_own.c). It uses MPI before, beside and after a group of ours. */
#include "mpi/part.h"

#ifdef LS_MPI_STANDARD_ABI
#include <mpi_abi.h>
#else
#include <mpi.h>
#endif

#include <pthread.h>

static const struct level {
    const char *name;
    int level;
} levels[] = {
    {"single", MPI_THREAD_SINGLE},     {"funneled", MPI_THREAD_FUNNELED}, {"serialized", MPI_THREAD_SERIALIZED},
    {"multiple", MPI_THREAD_MULTIPLE}, {"unset", MPI_THREAD_MULTIPLE},    {"conflict", MPI_THREAD_FUNNELED},
};

static void check_own_sum(void) {
    int one = 1;
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MUST(one == world_size);
}

typedef struct handles {
    ls_group *group;
    ls_work *work;
} handles;

static void *call_from_a_thread(void *argument) {
    handles *held = argument;
    float value = 0;
    MUST_FAIL(ls_group_all_reduce(held->group, &value, 1, LS_F32, LS_SUM, NULL), LS_ERR_STATE,
              "only the thread that opened this group may use it");
    MUST_FAIL(ls_work_wait(held->work, 0), LS_ERR_STATE, "only the thread that opened this group may use it");
    ls_group_progress(held->group);
    return NULL;
}

static void *open_from_a_thread(void *argument) {
    ls_group *group = NULL;
    (void)argument;
    MUST_FAIL(ls_group_open(&group, NULL), LS_ERR_STATE, "thread that initialised MPI");
    return NULL;
}

static void *drive_from_a_thread(void *argument) {
    walk(((handles *)argument)->group, 21);
    return NULL;
}

static void run_thread(void *(*body)(void *argument), handles *held) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, held);
    pthread_join(thread, NULL);
}

/* Another thread may not touch the group below MPI_THREAD_SERIALIZED, and may from there on, in turn. */
static void check_threads(ls_group *group, int level) {
    handles held = {.group = group};
    float value = 1;
    if (level >= MPI_THREAD_SERIALIZED) {
        run_thread(drive_from_a_thread, &held);
        return;
    }
    run_thread(open_from_a_thread, NULL);
    ls_work *first = NULL;
    MUST(ls_group_barrier(group, &first) == LS_OK);
    MUST(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, &held.work) == LS_OK);
    if (!ls_work_is_complete(held.work)) run_thread(call_from_a_thread, &held);
    MUST(ls_work_wait(held.work, 0) == LS_OK);
    MUST(value == (float)ls_group_world_size(group));
    ls_work_close(&held.work);
    ls_work_close(&first);
}

/* Rank 0 waits in one where nobody but it can move what the others wait for first: of two groups the second operation each,
 * which begins when the first has ended. */
static void check_monitored_barrier(ls_group *group, ls_group *other) {
    float values[4] = {1, 1, 1, 1};
    ls_work *works[4] = {NULL};
    for (int i = 0; i < 4; i++)
        MUST(ls_group_all_reduce(i % 2 ? other : group, &values[i], 1, LS_F32, LS_SUM, &works[i]) == LS_OK);
    if (rank != 0) MUST(ls_work_wait_all(works, 4, 0) == LS_OK);
    MUST(ls_group_monitored_barrier(group, 20000) == LS_OK);
    MUST(ls_work_wait_all(works, 4, 0) == LS_OK);
    for (int i = 0; i < 4; i++) {
        MUST(values[i] == (float)world_size);
        ls_work_close(&works[i]);
    }
}

static void use_groups(int level) {
    ls_group *group = open_group(0), *copy = NULL;
    walk(group, 5);
    check_own_sum();
    MUST(ls_group_duplicate(&copy, group) == LS_OK);
    check_monitored_barrier(group, copy);
    ls_group_close(&group);
    walk(copy, 11);
    check_threads(copy, level);
    check_own_sum();
    ls_group_close(&copy);
}

int main(int argc, char **argv) {
    int wanted = -1, level = 0;
    for (size_t i = 0; argc == 2 && i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(levels[i].name, argv[1]) == 0) wanted = levels[i].level;
    if (wanted < 0) return 2;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MUST(level == wanted); /* else that level is not what is tested */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    check_own_sum();
    ls_group *group = NULL;
    if (strcmp(argv[1], "unset") == 0) {
        static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"};
        for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    }
    if (strcmp(argv[1], "conflict") == 0) {
        MUST_FAIL(ls_group_open(&group, NULL), LS_ERR_ENVIRONMENT, "unset LOCKSTEP_MPI");
        fprintf(stderr, "%s\n", ls_last_error());
    } else {
        use_groups(level);
    }
    check_own_sum();
    MPI_Finalize();
    if (strcmp(argv[1], "conflict") != 0)
        MUST_FAIL(ls_group_open(&group, &(ls_group_options){.backend = "mpi"}), LS_ERR_STATE, "MPI was finalised");
    printf("rank %d is done\n", rank);
    return 0;
}
