/* A rank under mpirun, in the part that argv[1] names. The group comes from the environment, as a user's would. Prints
 * "rank N is done" at its end; exits with 1 and the place when something is not as it should be. */
#include "group/post.h"
#include "mpi/rounds.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/wait.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static int rank, world_size;
static bool ends_lost; /* some rank's group is lost at the end */

static ls_group *open_group(int64_t timeout_ms) {
    ls_group *group = NULL;
    const ls_status status = ls_group_open(&group, &(ls_group_options){.timeout_ms = timeout_ms});
    if (status != LS_OK) {
        fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_last_error());
        exit(1);
    }
    rank = ls_group_rank(group);
    world_size = ls_group_world_size(group);
    return group;
}

static void nap_ms(int64_t ms) {
    ls_sleep_until(ls_deadline_after_ms(ms));
}

/* --- what comes out ---------------------------------------------------------------------------------------------- */

static void check_collectives(char **argv) {
    ls_group *group = open_group(0);
    rounds_run_many(group, strtoull(argv[2], NULL, 10), atoi(argv[3]));
    ls_group_close(&group);
}

/* Sums of anything: every rank has the same bits. */
static void check_replicas(void) {
    enum { COUNT = 100003 };
    ls_group *group = open_group(0);
    float *values = malloc(COUNT * sizeof *values);
    uint64_t digest = 0, *digests = calloc((size_t)world_size, sizeof *digests);
    for (size_t i = 0; i < COUNT; i++) values[i] = (float)rounds_mix(i * 64 + (uint64_t)rank) * 1e-9f;
    MUST(ls_group_all_reduce(group, values, COUNT, LS_F32, LS_SUM, NULL) == LS_OK);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        digest = rounds_mix(digest ^ bits);
    }
    MUST(ls_group_all_gather(group, &digest, digests, 1, LS_I64, NULL) == LS_OK);
    for (int peer = 0; peer < world_size; peer++) MUST(digests[peer] == digest);
    free(values);
    free(digests);
    ls_group_close(&group);
}

/* Several pieces a rank, and a last one that is shorter. */
static void check_pieces(void) {
    enum { COUNT = (40 << 20) / 8 + 13 };
    ls_group *group = open_group(0);
    int64_t *values = malloc(COUNT * sizeof *values);
    int64_t *all = malloc((size_t)world_size * COUNT * sizeof *all);
    for (size_t i = 0; i < COUNT; i++) values[i] = (int64_t)i + rank;
    MUST(ls_group_all_gather(group, values, all, COUNT, LS_I64, NULL) == LS_OK);
    for (int peer = 0; peer < world_size; peer++)
        for (size_t i = 0; i < COUNT; i++) MUST(all[(size_t)peer * COUNT + i] == (int64_t)i + peer);
    MUST(ls_group_all_reduce(group, values, COUNT, LS_I64, LS_SUM, NULL) == LS_OK);
    for (size_t i = 0; i < COUNT; i++) MUST(values[i] == (int64_t)i * world_size + world_size * (world_size - 1) / 2);
    if (rank != 1) memset(values, 0, COUNT * sizeof *values);
    MUST(ls_group_broadcast(group, values, COUNT, LS_I64, 1, NULL) == LS_OK);
    MUST(values[COUNT - 1] == (int64_t)(COUNT - 1) * world_size + world_size * (world_size - 1) / 2);
    free(values);
    free(all);
    ls_group_close(&group);
}

static void check_nan(void) {
    ls_group *group = open_group(0);
    float values[] = {(float)rank, rank == 1 ? NAN : 7.0f, rank == 0 ? 0.0f : -0.0f};
    double wide[] = {(double)-rank, rank == 0 ? (double)NAN : 7.0};
    MUST(ls_group_all_reduce(group, values, 3, LS_F32, LS_MAX, NULL) == LS_OK);
    MUST(ls_group_all_reduce(group, wide, 2, LS_F64, LS_MAX, NULL) == LS_OK);
    MUST(values[0] == (float)(world_size - 1) && isnan(values[1]));
    MUST(values[2] == 0.0f && signbit(values[2])); /* of equals the last rank's, on every rank */
    MUST(wide[0] == 0 && isnan(wide[1]));
    ls_group_close(&group);
}

