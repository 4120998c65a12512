/* faults.c: the hooks behind base/fault.h.
 *
 * State is global, as are the hooks; counters are atomic, since ranks are threads in many tests. What is armed changes
 * only while the library's threads are quiet, by the test's own thread.                                              */
#include "support/faults.h"

#include "base/context.h"
#include "base/memory.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- failing the n-th call ---------------------------------------------------------------------------------------- */

static _Atomic int armed_kinds; /* 0: nothing fails */
static _Atomic int calls_until; /* the call that brings it to 0 fails */
static _Atomic bool met;
static int run_number; /* this run fails call number run_number; 0 before the first */
static int wanted_kinds;

static bool should_fail(ls_fault_kind kind) {
    if (!(atomic_load(&armed_kinds) & (int)kind)) return false;
    if (atomic_fetch_sub(&calls_until, 1) != 1) return false;
    atomic_store(&met, true);
    return true;
}

/* --- named points ------------------------------------------------------------------------------------------------- */

#define MOST_POINTS 256

typedef struct point_record {
    _Atomic(const char *) name; /* as passed to ls_point: literals, compared as texts since each file has its own */
    _Atomic int hits;
} point_record;

static point_record points[MOST_POINTS];
static _Atomic bool is_watching;

/* The one action at a point; `name` is written last when armed and first when disarmed. */
static struct {
    _Atomic(const char *) name;
    int rank;
    int count; /* 0: at every hit */
    _Atomic int hits_left;
    void (*action)(void *argument);
    void *argument;
} at_point;

static int this_rank(void) {
    const int rank = ls_context_here()->rank;
    if (rank >= 0) return rank;
    const char *text = getenv("RANK"); /* before a group is open */
    if (!text) text = getenv("SLURM_PROCID");
    return text ? atoi(text) : -1;
}

static void count_hit(const char *name) {
    for (int i = 0; i < MOST_POINTS; i++) {
        const char *known = atomic_load(&points[i].name);
        /* Claim a free place; another thread may be faster, perhaps with the same name. */
        if (!known && atomic_compare_exchange_strong(&points[i].name, &known, name)) known = name;
        if (strcmp(known, name) != 0) continue;
        atomic_fetch_add(&points[i].hits, 1);
        return;
    }
}

static void reached(const char *point) {
    if (atomic_load(&is_watching)) count_hit(point);
    const char *name = atomic_load(&at_point.name);
    if (!name || strcmp(name, point) != 0 || this_rank() != at_point.rank) return;
    if (at_point.count == 0 || atomic_fetch_sub(&at_point.hits_left, 1) == 1) at_point.action(at_point.argument);
}

static void install(void) {
    static const ls_fault_hooks hooks = {.should_fail = should_fail, .reached = reached};
    if (!ls_fault_hooks_installed) ls_fault_hooks_installed = &hooks;
}

void ls_points_watch(void) {
    install();
    for (int i = 0; i < MOST_POINTS; i++) atomic_store(&points[i].hits, 0);
    atomic_store(&is_watching, true);
}

int ls_point_hits(const char *point) {
    for (int i = 0; i < MOST_POINTS; i++) {
        const char *name = atomic_load(&points[i].name);
        if (name && strcmp(name, point) == 0) return atomic_load(&points[i].hits);
    }
    return 0;
}

void ls_at_point(const char *point, int rank, int count, void (*action)(void *argument), void *argument) {
    install();
    atomic_store(&at_point.name, NULL);
    at_point.rank = rank;
    at_point.count = count;
    at_point.action = action;
    at_point.argument = argument;
    atomic_store(&at_point.hits_left, count);
    atomic_store(&at_point.name, point);
}

static void signal_oneself(void *signal) {
    raise(*(const int *)signal);
}

