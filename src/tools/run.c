/* run.c: `lockstep run`: reads the options, starts the job.
 *
 * Options are torchrun's where they mean the same, so that a command line can be kept. The first word that is none
 * of them is the program, and all behind it is the program's. */
#include "tools/tools.h"

#include "launch/cores.h"
#include "launch/launch.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: lockstep run [-n N] [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts PROGRAM N times on this host. Each finds its place in the environment (RANK, WORLD_SIZE, ... as torchrun "
    "sets\n"
    "them); ranks meet through sockets that they inherit: no port, no file.\n"
    "\n"
    "  -n, --nproc-per-node N   how many ranks; \"auto\": one for each core this process may use (default: 1)\n"
    "      --label rank|none    \"[rank] \" before each line when there are several ranks (default: rank)\n"
    "      --grace SECONDS      from SIGTERM to SIGKILL, for ranks that do not end (default: 10)\n"
    "  -h, --help               this text\n"
    "\n"
    "Standard input of all ranks is /dev/null. TERM, INT, HUP, USR1 and USR2 are passed on to all ranks; a second "
    "TERM, INT\n"
    "or HUP kills them. When a rank fails, the others get half a second to end by themselves, then SIGTERM, then "
    "SIGKILL.\n"
    "The exit code is that of the first failure in time, 128 + signal for a kill; 127 when PROGRAM is not found, 2 for "
    "a\n"
    "wrong option. Nothing that the ranks started outlives the job, also when this command is killed.\n";

static int refuse(const char *what, const char *value) {
    fprintf(stderr, "lockstep run: %s%s%s%s\n\n%s", what, value ? " \"" : "", value ? value : "", value ? "\"" : "",
            usage);
    return 2;
}

static bool read_ranks(const char *text, int *ranks) {
    if (strcmp(text, "auto") == 0) {
        *ranks = launch_cores();
        return true;
    }
    char *end = NULL;
    errno = 0;
    const long number = strtol(text, &end, 10);
    /* Cut only where the check below refuses it. */
    *ranks = (int)number;
    return !errno && end != text && !*end && number >= 1 && number <= LAUNCH_MOST_RANKS;
}

static bool read_grace(const char *text, int64_t *grace_ms) {
    char *end = NULL;
    const double seconds = strtod(text, &end);
    /* Asked this way round, NaN is refused too. */
    if (end == text || *end || !(seconds > 0 && seconds <= 86400)) return false;
    *grace_ms = (int64_t)(seconds * 1000);
    /* Less than a millisecond is still a wish; 0 would be the default. */
    if (*grace_ms == 0) *grace_ms = 1;
    return true;
}

static bool read_label(const char *text, bool *without_labels) {
    *without_labels = strcmp(text, "none") == 0;
    return *without_labels || strcmp(text, "rank") == 0;
}

int run_main(int argc, char **argv) {
    /* Both spellings are in use. */
    static const struct option known[] = {{"nproc-per-node", required_argument, NULL, 'n'},
                                          {"nproc_per_node", required_argument, NULL, 'n'},
                                          {"label", required_argument, NULL, 'l'},
                                          {"grace", required_argument, NULL, 'g'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    /* One rank without -n, as a program alone. */
    launch_options options = {.ranks = 1};
    launch_result result;
    opterr = 0;
    int option;
    /* "+": options behind the program's name are the program's. */
    while ((option = getopt_long(argc, argv, "+:n:h", known, NULL)) != -1) {
        switch (option) {
        case 'n':
            if (!read_ranks(optarg, &options.ranks)) return refuse("-n wants 1 to 4096 or \"auto\", not", optarg);
            break;
        case 'l':
            if (!read_label(optarg, &options.without_labels)) return refuse("--label wants rank or none, not", optarg);
            break;
        case 'g':
            if (!read_grace(optarg, &options.grace_ms))
                return refuse("--grace wants seconds, up to 86400, not", optarg);
            break;
        case 'h': fputs(usage, stdout); return 0;
        case ':': return refuse("a value is missing after", argv[optind - 1]);
        default: return refuse("unknown option", argv[optind - 1]);
        }
    }
    /* What stands behind the options, and all of it: the rest belongs to the program. */
    if (optind == argc) return refuse("no program is named", NULL);
    options.program = argv + optind;
    /* The launcher itself reports how ranks ended; here only why it could not run. */
    if (launch_run(&options, &result) != LS_OK) fprintf(stderr, "lockstep run: %s\n", ls_last_error());
    return result.exit_code;
}
