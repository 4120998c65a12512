/* What groups over MPI do, as part.h runs it. */
#include "base/memory.h"
#include "group/group.h"
#include "group/oracle.h"
#include "group/post.h"
#include "mpi/part.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

/* --- what comes out ---------------------------------------------------------------------------------------------- */

static void check_collectives(void) {
    ls_group *group = open_group(0);
    walk(group, 7);
    ls_group_close(&group);
}

/* Sums of anything: every rank has the same bits. */
static void check_replicas(void) {
    enum { COUNT = 100003 };
    ls_group *group = open_group(0);
    float *values = malloc(COUNT * sizeof *values);
    uint64_t digest = 0, *digests = calloc((size_t)world_size, sizeof *digests);
    for (size_t i = 0; i < COUNT; i++) values[i] = (float)mix(i * 64 + (uint64_t)rank) * 1e-9f;
    MUST(ls_group_all_reduce(group, values, COUNT, LS_F32, LS_SUM, NULL) == LS_OK);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        digest = mix(digest ^ bits);
    }
    MUST(ls_group_all_gather(group, &digest, digests, 1, LS_I64, NULL) == LS_OK);
    for (int peer = 0; peer < world_size; peer++) MUST(digests[peer] == digest);
    free(values);
    free(digests);
    ls_group_close(&group);
}

static void check_nan(void) {
    ls_group *group = open_group(0);
    float values[] = {(float)rank, rank == 1 ? NAN : 7.0f, rank == 0 ? 0.0f : -0.0f};
    double wide[] = {(double)-rank, rank == 0 ? (double)NAN : 7.0};
    float least[] = {(float)rank, rank == 1 ? NAN : 7.0f};
    double wide_least[] = {(double)-rank, rank == 0 ? (double)NAN : 7.0};
    MUST(ls_group_all_reduce(group, values, 3, LS_F32, LS_MAX, NULL) == LS_OK);
    MUST(ls_group_all_reduce(group, wide, 2, LS_F64, LS_MAX, NULL) == LS_OK);
    MUST(values[0] == (float)(world_size - 1) && isnan(values[1]));
    MUST(values[2] == 0.0f && signbit(values[2])); /* of equals the last rank's, on every rank */
    MUST(wide[0] == 0 && isnan(wide[1]));
    MUST(ls_group_all_reduce(group, least, 2, LS_F32, LS_MIN, NULL) == LS_OK);
    MUST(ls_group_all_reduce(group, wide_least, 2, LS_F64, LS_MIN, NULL) == LS_OK);
    MUST(least[0] == 0 && isnan(least[1]));
    MUST(wide_least[0] == 1 - world_size && isnan(wide_least[1]));
    ls_group_close(&group);
}

/* --- groups, threads and time ------------------------------------------------------------------------------------ */