/* --- groups, threads and time ------------------------------------------------------------------------------------ */

static void *run_on_duplicate(void *argument) {
    ls_group *group = argument;
    rounds_run_many(group, 77, 20);
    return NULL;
}

/* Groups live beside each other, are driven from several threads, and close in any order. */
static void check_duplicates(void) {
    ls_group *group = open_group(0), *copy = NULL, *copy_of_copy = NULL, *second = open_group(0);
    MUST(ls_group_duplicate(&copy, group) == LS_OK);
    MUST(ls_group_duplicate(&copy_of_copy, copy) == LS_OK);
    ls_group *groups[] = {group, copy, copy_of_copy, second};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_on_duplicate, groups[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    ls_group_close(&group);
    rounds_run_many(copy_of_copy, 5, 10);
    ls_group_close(&copy_of_copy);
    rounds_run_many(copy, 6, 10);
    ls_group_close(&copy);
    ls_group_close(&second);
    uint64_t live = 0;
    for (int i = 0; i < 6; i++) {
        ls_group *again = open_group(0);
        rounds_run_many(again, 9, 5);
        ls_group_close(&again);
        if (i == 1) live = ls_alloc_live();
    }
    MUST(ls_alloc_live() <= live + 1); /* a last notice may not have left yet */
}

static void *duplicate_twice(void *argument) {
    ls_group **groups = argument;
    for (int i = 1; i < 4; i++) MUST(ls_group_duplicate(&groups[i], groups[0]) == LS_OK);
    return NULL;
}

/* Two groups are duplicated by two threads at once: nothing orders the two. */
static void check_crossed_duplicates(void) {
    ls_group *groups[2][4] = {{open_group(0)}, {open_group(0)}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, duplicate_twice, groups[(i + rank) % 2]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) rounds_run_many(groups[i / 4][i % 4], 3, 3);
    for (int i = 0; i < 8; i++) ls_group_close(&groups[i / 4][i % 4]);
}

typedef struct duplicating {
    ls_group *group;
    ls_group *copies[20];
} duplicating;

/* A thread that finds the other at it tries again. */
static void *duplicate_in_turn(void *argument) {
    duplicating *held = argument;
    for (int i = 0; i < 20; i++) {
        ls_status status;
        while ((status = ls_group_duplicate(&held->copies[i], held->group)) == LS_ERR_STATE) nap_ms(1);
        MUST(status == LS_OK);
        if (i % 3 == rank % 3) nap_ms(2);
    }
    return NULL;
}

/* Two threads duplicate one group: the second may have agreed before the first has opened. Whose copy is whose differs
 * from rank to rank, so a barrier is posted on each before any is waited for. */
static void check_overlapping_duplicates(void) {
    ls_group *group = open_group(0);
    duplicating held[2] = {{.group = group}, {.group = group}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, duplicate_in_turn, &held[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    ls_work *works[40];
    for (int i = 0; i < 40; i++) MUST(ls_group_barrier(held[i / 20].copies[i % 20], &works[i]) == LS_OK);
    MUST(ls_work_wait_all(works, 40, 0) == LS_OK);
    for (int i = 0; i < 40; i++) {
        ls_work_close(&works[i]);
        ls_group_close(&held[i / 20].copies[i % 20]);
    }
    ls_group_close(&group);
}

/* Groups of some ranks, in an order of their own, beside each other and with a rank that leaves. */
static void check_subgroups(void) {
    static const int some[] = {3, 1};
    ls_group *group = open_group(0), *pair = NULL, *half = NULL, *copy = NULL;
    MUST(ls_group_subgroup(&pair, group, some, 2) == LS_OK);
    MUST(ls_group_split(&half, group, rank % 2, -rank) == LS_OK);
    MUST(ls_group_duplicate(&copy, half) == LS_OK);
    MUST(ls_group_world_size(half) == world_size / 2);
    MUST(ls_group_rank(half) == (world_size - 1 - rank) / 2); /* by falling rank */
    MUST(ls_group_is_member(pair) == (rank % 2 == 1));
    rounds_run_many(half, 31, 20);
    if (ls_group_is_member(pair)) {
        MUST(ls_group_rank(pair) == (rank == 3 ? 0 : 1));
        rounds_run_many(pair, 41, 20);
    } else {
        MUST_FAIL(ls_group_barrier(pair, NULL), LS_ERR_STATE, "no member of this group");
    }
    rounds_run_many(group, 51, 10);
    rounds_run_many(copy, 61, 10);
    if (rank == 3) ls_group_close(&pair);
    if (rank == 1) MUST_FAIL(ls_group_barrier(pair, NULL), LS_ERR_PEER_LOST, "rank 0 (");
    ends_lost = true;
    ls_group_close(&pair);
    ls_group_close(&half);
    ls_group_close(&copy);
    ls_group_close(&group);
}

/* Round a ring, all sending first; then by falling tag, while collectives go on; then from anyone. */
static void check_messages(void) {
    enum { COUNT = 3 << 20 };
    ls_group *group = open_group(0);
    const int next = (rank + 1) % world_size, before = (rank + world_size - 1) % world_size;
    int64_t *out = malloc(COUNT * sizeof *out), *in = malloc(COUNT * sizeof *in), small[2] = {rank, rank + 100};
    ls_work *works[4] = {NULL};
    int source = -1;
    for (size_t count = 0; count <= COUNT; count = count * 8 + 1) {
        for (size_t i = 0; i < count; i++) out[i] = (int64_t)i * 3 + rank;
        MUST(ls_group_send(group, out, count, LS_I64, next, 5, &works[0]) == LS_OK);
        MUST(ls_group_receive(group, in, count, LS_I64, before, 5, &source, &works[1]) == LS_OK);
        MUST(ls_work_wait_all(works, 2, 0) == LS_OK);
        for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
        MUST(source == before);
        for (size_t i = 0; i < count; i++) MUST(in[i] == (int64_t)i * 3 + before);
    }
    for (int tag = 0; tag < 2; tag++)
        MUST(ls_group_send(group, &small[tag], 1, LS_I64, next, tag, &works[tag]) == LS_OK);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    for (int tag = 1; tag >= 0; tag--) {
        MUST(ls_group_receive(group, &in[tag], 1, LS_I64, LS_ANY_RANK, tag, &source, NULL) == LS_OK);
        MUST(source == before && in[tag] == before + tag * 100);
    }
    MUST(ls_work_wait_all(works, 2, 0) == LS_OK);
    for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
    MUST_FAIL(ls_group_send(group, out, 1, LS_I64, next, -7, NULL), LS_ERR_UNSUPPORTED, "the backend mpi");
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    free(out);
    free(in);
    ls_group_close(&group);
}

/* A message of another length; one to a rank that has left, and one from anyone when all have. */
static void check_lost_messages(void) {
    ls_group *group = open_group(0), *second = open_group(0), *third = open_group(0);
    int64_t values[2] = {0};
    if (rank == 0)
        MUST(ls_group_send(group, values, 1, LS_I64, 1, 3, NULL) == LS_OK);
    else if (rank == 1)
        MUST_FAIL(ls_group_receive(group, values, 2, LS_I64, 0, 3, NULL, NULL), LS_ERR_MISMATCH,
                  "a message of 8 bytes came from rank 0, not 16");
    if (rank == 1) ls_group_close(&second);
    if (rank != 0) ls_group_close(&third);
    if (rank == 0) {
        MUST_FAIL(ls_group_receive(second, values, 1, LS_I64, 1, 0, NULL, NULL), LS_ERR_PEER_LOST, "rank 1 left");
        MUST_FAIL(ls_group_receive(third, values, 1, LS_I64, LS_ANY_RANK, 0, NULL, NULL), LS_ERR_PEER_LOST, "left");
    }
    ends_lost = true;
    ls_group_close(&group);
    ls_group_close(&second);
    ls_group_close(&third);
}

/* What is posted ends while this thread makes no call: the progress thread tests. */
static void check_overlap(void) {
    enum { COUNT = 2 << 20 };
    ls_group *group = open_group(0);
    ls_work *works[4] = {NULL};
    float *values = calloc(4 * COUNT, sizeof *values);
    int64_t start_ns = 0, end_ns = 0;
    for (size_t i = 0; i < 4; i++) {
        const group_call call = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .count = COUNT, .data = values + i * COUNT};
        MUST(group_post(group, &call, &works[i]) == LS_OK);
    }
    nap_ms(3000);
    const int64_t now_ns = ls_now_ns();
    for (int i = 0; i < 4; i++) {
        MUST(ls_work_wait(works[i], 0) == LS_OK);
        work_times(works[i], &start_ns, &end_ns);
        MUST(end_ns < now_ns);
        ls_work_close(&works[i]);
    }
    free(values);
    ls_group_close(&group);
}

static void check_memory(void) {
    ls_group *group = open_group(0);
    void *memory = NULL;
    MUST(ls_group_alloc(group, 100000, &memory) == LS_OK);
    MUST((uintptr_t)memory % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
    for (size_t i = 0; i < 100000; i++) MUST(((char *)memory)[i] == 0);
    ls_group_free(group, memory);
    /* Compared without being asked for. */
    MUST_FAIL(ls_group_alloc(group, rank == 1 ? 10 : 20, &memory), LS_ERR_MISMATCH,
              "rank 0 called allocation of 20 bytes, rank 1 allocation of 10 bytes");
    ls_group_close(&group);
    ends_lost = true;
}

/* --- ranks that do not do as the others -------------------------------------------------------------------------- */

static void check_mismatch(void) {
    ls_group *group = open_group(0);
    float values[8] = {0};
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    const ls_status status = rank == 1 ? ls_group_all_reduce(group, values, 8, LS_F32, LS_SUM, NULL)
                                       : ls_group_broadcast(group, values, 7, LS_F32, 0, NULL);
    MUST_FAIL(status, LS_ERR_MISMATCH,
              "rank 0 called broadcast of 7 f32 from rank 0, rank 1 all-reduce of 8 f32 sum, operation 2");
    ls_group_close(&group);
    ends_lost = true;
}

static void check_mismatched_tags(void) {
    ls_group *group = open_group(0);
    float value = 0;
    const group_call call = {.kind = GROUP_ALL_REDUCE,
                             .dtype = LS_F32,
                             .count = 1,
                             .data = &value,
                             .tag = rank == 0 ? 0x302 : 0x402,
                             .name = "bucket 0"};
    MUST_FAIL(group_post(group, &call, NULL), LS_ERR_MISMATCH, "tag 0x302");
    ls_group_close(&group);
    ends_lost = true;
}

/* Rank 0 sends rank 2 less than that expects: all ranks learn it. */
static void check_uneven(void) {
    ls_group *group = open_group(0);
    uint8_t send[8] = {0}, receive[8] = {0};
    const size_t one[] = {1, 1, 1}, two[] = {2, 1, 1};
    const ls_status status = ls_group_all_to_all_uneven(group, send, one, receive, rank == 2 ? two : one, LS_U8, NULL);
    const char *sentence = "rank 0 sends 1 elements to rank 2, which expects 2 of it";
    if (status == LS_OK)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_MISMATCH, sentence);
    else
        MUST_FAIL(status, LS_ERR_MISMATCH, sentence);
    ends_lost = true;
    ls_group_close(&group);
}

static void check_left(void) {
    ls_group *group = open_group(0);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank != 1) {
        const int64_t start_ns = ls_now_ns();
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_PEER_LOST, "rank 1 (");
        MUST(strstr(ls_last_error(), "left the group before it had done its part of operation 2, barrier"));
        MUST(ls_now_ns() - start_ns < 20 * LS_NS_PER_S);
    }
    ls_group_close(&group);
    ends_lost = true;
}

