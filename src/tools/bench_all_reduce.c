/* bench_all_reduce.c: `lockstep bench all-reduce`: lets the library, its yardstick and its peers run in turn, round by
 * round, and shows their times side by side. A ratio is of one round: what disturbs a while disturbs both sides of it.
 * The median of the rounds' ratios is what is shown. */
#include "tools/bench.h"

#include "launch/cores.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: lockstep bench all-reduce [OPTIONS]\n"
    "\n"
    "Measures all-reduces of f32 sums between ranks of this host, beside what is reachable (data and flags in shared\n"
    "memory and nothing else) and beside the peers that `make bench-peers` has installed.\n"
    "\n"
    "  -n, --ranks N           how many ranks (default: 2)\n"
    "      --least-bytes N     from this size (default: 4)\n"
    "      --most-bytes N      up to this size (default: 104857600)\n"
    "      --rounds N          how many rounds each contender has at each size (default: 20)\n"
    "      --peers DIR|none    where the peers are (default: build-peers beside the build folder)\n"
    "      --json              a JSON object a line; else a table\n"
    "  -h, --help              this text\n"
    "\n"
    "Times are microseconds of one call on rank 0: the median over rounds of each round's median. \"fresh\": each "
    "rank\n"
    "has just written its whole buffer. \"overlap\": posted, computed twice as long as a blocking call takes (20 us "
    "at\n"
    "least), waited for; the computing is taken off. \"asleep\": the same, but asleep in place of computing, for 1 ms "
    "at\n"
    "least, as a rank is whose device computes. Ratios are to what is named, the medians of the rounds' ratios; to "
    "what\n"
    "is reachable only where each rank has a processor.\n";

/* From one number to where no cache helps; between them each region of the curve has its points. */
static const size_t sizes[] = {4,        64,        256,     1 << 10, 4 << 10,  16 << 10,
                               64 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20};

#define MOST_ROUNDS 200
/* How long one round of a contender takes about. */
#define ROUND_US 3000
#define MOST_OPERATIONS 1000
/* Below, what a round begins with would be all that it measures: caches that others filled, ranks that are not yet
 * awake. */
#define LEAST_OPERATIONS 10
#define LEAST_LARGE_OPERATIONS 3 /* from 1 MiB on */

typedef struct contender {
    bench_job *job;
    const char *impl, *memory, *mode, *way;
    double rounds_us[MOST_ROUNDS]; /* 0: it failed */
    double median_us, best_us;
} contender;

/* Indices of list_contenders' table, which begins with the ways on memory of the group, then those on ordinary memory; the first of
 * each is the blocking one. */
#define WAYS_OF_MEMORY 4
#define IN_PLACE 8
#define ONE_PHASE 9
#define LIBRARY_WAYS 10

typedef struct sitting {
    bench_job jobs[BENCH_MOST_JOBS];
    contender contenders[LIBRARY_WAYS + BENCH_MOST_JOBS];
    int job_count, contender_count, ranks, rounds;
    bool is_json, shares_processors;
} sitting;

