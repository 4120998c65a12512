/* bench_all_reduce.c: `lockstep bench all-reduce`: starts the ranks that measure, then Open MPI's program where there is one,
 * and shows what they print: as JSON lines, or as a table. */
#include "tools/bench.h"

#include "launch/launch.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: lockstep bench all-reduce [--ranks N] [--most-bytes N] [--json]\n"
    "\n"
    "Measures all-reduces of f32 sums between ranks of this host, from 4 bytes on, beside what is reachable (data and\n"
    "flags in shared memory and nothing else, in the same processes in turn) and beside Open MPI where it is "
    "installed.\n"
    "\n"
    "  -n, --ranks N        how many ranks (default: 2)\n"
    "      --most-bytes N   up to this size (default: 104857600)\n"
    "      --json           a JSON object a line; else a table\n"
    "  -h, --help           this text\n"
    "\n"
    "Times are microseconds of one call on rank 0: the median over rounds of each round's median. \"fresh\": each rank "
    "has\n"
    "just written its whole buffer. \"ratio\": to what is reachable, the median of the rounds' ratios.\n";

void bench_print(const bench_record *record) {
    printf("{\"bench\":\"all-reduce\",\"impl\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"memory\":\"%s\",\"mode\":\"%s\","
           "\"pattern\":\"%s\",\"median_us\":%.3f,\"best_us\":%.3f,\"ratio\":%.3f}\n",
           record->impl, record->ranks, record->bytes, record->memory, record->mode, record->pattern, record->median_us,
           record->best_us, record->ratio);
    fflush(stdout);
}

bool bench_parse(const char *line, bench_record *record) {
    return sscanf(line,
                  "{\"bench\":\"all-reduce\",\"impl\":\"%23[^\"]\",\"ranks\":%d,\"bytes\":%zu,\"memory\":\"%11[^\"]\","
                  "\"mode\":\"%11[^\"]\",\"pattern\":\"%11[^\"]\",\"median_us\":%lf,\"best_us\":%lf,\"ratio\":%lf}",
                  record->impl, &record->ranks, &record->bytes, record->memory, record->mode, record->pattern,
                  &record->median_us, &record->best_us, &record->ratio) == 9;
}

/* A line of a rank or of mpirun: shown as it is, or as a row. */
static void show(const char *line, bool is_json) {
    bench_record record;
    if (is_json || !bench_parse(line, &record)) {
        printf("%s\n", line);
    } else {
        char ratio[16] = "";
        if (record.ratio > 0) snprintf(ratio, sizeof ratio, "%.2f", record.ratio);
        printf("%-13s %9zu  %-8s %-8s %-6s %11.2f %11.2f %6s\n", record.impl, record.bytes, record.memory, record.mode,
               record.pattern, record.median_us, record.best_us, ratio);
    }
    fflush(stdout);
}

static void line_of_rank(void *context, int rank, bool is_error, const char *text, size_t bytes, bool is_whole) {
    (void)is_whole;
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)bytes, text);
    if (is_error)
        fprintf(stderr, "[%d] %s\n", rank, line);
    else
        show(line, *(const bool *)context);
}

static int run_ranks(int ranks, char *most_bytes, bool is_json) {
    char *program[] = {"/proc/self/exe", "bench", "all-reduce-worker", most_bytes, NULL};
    char own[4096];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length > 0) {
        own[length] = '\0';
        program[0] = own;
    }
    const launch_options options = {
        .ranks = ranks, .program = program, .observer = {.context = &is_json, .line = line_of_rank}};
    launch_result result = {.exit_code = 1};
    if (launch_run(&options, &result) != LS_OK) fprintf(stderr, "lockstep bench: %s\n", ls_last_error());
    return result.exit_code;
}

/* The same measurement in MPI: its program lies beside ours in the build folder. Absent, or without mpirun: nothing. */
static void run_mpi(int ranks, const char *most_bytes, bool is_json) {
    char own[4096], command[5000];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0) return;
    own[length] = '\0';
    char *folder = strrchr(own, '/');
    if (!folder) return;
    *folder = '\0';
    snprintf(command, sizeof command, "%s/../bench/mpi_all_reduce", own);
    if (access(command, X_OK) != 0) return;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    snprintf(command, sizeof command,
             "command -v mpirun > /dev/null && mpirun --oversubscribe -n %d '%s/../bench/mpi_all_reduce' %s", ranks,
             own, most_bytes);
    FILE *stream = popen(command, "r");
    char line[512];
    while (stream && fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        show(line, is_json);
    }
    if (stream) pclose(stream);
}

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

int bench_all_reduce_main(int argc, char **argv) {
    static const struct option known[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"most-bytes", required_argument, NULL, 'm'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    long long ranks = 2, most = 100 << 20;
    bool is_json = false;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":n:h", known, NULL)) != -1) {
        switch (option) {
        case 'n':
            if (!read_count(optarg, 2, 64, &ranks)) return refuse("--ranks wants 2 to 64, not", optarg);
            break;
        case 'm':
            if (!read_count(optarg, 4, (long long)1 << 32, &most))
                return refuse("--most-bytes wants 4 or more, not", optarg);
            break;
        case 'j': is_json = true; break;
        case 'h': fputs(usage, stdout); return 0;
        case ':': return refuse("a value is missing after", argv[optind - 1]);
        default: return refuse("unknown option", argv[optind - 1]);
        }
    }
    if (optind < argc) return refuse("unknown argument", argv[optind]);
    char most_bytes[24];
    snprintf(most_bytes, sizeof most_bytes, "%lld", most);
    if (!is_json)
        printf("%-13s %9s  %-8s %-8s %-6s %11s %11s %6s\n", "impl", "bytes", "memory", "mode", "data", "median us",
               "best us", "ratio");
    fflush(stdout);
    const int code = run_ranks((int)ranks, most_bytes, is_json);
    if (code == 0) run_mpi((int)ranks, most_bytes, is_json);
    return code;
}
