/* bench.c: `lockstep bench`: figures, side by side with what else is installed. */
#include "tools/bench.h"

#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

int bench_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "all-reduce") == 0) return bench_all_reduce_main(argc - 1, argv + 1);
    if (strcmp(name, "all-reduce-worker") == 0) return bench_all_reduce_worker(argc - 1, argv + 1);
    if (strcmp(name, "startup") == 0) return bench_startup_main(argc - 1, argv + 1);
    if (strcmp(name, "startup-worker") == 0) return bench_startup_worker(argc - 1, argv + 1);
    fprintf(strcmp(name, "--help") == 0 ? stdout : stderr,
            "Usage: lockstep bench all-reduce|startup [OPTIONS]\n\n`lockstep bench all-reduce --help` tells more.\n");
    return strcmp(name, "--help") == 0 ? 0 : 2;
}
