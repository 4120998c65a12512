/* bench_startup.c: `lockstep bench startup`: from the launch of a job to its ranks' first barrier, beside the MPIs
 * that are there. All take turns, round by round, so that a busy moment of the machine hits all alike. */
#include "tools/bench.h"

#include "launch/launch.h"

#include "base/clock.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_COUNTS = 16, MOST_ROUNDS = 100, LIMIT_S = 60 };

static const char usage[] = "Usage: lockstep bench startup [--ranks N,N,...] [--rounds N] [--json]\n"
                            "\n"
                            "Measures how long a job on this host takes from its launch to its ranks' first barrier, "
                            "and to its end, beside Open\n"
                            "MPI and MPICH where they are installed; \"no-meeting\" is the same without a meeting, "
                            "until the last rank runs.\n"
                            "\n"
                            "  -n, --ranks N,N,...  how many ranks (default: 2,8,32,128)\n"
                            "      --rounds N       how often each is started, in turn (default: 5)\n"
                            "      --json           a JSON object a line; else a table\n"
                            "  -h, --help           this text\n"
                            "\n"
                            "Times are milliseconds, medians over rounds.\n";

/* Who starts ranks. All programs print "met <when>", on the clock that all processes of a host share; the last
 * counts. */
typedef struct starter {
    const char *impl;
    const char *worker;  /* of ourselves */
    const char *program; /* beside the command's folder; NULL: ourselves */
    const char *command; /* its launcher */
} starter;

static const starter starters[] = {
    {.impl = "lockstep", .worker = "meet"},
    {.impl = "no-meeting", .worker = "run"},
    {.impl = "open-mpi", .program = "../bench-openmpi/mpi_startup", .command = "mpirun.openmpi"},
    {.impl = "mpich", .program = "../bench-mpich/mpi_startup", .command = "mpiexec.hydra"},
};

enum { STARTERS = sizeof starters / sizeof starters[0] };

/* What one start came to; 0: it did not. */
typedef struct moments {
    double met_ms, whole_ms;
} moments;

/* --- one start ---------------------------------------------------------------------------------------------------- */

int bench_startup_worker(int argc, char **argv) {
    const bool meets = argc > 1 && strcmp(argv[1], "meet") == 0;
    ls_group *group = NULL;
    ls_status status = meets ? ls_group_open(&group, NULL) : LS_OK;
    if (meets && status == LS_OK) status = ls_group_barrier(group, NULL);
    if (status != LS_OK)
        fprintf(stderr, "lockstep bench: %s\n", ls_last_error());
    else if (!meets || ls_group_rank(group) == 0)
        /* Rank 0's moment is all ranks': it is through the barrier when the last one has come. */
        printf("met %" PRId64 "\n", ls_now_ns());
    ls_group_close(&group);
    return status != LS_OK;
}

static void note_line(const char *line, int64_t *met_ns) {
    int64_t when = 0;
    /* Launchers say things of their own on the same stream. */
    if (sscanf(line, "met %" SCNd64, &when) == 1) /* The last rank's moment is the job's. */
        *met_ns = when > *met_ns ? when : *met_ns;
    else
        fprintf(stderr, "%s\n", line);
}

static void line_of_rank(void *context, int rank, bool is_error, const char *text, size_t bytes, bool is_whole) {
    (void)rank;
    (void)is_error;
    (void)is_whole;
    char line[512];
    /* Lines of the launcher's observer end with no NUL. */
    snprintf(line, sizeof line, "%.*s", (int)bytes, text);
    note_line(line, context);
}

/* The folder of this command, and `name` behind it. */
static bool find_beside(const char *name, char *path, size_t bytes) {
    char own[4096];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0) return false;
    own[length] = '\0';
    char *end = strrchr(own, '/');
    if (!end) return false;
    *end = '\0';
    return (size_t)snprintf(path, bytes, "%s/%s", own, name) < bytes && access(path, X_OK) == 0;
}

static bool start_own(const starter *by, int ranks, int64_t *met_ns) {
    char path[4200] = "";
    if (!find_beside("lockstep", path, sizeof path)) return false;
    char *program[] = {path, "bench", "startup-worker", (char *)by->worker, NULL};
    const launch_options options = {
        .ranks = ranks, .program = program, .observer = {.context = met_ns, .line = line_of_rank}};
    launch_result result = {.exit_code = 1};
    /* In this process, as `lockstep run` would: a command between would be measured as well. */
    if (launch_run(&options, &result) != LS_OK) fprintf(stderr, "lockstep bench: %s\n", ls_last_error());
    return result.exit_code == 0;
}

static bool start_other(const starter *by, int ranks, int64_t *met_ns) {
    char path[4200] = "", command[5000], line[512];
    if (!find_beside(by->program, path, sizeof path)) return false;
    /* With a limit: an MPI that cannot start so many ranks may wait for ever. */
    snprintf(command, sizeof command, "exec timeout %d %s -n %d '%s'", LIMIT_S, by->command, ranks, path);
    /* Read to its end before the clock stops: an MPI's launcher outlives its ranks by a while. */
    FILE *stream = popen(command, "r");
    while (stream && fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        note_line(line, met_ns);
    }
    return stream && pclose(stream) == 0;
}

