/* worker_soak.c: a rank of one round of the soak (worker_soak_rounds.c): worker_soak SEED STEPS LIMIT_MS FAULT RANK STEP
 *
 * All ranks derive the same program from the seed: two threads, each with groups of its own of every kind, post operations on
 * them, wait in an order of this rank's own, give up waiting and wait again, close groups and make them anew. Every result is
 * compared with what it has to be. At step STEP rank RANK does FAULT: "leave", "exit" (without a close), "abort" (from another
 * thread), or nothing, "none".
 *
 * A thread that fails says so, "error STATUS: SENTENCE", and aborts its groups with that sentence. Exit codes: 0, "done";
 * 3 after an error; 4 when a result is wrong. */
#include "base/thread.h"

#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/group.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUPS = 6, AT_ONCE = 4, MOST_COUNT = 20000, STEPS_OF_A_GROUP = 12 };
enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, MESSAGES, KINDS };

typedef struct move {
    int64_t *send, *receive;
    int kind, root;
    size_t count;
    uint64_t seed;
    ls_group *group;
    ls_work *works[2];
} move;

/* The first of `groups` is there from beginning to end, the others are made of it. */
typedef struct player {
    ls_group *groups[GROUPS];
    int64_t *memory;
    size_t memory_count;
    uint64_t seed;
    move moves[AT_ONCE];
    bool has_failed, has_left;
} player;

static struct {
    uint64_t seed;
    int steps, fault_rank, fault_step;
    const char *fault;
} plan;