static void list_contenders(sitting *bench) {
    static const char *const ways[LIBRARY_WAYS][4] = {{"lockstep-shm", "group", "blocking", "group"},
                                                      {"lockstep-shm", "group", "async", "group-async"},
                                                      {"lockstep-shm", "group", "overlap", "group-overlap"},
                                                      {"lockstep-shm", "group", "asleep", "group-asleep"},
                                                      {"lockstep-shm", "ordinary", "blocking", "ordinary"},
                                                      {"lockstep-shm", "ordinary", "async", "ordinary-async"},
                                                      {"lockstep-shm", "ordinary", "overlap", "ordinary-overlap"},
                                                      {"lockstep-shm", "ordinary", "asleep", "ordinary-asleep"},
                                                      {"reachable", "group", "blocking", "in-place"},
                                                      {"reachable", "group", "blocking", "one-phase"}};
    for (int i = 0; i < LIBRARY_WAYS; i++)
        /* All of them are one job: the library's ranks take each way in turn, on the same memory. */
        bench->contenders[i] = (contender){
            .job = &bench->jobs[0], .impl = ways[i][0], .memory = ways[i][1], .mode = ways[i][2], .way = ways[i][3]};
    for (int i = 1; i < bench->job_count; i++)
        bench->contenders[LIBRARY_WAYS + i - 1] = (contender){
            .job = &bench->jobs[i], .impl = bench->jobs[i].impl, .memory = "ordinary", .mode = "blocking", .way = "-"};
    bench->contender_count = LIBRARY_WAYS + bench->job_count - 1;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the values that there are: those above 0. */
static double median_of(const double *values, int count) {
    double sorted[MOST_ROUNDS];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (values[i] > 0) sorted[used++] = values[i];
    /* A contender that failed in every round has no median, and is not shown. */
    if (!used) return 0;
    qsort(sorted, (size_t)used, sizeof *sorted, by_value);
    return sorted[used / 2];
}

/* Of one round each: a ratio of two medians would compare moments that have nothing to do with each other. */
static double paired_ratio(const sitting *bench, const contender *one, const contender *other) {
    double ratios[MOST_ROUNDS] = {0};
    for (int round = 0; round < bench->rounds; round++)
        if (other->rounds_us[round] > 0) ratios[round] = one->rounds_us[round] / other->rounds_us[round];
    return median_of(ratios, bench->rounds);
}

/* As many operations as fill a round, from what one took in the round before. */
static int operations_for(const contender *one, int round, size_t bytes, bool is_fresh) {
    /* A round is short at every size: with twenty of each contender what drifts is spread over all. Guesses for the
     * first round: 20 us a call and 2 GB/s; 8 GB/s where the rank writes its buffer before. */
    const double guess_us = 20 + (double)bytes / 2000, written_us = is_fresh ? (double)bytes / 8000 : 0;
    const double one_us = (round && one->rounds_us[round - 1] > 0 ? one->rounds_us[round - 1] : guess_us) + written_us;
    /* The small number: a call that seemed to take nothing must not ask for operations without end. */
    const double count = ROUND_US / (one_us + 0.05);
    /* At 1 ms or more each: that a rank sleeps is seen after some 5 ms. */
    if (strcmp(one->mode, "asleep") == 0) return bytes < (4 << 20) ? 3 * LEAST_OPERATIONS : LEAST_OPERATIONS;
    const int least = bytes < (1 << 20) ? LEAST_OPERATIONS : LEAST_LARGE_OPERATIONS;
    return count < least ? least : count > MOST_OPERATIONS ? MOST_OPERATIONS : (int)count;
}

/* How long a way computes, or sleeps, between posting and waiting: twice the blocking call of this round, which is enough to hide
 * all of it, and of the same moment. */
static double pause_of(const sitting *bench, int index, int round) {
    const char *mode = bench->contenders[index].mode;
    const bool sleeps = strcmp(mode, "asleep") == 0;
    if (!sleeps && strcmp(mode, "overlap") != 0) return 0;
    const double twice_us = 2 * bench->contenders[index / WAYS_OF_MEMORY * WAYS_OF_MEMORY].rounds_us[round];
    /* Asleep so long that who is asleep is told from who waits a little. */
    const double least_us = sleeps ? 1000 : 20;
    return twice_us > least_us ? twice_us : least_us;
}

/* One round of a contender; those that overlap come after the blocking calls on the same memory. */
static void run_round(sitting *bench, int index, int round, size_t bytes, bool is_fresh) {
    contender *one = &bench->contenders[index];
    const double pause_us = pause_of(bench, index, round);
    bench_job_round measured = {.way = one->way,
                                .bytes = bytes,
                                .is_fresh = is_fresh,
                                .operations = operations_for(one, round, bytes, is_fresh),
                                .pause_us = pause_us};
    one->rounds_us[round] = 0;
    /* The prototype has slots of that size, and loses long before. */
    if (index == ONE_PHASE && bytes > BENCH_ONE_PHASE_BYTES) return;
    /* The yardstick only spins, and computing takes a processor: where ranks share them, neither says anything. */
    if (bench->shares_processors && (index == IN_PLACE || index == ONE_PHASE || pause_us > 0)) return;
    if (!bench_job_run(one->job, &measured)) return;
    /* A clock's step at the least, so that it is a value. */
    const double us = measured.median_us - pause_us, best_us = measured.best_us - pause_us;
    one->rounds_us[round] = us > 0.001 ? us : 0.001;
    if (best_us < one->best_us) one->best_us = best_us;
}

static void measure(sitting *bench, size_t bytes, bool is_fresh) {
    for (int i = 0; i < bench->contender_count; i++) bench->contenders[i].best_us = 1e30;
    for (int round = 0; round < bench->rounds; round++)
        /* One round each, then the next: a minute in which the machine is slower is everybody's. */
        for (int i = 0; i < bench->contender_count; i++) run_round(bench, i, round, bytes, is_fresh);
    for (int i = 0; i < bench->contender_count; i++)
        bench->contenders[i].median_us = median_of(bench->contenders[i].rounds_us, bench->rounds);
}

/* Of the yardstick's two prototypes, the better one. What a better program could do at this size on this machine:
 * the lower of two bounds that were both built. */
static const contender *find_reachable(const sitting *bench) {
    const contender *in_place = &bench->contenders[IN_PLACE], *one_phase = &bench->contenders[ONE_PHASE];
    return one_phase->median_us > 0 && one_phase->median_us < in_place->median_us ? one_phase : in_place;
}

/* --- what is shown ------------------------------------------------------------------------------------------------ */

static void add_ratio(const sitting *bench, const contender *one, const contender *other, const char *name, char *text,
                      size_t bytes) {
    const size_t used = strlen(text);
    if (used >= bytes || other == one || other->median_us <= 0) return;
    snprintf(text + used, bytes - used, bench->is_json ? "%s\"%s\":%.3f" : "%s%s %.2f",
             !used            ? ""
             : bench->is_json ? ","
                              : ", ",
             name, paired_ratio(bench, one, other));
}

/* The library's ways are compared with everything else, an asynchronous one with its blocking one too. */
static void write_ratios(const sitting *bench, int index, char *text, size_t bytes) {
    const contender *one = &bench->contenders[index];
    text[0] = '\0';
    if (one->job != &bench->jobs[0] || index >= IN_PLACE) return;
    add_ratio(bench, one, find_reachable(bench), "reachable", text, bytes);
    if (index % WAYS_OF_MEMORY)
        add_ratio(bench, one, &bench->contenders[index / WAYS_OF_MEMORY * WAYS_OF_MEMORY], "blocking", text, bytes);
    for (int i = LIBRARY_WAYS; i < bench->contender_count; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s %s", bench->contenders[i].impl, bench->contenders[i].job->version);
        add_ratio(bench, one, &bench->contenders[i], name, text, bytes);
    }
}

static void show(const sitting *bench, int index, size_t bytes, bool is_fresh) {
    const contender *one = &bench->contenders[index];
    char ratios[1024];
    if (one->median_us <= 0 || (index >= IN_PLACE && index < LIBRARY_WAYS && one != find_reachable(bench))) return;
    write_ratios(bench, index, ratios, sizeof ratios);
    const char *pattern = is_fresh ? "fresh" : "repeat";
    if (bench->is_json)
        printf("{\"bench\":\"all-reduce\",\"impl\":\"%s\",\"version\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"memory\":"
               "\"%s\",\"mode\":\"%s\",\"pattern\":\"%s\",\"median_us\":%.3f,\"best_us\":%.3f,\"ratios\":{%s}}\n",
               one->impl, one->job->version, bench->ranks, bytes, one->memory, one->mode, pattern, one->median_us,
               one->best_us, ratios);
    else
        printf("%-13s %-8s %9zu  %-8s %-8s %-6s %11.2f %11.2f  %s\n", one->impl, one->job->version, bytes, one->memory,
               one->mode, pattern, one->median_us, one->best_us, ratios);
    fflush(stdout);
}

static void run_sizes(sitting *bench, size_t least_bytes, size_t most_bytes) {
    list_contenders(bench);
    if (!bench->is_json)
        printf("%-13s %-8s %9s  %-8s %-8s %-6s %11s %11s  %s\n", "impl", "version", "bytes", "memory", "mode", "data",
               "median us", "best us", "ratios");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        /* From small to large: the first lines come soon, and tell whether the run is worth waiting for. */
        if (sizes[i] < least_bytes || sizes[i] > most_bytes) continue;
        for (int is_fresh = 0; is_fresh < 2; is_fresh++) {
            measure(bench, sizes[i], is_fresh);
            for (int index = 0; index < bench->contender_count; index++) show(bench, index, sizes[i], is_fresh);
        }
    }
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int refuse(const char *what, const char *value) {
    fprintf(stderr, "lockstep bench: %s \"%s\"\n\n%s", what, value, usage);
    return 2;
}

static bool read_count(const char *text, long long least, long long most, long long *count) {
    char *end = NULL;
    errno = 0;
    *count = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *count >= least && *count <= most;
}

/* Beside the build folder in which this program lies. */
static void find_peers(char *folder, size_t bytes) {
    char own[4096];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    /* Off go the program's name, the folder it is in, and the build folder's name. */
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(own, '/');
        if (slash) *slash = '\0';
    }
    snprintf(folder, bytes, "%s/build-peers", own);
}