void ls_kill_at_point_from_environment(void) {
    const char *wish = getenv("LOCKSTEP_TEST_KILL");
    if (!wish) return;
    static char point[128];
    static int signal = SIGKILL;
    int rank = -1, count = 1;
    if (sscanf(wish, "%127[^:]:%d:%d:%d", point, &rank, &count, &signal) < 2) {
        fprintf(stderr, "LOCKSTEP_TEST_KILL is \"%s\": expected point:rank:count:signal\n", wish);
        exit(2);
    }
    ls_at_point(point, rank, count, signal_oneself, &signal);
}

/* --- what is left ------------------------------------------------------------------------------------------------- */

typedef struct inventory {
    int descriptors;
    int segments; /* mapped memfd segments of the library */
    int threads;
    uint64_t blocks;
} inventory;

static inventory baseline;

int ls_count_entries(const char *folder) {
    DIR *entries = opendir(folder);
    if (!entries) return -1;
    int count = 0;
    while (readdir(entries)) count++;
    closedir(entries);
    return count;
}

int ls_count_sockets(void) {
    int count = 0;
    for (int i = 0; i < 256; i++) {
        char path[64], target[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        const ssize_t length = readlink(path, target, sizeof target);
        count += length > 7 && memcmp(target, "socket:", 7) == 0;
    }
    return count;
}

static int count_segments(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) return -1;
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, maps)) count += strstr(line, "memfd:lockstep") != NULL;
    fclose(maps);
    return count;
}

static inventory take_inventory(void) {
    return (inventory){.descriptors = ls_count_entries("/proc/self/fd"),
                       .segments = count_segments(),
                       .threads = ls_count_entries("/proc/self/task"),
                       .blocks = ls_alloc_live()};
}

void ls_note_what_is_there(void) {
    install();
    baseline = take_inventory();
}

static void list_descriptors(void) {
    for (int descriptor = 0; descriptor < 1024; descriptor++) {
        char link[64], target[256];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        const ssize_t length = readlink(link, target, sizeof target - 1);
        if (length > 0) print_error("  descriptor %d: %.*s\n", descriptor, (int)length, target);
    }
}

void ls_assert_nothing_left(const char *file, int line) {
    ls_fault_disarm();
    inventory now = take_inventory();
    /* A joined thread stays listed for a moment. */
    for (int tries = 0; tries < 200 && now.threads > baseline.threads; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        now = take_inventory();
    }
    if (now.descriptors <= baseline.descriptors && now.segments <= baseline.segments &&
        now.threads <= baseline.threads && now.blocks <= baseline.blocks)
        return;
    print_error("left behind: %d descriptors, %d mapped segments, %d threads, %lld blocks\n",
                now.descriptors - baseline.descriptors, now.segments - baseline.segments,
                now.threads - baseline.threads, (long long)(now.blocks - baseline.blocks));
    if (now.descriptors > baseline.descriptors) list_descriptors();
    _fail(file, line);
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

void ls_fault_first(int kinds) {
    ls_note_what_is_there();
    wanted_kinds = kinds;
    run_number = 0;
    atomic_store(&met, false);
}

bool ls_fault_next(const char *file, int line) {
    ls_fault_disarm();
    if (run_number > 0 && !atomic_load(&met)) return false;
    if (++run_number > 100000) {
        print_error("the library meets more than 100000 calls that may fail: the loop does not end\n");
        _fail(file, line);
    }
    atomic_store(&met, false);
    atomic_store(&calls_until, run_number);
    atomic_store(&armed_kinds, wanted_kinds);
    return true;
}

bool ls_fault_was_met(void) {
    return atomic_load(&met);
}

void ls_fault_disarm(void) {
    atomic_store(&armed_kinds, 0);
}

void ls_assert_fault_reported(ls_status status, const char *file, int line) {
    if (status < 0 && ls_last_error()[0]) return;
    print_error("fault at call %d was not reported: status %s, sentence \"%s\"\n", run_number, ls_status_name(status),
                ls_last_error());
    _fail(file, line);
}
