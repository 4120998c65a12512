/* worker_group.c: a rank of a group, as a process, for test_group.c: worker_group MODE ...
 *
 *   rounds COUNT CLOSER   every algorithm COUNT times; then rank CLOSER leaves while the others call once more
 *   large                 one all-reduce of 64 MiB in memory of the group, one in ordinary memory
 *   relatives             groups of every kind made of one, and monitored barriers
 *   waits                 rank 1 comes a second late to a barrier; rank 0 prints the processor time that it took
 *   forks                 rank 1 forks a child that lives on, and dies
 *   stops                 rank 1 stops until the limit is past and the others have a new group, then goes on
 *   stops-in-one          the same, where only one of several groups is lost
 *   exits                 rank 1 ends without a close
 *   hangs                 all but rank 1 call once more than it, past the limit
 *
 * A call that fails is printed as "error STATUS: SENTENCE", and the exit code is 3.                                  */
#include "support/faults.h"

#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/group.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(ls_status status) {
    if (status == LS_OK) return;
    printf("error %s: %s\n", ls_status_name(status), ls_last_error());
    fflush(stdout);
    exit(3);
}

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

static ls_group *open_group(int64_t timeout_ms) {
    ls_group *group = NULL;
    check(ls_group_open(&group, &(ls_group_options){.timeout_ms = timeout_ms}));
    return group;
}

/* --- rounds ---------------------------------------------------------------------------------------------------------- */

#define COUNT ((size_t)300000)

/* To the next rank, from the one before. */
static void exchange(ls_group *group, const float *data, float *results, size_t count) {
    const int world_size = ls_group_world_size(group), rank = ls_group_rank(group);
    ls_work *works[2];
    check(ls_group_send(group, data, count, LS_F32, (rank + 1) % world_size, 5, &works[0]));
    check(ls_group_receive(group, results, count, LS_F32, (rank + world_size - 1) % world_size, 5, NULL, &works[1]));
    check(ls_work_wait_all(works, 2, 0));
    for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
}

static void run_all(ls_group *group, float *shared, float *ordinary, float *results) {
    const size_t world_size = (size_t)ls_group_world_size(group), part = COUNT / world_size;
    ls_work *work = NULL;
    for (int memory = 0; memory < 2; memory++) {
        float *data = memory ? ordinary : shared;
        memset(data, 0, COUNT * sizeof *data);
        check(ls_group_all_reduce(group, data, COUNT, LS_F32, LS_SUM, NULL));
        check(ls_group_broadcast(group, data, COUNT, LS_F32, 1, NULL));
        check(ls_group_all_gather(group, data + part * (size_t)ls_group_rank(group), data, part, LS_F32, NULL));
        check(ls_group_all_reduce(group, data, 3, LS_F32, LS_MAX, NULL));
        check(ls_group_reduce(group, data, part, LS_F32, LS_AVERAGE, 0, NULL));
        check(ls_group_reduce_scatter(group, data, data + part * (size_t)ls_group_rank(group), part, LS_F32, LS_MAX,
                                      NULL));
        check(ls_group_gather(group, data, results, part, LS_F32, 1, NULL));
        check(ls_group_scatter(group, data, results, part, LS_F32, 0, NULL));
        check(ls_group_all_to_all(group, data, results, part, LS_F32, NULL));
        exchange(group, data, results, part);
        check(ls_group_all_reduce(group, data, COUNT, LS_F32, LS_SUM, &work));
        check(ls_work_wait(work, 0));
        ls_work_close(&work);
    }
    check(ls_group_barrier(group, NULL));
}

static int run_rounds(int rounds, int closer) {
    /* Static: a failure exits from the middle, which is no leak. */
    static float ordinary[COUNT], results[COUNT];
    ls_group *group = open_group(0), *copy = NULL;
    void *shared = NULL;
    check(ls_group_alloc(group, COUNT * sizeof(float), &shared));
    check(ls_group_duplicate(&copy, group));
    say("ready");
    for (int round = 0; round < rounds; round++) run_all(group, shared, ordinary, results);
    check(ls_group_barrier(copy, NULL));
    ls_group_close(&copy);
    if (closer >= 0 && closer != ls_group_rank(group)) check(ls_group_barrier(group, NULL));
    ls_group_close(&group);
    say("done");
    return 0;
}

static int run_large(void) {
    const size_t count = (size_t)16 << 20;
    ls_group *group = open_group(0);
    void *shared = NULL;
    float *ordinary = calloc(count, sizeof *ordinary);
    check(ls_group_alloc(group, count * sizeof(float), &shared));
    check(ls_group_all_reduce(group, shared, count, LS_F32, LS_SUM, NULL));
    check(ls_group_all_reduce(group, ordinary, count, LS_F32, LS_SUM, NULL));
    ls_group_close(&group);
    free(ordinary);
    return 0;
}