static void *run_on_duplicate(void *argument) {
    ls_group *group = argument;
    walk(group, 77);
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
    walk(copy_of_copy, 5);
    ls_group_close(&copy_of_copy);
    walk(copy, 6);
    ls_group_close(&copy);
    ls_group_close(&second);
    uint64_t live = 0;
    for (int i = 0; i < 6; i++) {
        ls_group *again = open_group(0);
        walk(again, 9);
        /* What rank 0 says comes to the others, who do not ask for it. */
        if (rank == 0) MUST_FAIL(ls_group_monitored_barrier(again, 10), LS_ERR_TIMEOUT, "rank 1");
        MUST(ls_group_barrier(again, NULL) == LS_OK);
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
    for (int i = 0; i < 8; i++) walk(groups[i / 4][i % 4], 3);
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
    walk(half, 31);
    if (ls_group_is_member(pair)) {
        MUST(ls_group_rank(pair) == (rank == 3 ? 0 : 1));
        walk(pair, 41);
    } else {
        MUST_FAIL(ls_group_barrier(pair, NULL), LS_ERR_STATE, "no member of this group");
    }
    walk(group, 51);
    walk(copy, 61);
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

/* What is posted begins and ends while this thread computes, without a call: the progress thread tests. Rank 1 posts when rank
 * 0 computes already: so none of rank 0's ends before. */
static void check_overlap(void) {
    enum { COUNT = 2 << 20, POSTED = 4 };
    ls_group *group = open_group(0);
    ls_work *works[POSTED] = {NULL};
    float *values = calloc((size_t)POSTED * COUNT, sizeof *values);
    volatile double computed = 1;
    int64_t start_ns = 0, end_ns = 0;
    MUST(values != NULL);
    if (rank == 1) nap_ms(500);
    for (size_t i = 0; i < POSTED; i++)
        MUST(ls_group_all_reduce(group, values + i * COUNT, COUNT, LS_F32, LS_SUM, &works[i]) == LS_OK);
    const int64_t before_ns = ls_now_ns();
    /* Looks, and does not drive. The limit is for hangs. */
    while (!work_is_complete(works[POSTED - 1]) && ls_now_ns() < before_ns + 60 * LS_NS_PER_S)
        for (int i = 0; i < 100000; i++) computed = computed * 0.999 + 0.5;
    const int64_t after_ns = ls_now_ns();
    for (int i = 0; i < POSTED; i++) {
        MUST(ls_work_wait(works[i], 0) == LS_OK);
        work_times(works[i], &start_ns, &end_ns);
        MUST(end_ns <= after_ns);
        if (rank == 0) MUST((i == 0 || start_ns > before_ns) && end_ns > before_ns);
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

/* Rank `absent` comes to a monitored barrier, the `number`th, when the others have given it up; so it does to what they had posted
 * before. They meet over `aside`. */
static void come_late(ls_group *group, ls_group *aside, int absent, int number) {
    char sentence[100];
    float one = 1;
    ls_work *work = NULL;
    snprintf(sentence, sizeof sentence, "rank %d did not come to monitored barrier %d within 300 ms", absent, number);
    if (rank != absent) {
        MUST(ls_group_all_reduce(group, &one, 1, LS_F32, LS_SUM, &work) == LS_OK);
        MUST_FAIL(ls_group_monitored_barrier(group, 300), LS_ERR_TIMEOUT, sentence);
    }
    MUST(ls_group_barrier(aside, NULL) == LS_OK);
    if (rank == absent) {
        MUST(ls_group_all_reduce(group, &one, 1, LS_F32, LS_SUM, &work) == LS_OK);
        /* Rank 0 finds that all have come; another hears what rank 0 said of it. */
        if (rank == 0)
            MUST(ls_group_monitored_barrier(group, 300) == LS_OK);
        else
            MUST_FAIL(ls_group_monitored_barrier(group, 300), LS_ERR_TIMEOUT, sentence);
    }
    MUST(ls_work_wait(work, 0) == LS_OK && one == (float)world_size);
    ls_work_close(&work);
}

static void check_monitored_barrier(void) {
    static const int some[] = {3, 1};
    ls_group *group = open_group(0), *aside = open_group(0), *pair = NULL;
    for (int i = 0; i < 4; i++) MUST(ls_group_monitored_barrier(group, 60000) == LS_OK);
    come_late(group, aside, 2, 5);
    come_late(group, aside, 2, 6); /* that it came at last to the one before does not count */
    come_late(group, aside, 0, 7);
    MUST(ls_group_monitored_barrier(group, 60000) == LS_OK);
    MUST(ls_group_subgroup(&pair, group, some, 2) == LS_OK);
    if (ls_group_is_member(pair))
        MUST(ls_group_monitored_barrier(pair, 60000) == LS_OK);
    else
        MUST_FAIL(ls_group_monitored_barrier(pair, 60000), LS_ERR_STATE, "no member of this group");
    ls_group_close(&pair);
    ls_group_close(&aside);
    ls_group_close(&group);
}

int main(int argc, char **argv) {
    static const part parts[] = {
        {"collectives", check_collectives},
        {"replicas", check_replicas},
        {"nan", check_nan},
        {"duplicates", check_duplicates},
        {"crossed-duplicates", check_crossed_duplicates},
        {"overlapping-duplicates", check_overlapping_duplicates},
        {"subgroups", check_subgroups},
        {"messages", check_messages},
        {"overlap", check_overlap},
        {"memory", check_memory},
        {"monitored-barrier", check_monitored_barrier},
    };
    return run_part(parts, sizeof parts / sizeof parts[0], argc, argv);
}