/* The last operation of a rank that closes counts, also for those that come to it late. */
static void check_early_leaver(void) {
    for (int i = 0; i < 20; i++) {
        ls_group *group = open_group(0);
        float value = 1;
        if (rank == 2) nap_ms(20);
        MUST(ls_group_broadcast(group, &value, 1, LS_F32, 0, NULL) == LS_OK);
        MUST(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL) == LS_OK);
        ls_group_close(&group);
    }
}

static void *abort_it(void *argument) {
    nap_ms(200);
    ls_group_abort(argument, "the test says so");
    return NULL;
}

/* Rank 0 aborts while its other thread, and all peers, wait for rank 1. */
static void check_abort(void) {
    ls_group *group = open_group(0);
    pthread_t thread = 0;
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank == 0) pthread_create(&thread, NULL, abort_it, group);
    if (rank != 1)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_ABORTED, "rank 0 aborted the group: the test says so");
    else
        nap_ms(1000);
    /* The others had done their part of the operation that they waited for; of no later one. */
    if (rank == 1 && ls_group_barrier(group, NULL) == LS_OK)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_ABORTED, "the test says so");
    if (rank == 0) pthread_join(thread, NULL);
    ls_group_close(&group);
    ends_lost = true;
}

static void check_limit(void) {
    ls_group *group = open_group(500);
    if (rank != 1)
        MUST_FAIL(ls_group_barrier(group, NULL), LS_ERR_ABORTED,
                  "operation 1, barrier, was not complete within 500 ms");
    else
        nap_ms(1500);
    ls_group_close(&group);
    ends_lost = true;
}