int bench_all_reduce_main(int argc, char **argv) {
    static const struct option known[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"least-bytes", required_argument, NULL, 'l'},
                                          {"most-bytes", required_argument, NULL, 'm'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"peers", required_argument, NULL, 'p'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    long long ranks = 2, least = 4, most = 100 << 20, rounds = 20;
    char peers[4200];
    /* Too large for a stack. */
    static sitting bench;
    int option;
    find_peers(peers, sizeof peers);
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (option) {
        case 'n':
            if (!read_count(optarg, 2, BENCH_MOST_RANKS, &ranks)) return refuse("--ranks wants 2 to 64, not", optarg);
            break;
        case 'l':
            if (!read_count(optarg, 1, (long long)1 << 32, &least))
                return refuse("--least-bytes wants 1 or more, not", optarg);
            break;
        case 'm':
            if (!read_count(optarg, 4, (long long)1 << 32, &most))
                return refuse("--most-bytes wants 4 or more, not", optarg);
            break;
        case 'r':
            if (!read_count(optarg, 1, MOST_ROUNDS, &rounds)) return refuse("--rounds wants 1 to 200, not", optarg);
            break;
        case 'p': snprintf(peers, sizeof peers, "%s", optarg); break;
        case 'j': bench.is_json = true; break;
        case 'h': fputs(usage, stdout); return 0;
        case ':': return refuse("a value is missing after", argv[optind - 1]);
        default: return refuse("unknown option", argv[optind - 1]);
        }
    }
    if (optind < argc) return refuse("unknown argument", argv[optind]);
    bench.ranks = (int)ranks;
    bench.rounds = (int)rounds;
    bench.shares_processors = (int)ranks > launch_cores();
    bench.job_count = bench_jobs_start(bench.jobs, (int)ranks, (size_t)most, strcmp(peers, "none") == 0 ? NULL : peers);
    if (bench.job_count) run_sizes(&bench, (size_t)least, (size_t)most);
    const bool is_done = bench.job_count && bench.jobs[0].is_ready;
    bench_jobs_end(bench.jobs, bench.job_count);
    return is_done ? 0 : 1;
}
