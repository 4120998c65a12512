/* bench.c: `lockstep bench`: figures, side by side with what else is installed.
 *
 * Each bench is a file of its own. Where it needs ranks it starts this very program again under the launcher: so
 * what is measured is what is installed, and nothing else has to be found. */
#include "tools/bench.h"

#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

int bench_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "all-reduce") == 0) return bench_all_reduce_main(argc - 1, argv + 1);
    /* Not in the usage: what the command starts itself, as ranks of its own job. */
    if (strcmp(name, "all-reduce-worker") == 0) return bench_all_reduce_worker(argc - 1, argv + 1);
    if (strcmp(name, "startup") == 0) return bench_startup_main(argc - 1, argv + 1);
    if (strcmp(name, "startup-worker") == 0) return bench_startup_worker(argc - 1, argv + 1);
    fprintf(strcmp(name, "--help") == 0 ? stdout : stderr,
            "Usage: lockstep bench all-reduce|startup [OPTIONS]\n\n`lockstep bench all-reduce --help` tells more.\n");
    return strcmp(name, "--help") == 0 ? 0 : 2;
}