static void check_absent(void) {
    ls_group *group = NULL;
    const char *own_rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!own_rank) own_rank = getenv("PMI_RANK");
    MUST(own_rank != NULL);
    rank = own_rank ? atoi(own_rank) : 0;
    if (rank == 1) {
        /* MPI is up, but the group is not opened. */
        setenv("LOCKSTEP_BACKEND", "carrier pigeon", 1);
        MUST_FAIL(ls_group_open(&group, NULL), LS_ERR_ENVIRONMENT, "LOCKSTEP_BACKEND is \"carrier pigeon\"");
        setenv("LOCKSTEP_BACKEND", "mpi", 1);
        MUST_FAIL(ls_group_open(&group, &(ls_group_options){.rank = 5, .world_size = 77}), LS_ERR_ARGUMENT,
                  "to MPI this process is rank 1 of");
        nap_ms(1500);
    } else {
        MUST_FAIL(ls_group_open(&group, &(ls_group_options){.timeout_ms = 500}), LS_ERR_TIMEOUT, "opened the group");
    }
    MUST(!group);
    ends_lost = true;
}

/* Rank 1 goes while rank 0 waits for it, in two ways. MPI's launcher ends the job. */
static void check_death(void) {
    ls_group *group = open_group(0);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank == 1) kill(getpid(), SIGKILL);
    ls_group_barrier(group, NULL);
    nap_ms(90000);
}