/* --- relatives ------------------------------------------------------------------------------------------------------- */

enum { RELATIVES = 5 };

/* Rank 1 is left out of the first, rank 0 alone in the second; the last takes the two before in turn. */
static void make_relatives(ls_group *group, ls_group *made[RELATIVES]) {
    const int rank = ls_group_rank(group);
    check(ls_group_subgroup(&made[0], group, (const int[]){2, 0}, 2));
    check(ls_group_split(&made[1], group, rank == 0, -rank));
    for (int i = 2; i < 4; i++) check(ls_group_duplicate(&made[i], group));
    check(ls_group_round_robin(&made[4], &made[2], 2));
}

static int run_relatives(void) {
    ls_group *group = open_group(0), *made[RELATIVES] = {NULL};
    check(ls_group_monitored_barrier(group, 0));
    make_relatives(group, made);
    for (int i = 0; i < RELATIVES; i++)
        for (int k = 0; k < 2 && ls_group_is_member(made[i]); k++) check(ls_group_barrier(made[i], NULL));
    check(ls_group_monitored_barrier(made[4], 0));
    for (int i = 0; i < RELATIVES; i++) ls_group_close(&made[i]);
    check(ls_group_monitored_barrier(group, 0));
    check(ls_group_barrier(group, NULL));
    ls_group_close(&group);
    return 0;
}

/* --- waits ----------------------------------------------------------------------------------------------------------- */

static int64_t processor_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * LS_NS_PER_S + used.tv_nsec;
}

static int run_waits(void) {
    ls_group *group = open_group(0);
    check(ls_group_barrier(group, NULL));
    if (ls_group_rank(group) == 1) ls_sleep_until(ls_now_ns() + LS_NS_PER_S);
    const int64_t wall_ns = ls_now_ns(), used_ns = processor_ns();
    check(ls_group_barrier(group, NULL));
    printf("waited %lld ms, used %lld us\n", (long long)(ls_now_ns() - wall_ns) / 1000000,
           (long long)(processor_ns() - used_ns) / 1000);
    ls_group_close(&group);
    return 0;
}

/* --- forks ----------------------------------------------------------------------------------------------------------- */

/* Descriptors of segments (memfd), processes (pidfd), connections (socket, eventpoll, eventfd); not the launcher's door, which is
 * the program's to hand on. */
static int count_our_descriptors(void) {
    static const char *const ours[] = {"memfd:lockstep", "pidfd", "socket:", "eventpoll", "eventfd"};
    const char *door = getenv("LOCKSTEP_STORE_FD");
    int count = 0;
    for (int descriptor = 0; descriptor < 256; descriptor++) {
        char link[64], target[128] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        if (readlink(link, target, sizeof target - 1) < 0 || (door && descriptor == atoi(door))) continue;
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) count += strstr(target, ours[i]) != NULL;
    }
    return count;
}

static int count_our_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (maps && fgets(line, sizeof line, maps)) count += strstr(line, "memfd:lockstep") != NULL;
    if (maps) fclose(maps);
    return count;
}

static void live_on_as_child(ls_group *group) {
    float value = 1;
    const ls_status status = ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL);
    printf("child: %s, %d descriptors, %d mappings: %s\n", ls_status_name(status), count_our_descriptors(),
           count_our_mappings(), ls_last_error());
    fflush(stdout);
    ls_group_close(&group);
    pause(); /* until the launcher ends what is left */
    exit(0);
}

static int run_forks(void) {
    ls_group *group = open_group(0);
    void *memory = NULL;
    check(ls_group_alloc(group, 4096, &memory));
    if (ls_group_rank(group) == 1) {
        if (fork() == 0) live_on_as_child(group);
        ls_sleep_until(ls_now_ns() + 300 * LS_NS_PER_MS); /* for the child to speak */
        raise(SIGKILL);
    }
    check(ls_group_barrier(group, NULL));
    return 0;
}

/* --- stops ----------------------------------------------------------------------------------------------------------- */

enum { PATTERN = 0x5a, PATTERN_BYTES = 1 << 20 };

static void check_pattern(const unsigned char *bytes) {
    for (int i = 0; i < PATTERN_BYTES; i++)
        if (bytes[i] != PATTERN) check(LS_ERR_INTERNAL);
}

