/* main.c: the `lockstep` command: finds the subcommand and hands it the rest.
 *
 * A subcommand is a function with the arguments of a main, in a file of its own: it reads its own options and has
 * its own --help. */
#include "tools/tools.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* In the order in which the usage lists them. */
static const struct {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
} subcommands[] = {
    {"run", "starts a program on several processes of this host", run_main},
    {"bench", "figures, side by side with what else is installed", bench_main},
    {"doctor", "what this machine has, what is missing, how to get it", doctor_main},
};

enum { SUBCOMMANDS = sizeof subcommands / sizeof subcommands[0] };

static void print_usage(FILE *to) {
    fputs("Usage: lockstep COMMAND [OPTIONS] ...\n\n", to);
    for (size_t i = 0; i < SUBCOMMANDS; i++) fprintf(to, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    fputs("\n`lockstep COMMAND --help` tells more. `lockstep --version` prints the version.\n", to);
}

/* A descriptor that is closed from the start would be given to the next thing opened, and written to by all. */
static void open_standard_descriptors(void) {
    int descriptor;
    /* Each one that is closed takes the next of these, from 0 on. */
    do descriptor = open("/dev/null", O_RDWR);
    while (descriptor >= 0 && descriptor < 2);
    if (descriptor > 2) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

int main(int argc, char **argv) {
    open_standard_descriptors();
    /* Without a command the usage is an answer and an error. */
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_usage(argc > 1 ? stdout : stderr);
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0) {
        printf("lockstep %s\n", ls_version());
        return 0;
    }
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        /* The subcommand's name stands where a program's own would: getopt begins behind it. */
        if (strcmp(name, subcommands[i].name) == 0) return subcommands[i].main(argc - 1, argv + 1);
    fprintf(stderr, "lockstep: there is no command \"%s\"\n\n", name);
    print_usage(stderr);
    return 2;
}