static uint64_t mix(uint64_t x) {
    x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static int64_t value_of(uint64_t seed, int rank, size_t i) {
    return (int64_t)(mix(seed + (uint64_t)rank * 131 + i) >> 8);
}

static void wrong(const char *what, const move *at) {
    printf("wrong: %s, kind %d, %zu elements, rank %d of %d\n", what, at->kind, at->count, ls_group_rank(at->group),
           ls_group_world_size(at->group));
    fflush(stdout);
    _exit(4);
}

static bool went_well(player *self, ls_status status) {
    if (status == LS_OK) return true;
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", ls_last_error());
    printf("error %s: %s\n", ls_status_name(status), sentence);
    self->has_failed = true;
    for (int i = 0; i < GROUPS; i++)
        if (self->groups[i] && ls_group_is_member(self->groups[i])) ls_group_abort(self->groups[i], sentence);
    return false;
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

static ls_status post_messages(move *at, int rank, int world_size) {
    const int tag = (int)(at->seed % 5);
    const ls_status status =
        ls_group_send(at->group, at->send, at->count, LS_I64, (rank + 1) % world_size, tag, &at->works[0]);
    if (status != LS_OK) return status;
    return ls_group_receive(at->group, at->receive, at->count, LS_I64, (rank + world_size - 1) % world_size, tag, NULL,
                            &at->works[1]);
}

static ls_status post(move *at, int rank, int world_size) {
    switch (at->kind) {
    case ALL_REDUCE: return ls_group_all_reduce(at->group, at->receive, at->count, LS_I64, LS_SUM, &at->works[0]);
    case BROADCAST: return ls_group_broadcast(at->group, at->receive, at->count, LS_I64, at->root, &at->works[0]);
    case ALL_GATHER: return ls_group_all_gather(at->group, at->send, at->receive, at->count, LS_I64, &at->works[0]);
    case REDUCE_SCATTER:
        return ls_group_reduce_scatter(at->group, at->send, at->receive, at->count, LS_I64, LS_SUM, &at->works[0]);
    case ALL_TO_ALL: return ls_group_all_to_all(at->group, at->send, at->receive, at->count, LS_I64, &at->works[0]);
    case MESSAGES: return post_messages(at, rank, world_size);
    default: return ls_group_barrier(at->group, &at->works[0]);
    }
}

static bool post_move(player *self, uint64_t seed, move *at) {
    at->group = self->groups[mix(seed) % GROUPS];
    if (!ls_group_is_member(at->group)) return true;
    const int rank = ls_group_rank(at->group), world_size = ls_group_world_size(at->group);
    at->seed = seed;
    at->kind = (int)(mix(seed + 1) % KINDS);
    if (at->kind == MESSAGES && world_size == 1) at->kind = BARRIER;
    at->root = (int)(mix(seed + 2) % (uint64_t)world_size);
    at->count = mix(seed + 3) % 8 ? mix(seed + 4) % 200 : mix(seed + 4) % (MOST_COUNT / (size_t)world_size);
    for (size_t i = 0; i < at->count * (size_t)world_size; i++) at->send[i] = value_of(seed, rank, i);
    memcpy(at->receive, at->send, at->count * sizeof(int64_t));
    return went_well(self, post(at, rank, world_size));
}

static int64_t sum_of(const move *at, size_t i) {
    uint64_t sum = 0;
    for (int peer = 0; peer < ls_group_world_size(at->group); peer++) sum += (uint64_t)value_of(at->seed, peer, i);
    return (int64_t)sum;
}

static int64_t expected(const move *at, size_t i) {
    const int rank = ls_group_rank(at->group), world_size = ls_group_world_size(at->group);
    const size_t own = (size_t)rank * at->count;
    switch (at->kind) {
    case ALL_REDUCE: return sum_of(at, i);
    case BROADCAST: return value_of(at->seed, at->root, i);
    case ALL_GATHER: return value_of(at->seed, (int)(i / at->count), i % at->count);
    case REDUCE_SCATTER: return sum_of(at, own + i);
    case ALL_TO_ALL: return value_of(at->seed, (int)(i / at->count), own + i % at->count);
    default: return value_of(at->seed, (rank + world_size - 1) % world_size, i);
    }
}

static void check(const move *at) {
    size_t count = at->kind == BARRIER ? 0 : at->count;
    if (at->kind == ALL_GATHER || at->kind == ALL_TO_ALL) count *= (size_t)ls_group_world_size(at->group);
    for (size_t i = 0; i < count; i++)
        if (at->receive[i] != expected(at, i)) wrong("a result", at);
}

/* Every third wait gives up a few times first. */
static bool finish_move(player *self, move *at) {
    for (int i = 0; i < 2; i++) {
        if (!at->works[i]) continue;
        ls_status status = LS_ERR_TIMEOUT;
        for (int tries = 0; at->seed % 3 == 0 && tries < 3 && status == LS_ERR_TIMEOUT; tries++)
            status = ls_work_wait(at->works[i], 1);
        if (status == LS_ERR_TIMEOUT) status = ls_work_wait(at->works[i], 0);
        if (!went_well(self, status)) return false;
        ls_work_close(&at->works[i]);
        if (i == 1 || !at->works[1]) check(at);
    }
    return true;
}

/* --- groups and their memory ----------------------------------------------------------------------------------------- */

static bool make_groups(player *self, uint64_t seed) {
    ls_group **groups = self->groups;
    const int rank = ls_group_rank(groups[0]), world_size = ls_group_world_size(groups[0]);
    for (int i = 1; i < GROUPS; i++) ls_group_close(&groups[i]);
    ls_group_free(groups[0], self->memory);
    self->memory = NULL;
    const int first = (int)(mix(seed) % (uint64_t)world_size), colour = (int)(mix(seed + (uint64_t)rank) % 2);
    void *memory = NULL;
    self->memory_count = 1 + mix(seed + 9) % MOST_COUNT;
    if (!went_well(self, ls_group_alloc(groups[0], self->memory_count * sizeof(int64_t), &memory))) return false;
    self->memory = memory;
    return went_well(self, ls_group_duplicate(&groups[1], groups[0])) &&
           went_well(self, ls_group_split(&groups[2], groups[0], colour, -rank)) &&
           went_well(self, ls_group_subgroup(&groups[3], groups[0], (int[]){(first + 1) % world_size, first}, 2)) &&
           went_well(self, ls_group_duplicate(&groups[4], groups[0])) &&
           went_well(self, ls_group_round_robin(&groups[5], (ls_group *[]){groups[1], groups[4]}, 2));
}

static bool sum_in_memory(player *self, uint64_t seed) {
    move at = {.kind = ALL_REDUCE, .seed = seed, .count = self->memory_count, .group = self->groups[0]};
    at.receive = self->memory;
    for (size_t i = 0; i < at.count; i++) at.receive[i] = value_of(seed, ls_group_rank(at.group), i);
    if (!went_well(self, ls_group_all_reduce(at.group, at.receive, at.count, LS_I64, LS_SUM, NULL))) return false;
    check(&at);
    return true;
}

/* --- a thread -------------------------------------------------------------------------------------------------------- */

static void *abort_it(void *group) {
    ls_group_abort(group, "the soak's abort");
    return NULL;
}

/* Whether this rank leaves. */
static bool commit_fault(player *self, int step) {
    if (step != plan.fault_step || ls_group_rank(self->groups[0]) != plan.fault_rank) return false;
    if (strcmp(plan.fault, "abort") == 0) {
        pthread_t thread;
        for (int i = 0; i < GROUPS - 1; i++) {
            if (!ls_group_is_member(self->groups[i])) continue;
            if (pthread_create(&thread, NULL, abort_it, self->groups[i]) == 0) pthread_join(thread, NULL);
        }
    }
    self->has_left = strcmp(plan.fault, "leave") == 0 || strcmp(plan.fault, "exit") == 0;
    return self->has_left;
}

static bool take_step(player *self, int step) {
    const uint64_t seed = mix(self->seed + (uint64_t)step);
    if (step % STEPS_OF_A_GROUP == 0 && !make_groups(self, seed)) return false;
    for (int i = 0; i < AT_ONCE; i++)
        if (!post_move(self, seed + (uint64_t)i * 977, &self->moves[i])) return false;
    const int first = (int)(mix(seed + (uint64_t)ls_group_rank(self->groups[0])) % AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++)
        if (!finish_move(self, &self->moves[(first + i) % AT_ONCE])) return false;
    return step % 5 != 0 || sum_in_memory(self, seed);
}

static void play(void *argument) {
    player *self = argument;
    for (int i = 0; i < AT_ONCE; i++) {
        self->moves[i].send = malloc(MOST_COUNT * sizeof(int64_t));
        self->moves[i].receive = malloc(MOST_COUNT * sizeof(int64_t));
    }
    for (int step = 0; step < plan.steps && !commit_fault(self, step); step++)
        if (!take_step(self, step)) break;
}

/* Operations of a group that was lost may use their buffers until it is closed. */
static void end_player(player *self) {
    for (int i = GROUPS - 1; i >= 0; i--) ls_group_close(&self->groups[i]);
    for (int i = 0; i < AT_ONCE; i++) {
        for (int j = 0; j < 2; j++) ls_work_close(&self->moves[i].works[j]);
        free(self->moves[i].send);
        free(self->moves[i].receive);
    }
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    plan.seed = strtoull(argv[1], NULL, 10);
    plan.steps = atoi(argv[2]);
    plan.fault = argv[4];
    plan.fault_rank = atoi(argv[5]);
    plan.fault_step = atoi(argv[6]);
    static player players[2]; /* static: what "exit" leaves is no leak */
    ls_thread thread = {0};
    ls_group *group = NULL;
    bool is_well = went_well(&players[0], ls_group_open(&group, &(ls_group_options){.timeout_ms = atoi(argv[3])}));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < 2 && is_well; i++) {
        players[i].seed = mix(plan.seed + (uint64_t)i);
        is_well = went_well(&players[0], ls_group_duplicate(&players[i].groups[0], group));
    }
    if (is_well && ls_thread_start(&thread, "player", play, &players[1]) == LS_OK) {
        play(&players[0]);
        ls_thread_join(&thread);
    }
    if (players[0].has_left && strcmp(plan.fault, "exit") == 0) return 0;
    for (int i = 0; i < 2; i++) end_player(&players[i]);
    ls_group_close(&group);
    if (!is_well || players[0].has_failed || players[1].has_failed) return 3;
    puts("done");
    return 0;
}