/* Ranks 0 and 2, once rank 1 is given up, under a group of their own. */
static void form_new_group(int rank, pid_t stopped) {
    ls_store *store = NULL;
    ls_group *group = NULL;
    void *memory = NULL;
    check(ls_store_open_inherited(&store));
    const ls_group_options options = {.store = store, .rank = rank / 2, .world_size = 2, .timeout_ms = 20000};
    check(ls_group_open(&group, &options));
    check(ls_group_alloc(group, PATTERN_BYTES, &memory));
    memset(memory, PATTERN, PATTERN_BYTES);
    check(ls_group_barrier(group, NULL));
    if (rank == 0) kill(stopped, SIGCONT);
    ls_sleep_until(ls_now_ns() + 500 * LS_NS_PER_MS);
    check_pattern(memory);
    check(ls_group_barrier(group, NULL));
    say("new group untouched");
    ls_group_close(&group);
    ls_store_close(&store);
}

/* An operation in which rank 1 stops; receives its process. */
static pid_t stop_rank_1(ls_group *group) {
    void *memory = NULL;
    int64_t own = getpid(), processes[3];
    check(ls_group_alloc(group, 1 << 20, &memory));
    check(ls_group_all_gather(group, &own, processes, 1, LS_I64, NULL));
    if (ls_group_rank(group) == 1) raise(SIGSTOP);
    const ls_status status = ls_group_all_reduce(group, memory, 1 << 18, LS_F32, LS_SUM, NULL);
    printf("status %s: %s\n", ls_status_name(status), ls_last_error());
    fflush(stdout);
    return (pid_t)processes[1];
}

static int run_stops(void) {
    ls_group *group = open_group(1500);
    const pid_t stopped = stop_rank_1(group);
    if (ls_group_rank(group) != 1) form_new_group(ls_group_rank(group), stopped);
    ls_group_close(&group);
    return 0;
}

/* Rank 1 is in all three groups but one, which the others have made for themselves. */
static int run_stops_in_one(void) {
    ls_group *all = open_group(20000), *lost = open_group(1500), *some = NULL;
    const int rank = ls_group_rank(all);
    void *memory[2] = {NULL};
    check(ls_group_subgroup(&some, all, (const int[]){0, 2}, 2));
    check(ls_group_alloc(all, PATTERN_BYTES, &memory[0]));
    if (rank != 1) check(ls_group_alloc(some, PATTERN_BYTES, &memory[1]));
    const pid_t stopped = stop_rank_1(lost);
    if (rank != 1) {
        for (int i = 0; i < 2; i++) memset(memory[i], PATTERN, PATTERN_BYTES);
        check(ls_group_barrier(some, NULL));
        if (rank == 0) kill(stopped, SIGCONT);
        ls_sleep_until(ls_now_ns() + 500 * LS_NS_PER_MS);
        for (int i = 0; i < 2; i++) check_pattern(memory[i]);
        check(ls_group_barrier(some, NULL));
        say("other groups untouched");
    }
    check(ls_group_barrier(all, NULL));
    ls_group_close(&lost);
    ls_group_close(&some);
    ls_group_close(&all);
    return 0;
}

/* --- exits ----------------------------------------------------------------------------------------------------------- */

static int run_exits(void) {
    ls_group *group = open_group(0);
    check(ls_group_barrier(group, NULL));
    if (ls_group_rank(group) == 1) return 0;
    ls_group_close(&group);
    return 0;
}

/* --- hangs ----------------------------------------------------------------------------------------------------------- */

static int run_hangs(void) {
    ls_group *group = open_group(700);
    float data[10] = {0};
    check(ls_group_barrier(group, NULL));
    check(ls_group_broadcast(group, data, 3, LS_F32, 0, NULL));
    ls_status status = LS_OK;
    if (ls_group_rank(group) == 1)
        ls_sleep_until(ls_now_ns() + 2 * LS_NS_PER_S);
    else
        status = ls_group_all_reduce(group, data, 10, LS_F32, LS_SUM, NULL);
    printf("status %s\n", ls_status_name(status));
    ls_group_close(&group);
    return 0;
}

int main(int argc, char **argv) {
    ls_kill_at_point_from_environment();
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "rounds") == 0 && argc == 4) return run_rounds(atoi(argv[2]), atoi(argv[3]));
    if (strcmp(mode, "large") == 0) return run_large();
    if (strcmp(mode, "relatives") == 0) return run_relatives();
    if (strcmp(mode, "waits") == 0) return run_waits();
    if (strcmp(mode, "forks") == 0) return run_forks();
    if (strcmp(mode, "stops") == 0) return run_stops();
    if (strcmp(mode, "stops-in-one") == 0) return run_stops_in_one();
    if (strcmp(mode, "exits") == 0) return run_exits();
    if (strcmp(mode, "hangs") == 0) return run_hangs();
    fprintf(stderr, "unknown mode \"%s\"\n", mode);
    return 2;
}