static void check_exit(void) {
    ls_group *group = open_group(0);
    MUST(ls_group_barrier(group, NULL) == LS_OK);
    if (rank == 1) exit(3);
    ls_group_barrier(group, NULL);
    nap_ms(90000);
}

/* --- what can be named ------------------------------------------------------------------------------------------- */

static const struct part {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"replicas", check_replicas},
    {"pieces", check_pieces},
    {"nan", check_nan},
    {"duplicates", check_duplicates},
    {"crossed-duplicates", check_crossed_duplicates},
    {"subgroups", check_subgroups},
    {"messages", check_messages},
    {"lost-messages", check_lost_messages},
    {"overlapping-duplicates", check_overlapping_duplicates},
    {"overlap", check_overlap},
    {"memory", check_memory},
    {"mismatch", check_mismatch},
    {"mismatched-tags", check_mismatched_tags},
    {"uneven", check_uneven},
    {"left", check_left},
    {"early-leaver", check_early_leaver},
    {"abort", check_abort},
    {"limit", check_limit},
    {"absent", check_absent},
    {"death", check_death},
    {"exit", check_exit},
};

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    bool is_known = argc == 4 && strcmp(name, "collectives") == 0;
    if (is_known) check_collectives(argv);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(parts[i].name, name) == 0) {
            is_known = true;
            parts[i].run();
        }
    if (!is_known) return 2;
    printf("rank %d is done\n", rank);
    fflush(stdout);
    /* The launcher ends the job once one rank of a lost group has ended: the others want to say that they are done. */
    if (ends_lost) nap_ms(2500);
    return 0;
}