static moments start(const starter *by, int ranks) {
    int64_t met_ns = 0;
    /* The clock is CLOCK_MONOTONIC: one for all processes of a host, so that a rank's moment can be set against
     * ours. */
    const int64_t start_ns = ls_now_ns();
    const bool is_well = by->program ? start_other(by, ranks, &met_ns) : start_own(by, ranks, &met_ns);
    /* A start that failed is no measurement, however long it took. */
    if (!is_well || met_ns == 0) return (moments){0};
    return (moments){.met_ms = (double)(met_ns - start_ns) / (double)LS_NS_PER_MS,
                     .whole_ms = (double)(ls_now_ns() - start_ns) / (double)LS_NS_PER_MS};
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static bool is_installed(const starter *by) {
    char path[4200] = "", command[128];
    /* Our own launcher is this program. */
    if (!by->program) return true;
    snprintf(command, sizeof command, "command -v %s > /dev/null", by->command);
    return find_beside(by->program, path, sizeof path) && system(command) == 0;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *impl, int ranks, double *met_ms, double *whole_ms, int rounds, bool is_json) {
    /* Medians: one start that the machine disturbed does not count. */
    qsort(met_ms, (size_t)rounds, sizeof *met_ms, by_value);
    qsort(whole_ms, (size_t)rounds, sizeof *whole_ms, by_value);
    const double met = met_ms[rounds / 2], whole = whole_ms[rounds / 2];
    if (is_json)
        printf("{\"bench\":\"startup\",\"impl\":\"%s\",\"ranks\":%d,\"rounds\":%d,\"median_ms\":%.3f,\"best_ms\":%.3f,"
               "\"whole_ms\":%.3f}\n",
               impl, ranks, rounds, met, met_ms[0], whole);
    else
        printf("%-10s %6d %12.1f %10.1f %10.1f\n", impl, ranks, met, met_ms[0], whole);
    fflush(stdout);
}

/* Whether ours, the first, came through: what others cannot do here is said and left out. */
static bool measure(int ranks, int rounds, bool is_json) {
    static double met_ms[STARTERS][MOST_ROUNDS], whole_ms[STARTERS][MOST_ROUNDS];
    bool takes_part[STARTERS];
    for (size_t i = 0; i < STARTERS; i++) takes_part[i] = is_installed(&starters[i]);
    /* Round by round, not impl by impl: what drifts in the machine meets all. */
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < STARTERS; i++) {
            if (!takes_part[i]) continue;
            const moments took = start(&starters[i], ranks);
            met_ms[i][round] = took.met_ms;
            whole_ms[i][round] = took.whole_ms;
            /* Once it has failed it is left out: a start may take a minute to fail. */
            takes_part[i] = took.met_ms > 0;
            if (!takes_part[i])
                fprintf(stderr, "lockstep bench: %s does not start %d ranks here\n", starters[i].impl, ranks);
        }
    for (size_t i = 0; i < STARTERS; i++)
        if (takes_part[i]) show(starters[i].impl, ranks, met_ms[i], whole_ms[i], rounds, is_json);
    /* Others may be missing or fail: only ours decides how the command ends. */
    return takes_part[0];
}

static int refuse(const char *what, const char *value) {
    fprintf(stderr, "lockstep bench: %s \"%s\"\n\n%s", what, value, usage);
    return 2;
}

/* "2,8,32": how many there are; 0: it is no such list. */
static int read_counts(const char *text, long least, long most, int counts[MOST_COUNTS]) {
    int count = 0;
    for (const char *at = text; count < MOST_COUNTS;) {
        char *end = NULL;
        errno = 0;
        /* Each number by itself: "2,,8" and "2x" are refused, not read as far as they go. */
        const long value = strtol(at, &end, 10);
        if (errno || end == at || value < least || value > most) return 0;
        counts[count++] = (int)value;
        if (!*end) return count;
        if (*end != ',') return 0;
        at = end + 1;
    }
    return 0;
}

int bench_startup_main(int argc, char **argv) {
    static const struct option known[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int ranks[MOST_COUNTS] = {2, 8, 32, 128}, count = 4, rounds[MOST_COUNTS] = {5}, option;
    bool is_json = false;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (option) {
        case 'n':
            count = read_counts(optarg, 1, LAUNCH_MOST_RANKS, ranks);
            if (count == 0) return refuse("--ranks wants numbers with commas between them, not", optarg);
            break;
        case 'r':
            if (read_counts(optarg, 1, MOST_ROUNDS, rounds) != 1) return refuse("--rounds wants 1 to 100, not", optarg);
            break;
        case 'j': is_json = true; break;
        case 'h': fputs(usage, stdout); return 0;
        case ':': return refuse("a value is missing after", argv[optind - 1]);
        default: return refuse("unknown option", argv[optind - 1]);
        }
    }
    if (optind < argc) return refuse("unknown argument", argv[optind]);
    /* As root, and with more ranks than processors, Open MPI wants to be told so. */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    if (!is_json) printf("%-10s %6s %12s %10s %10s\n", "impl", "ranks", "barrier ms", "best ms", "end ms");
    fflush(stdout);
    int code = 0;
    for (int i = 0; i < count; i++) code = measure(ranks[i], rounds[0], is_json) ? code : 1;
    return code;
}
