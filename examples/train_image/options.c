/* options.c: the command line, with getopt_long. */
#include "train_image/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Trains a net on Fashion-MNIST. Start it alone, or on N processes with: lockstep run -n N train_image [OPTIONS]\n"
    "\n"
    "  --epochs N         passes over the training images (5)\n"
    "  --batch N          images of a step and rank (64)\n"
    "  --model NAME       lenet or mlp (lenet)\n"
    "  --seed N           of initialisation and shuffling (1)\n"
    "  --lr X             learning rate of the first epochs, then a fifth every 3 epochs (0.05)\n"
    "  --resume [FILE]    goes on from a checkpoint (the one in the output folder), with its seed and learning rate\n"
    "  --data DIR         where Fashion-MNIST lies (LOCKSTEP_DATA, then Debian's package)\n"
    "  --output DIR       for checkpoint, CSV, curves and trace; made when missing (output)\n"
    "  --terminal DEVICE  draws the progress bar there (standard error, when it is a terminal)\n"
    "  --json             prints a JSON object an epoch on standard output, everything else on standard error\n"
    "  --help             this text\n";

/* Ends the program: with the usage, or because the user called it wrongly. Of many ranks the first one speaks; without
 * a launcher a RANK is left over in the shell. */
_Noreturn static void leave(const char *what, const char *value) {
    const char *rank = getenv("LOCKSTEP_LAUNCHER_PID") ? getenv("RANK") : NULL;
    const bool is_first = !rank || strcmp(rank, "0") == 0;
    if (is_first && !what)
        fputs(usage, stdout);
    else if (is_first)
        fprintf(stderr, "train_image: %s%s; --help lists the options\n", what, value);
    exit(what ? 2 : 0);
}

static int64_t read_count(const char *name, const char *text, int64_t minimum) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < minimum) {
        char what[80];
        snprintf(what, sizeof what, "--%s takes a whole number from %" PRId64 " on, not ", name, minimum);
        leave(what, text);
    }
    return value;
}

static double read_rate(const char *text) {
    char *end;
    const double rate = strtod(text, &end);
    /* Asked this way round, NaN is refused too. */
    if (*end || !(rate > 0) || !isfinite(rate)) leave("--lr takes a positive number, not ", text);
    return rate;
}

options options_read(int argc, char **argv) {
    static const struct option known[] = {
        {"epochs", required_argument, NULL, 'e'}, {"batch", required_argument, NULL, 'b'},
        {"model", required_argument, NULL, 'm'},  {"seed", required_argument, NULL, 's'},
        {"lr", required_argument, NULL, 'l'},     {"resume", optional_argument, NULL, 'r'},
        {"data", required_argument, NULL, 'd'},   {"output", required_argument, NULL, 'o'},
        {"json", no_argument, NULL, 'j'},         {"terminal", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},         {0},
    };
    options o = {.epochs = 5, .batch = 64, .seed = 1, .lr = 0.05, .model = "lenet", .output = "output"};
    const char *resume = NULL;
    opterr = 0;
    /* `at` is the argument that is being read: getopt has moved on when it finds that wrong. */
    for (int choice, at = 1; (choice = getopt_long(argc, argv, ":", known, NULL)) != -1; at = optind) {
        const char *const value = optarg ? optarg : "";
        switch (choice) {
        case 'e': o.epochs = read_count("epochs", value, 1); break;
        case 'b': o.batch = read_count("batch", value, 1); break;
        case 'm': o.model = value; break;
        case 's': o.seed = (uint64_t)read_count("seed", value, 0); break;
        case 'l': o.lr = read_rate(value); break;
        /* getopt takes an optional value behind "=" alone; people write a space. */
        case 'r': resume = *value ? value : optind < argc && argv[optind][0] != '-' ? argv[optind++] : ""; break;
        case 'd': o.data = value; break;
        case 'o': o.output = value; break;
        case 'j': o.is_json = true; break;
        case 't': o.terminal = value; break;
        case 'h': leave(NULL, NULL);
        case ':': leave("a value is missing after ", argv[at]);
        default: leave("there is no option ", argv[at]);
        }
    }
    if (optind < argc) leave("what is meant by ", argv[optind]);
    if (strcmp(o.model, "lenet") != 0 && strcmp(o.model, "mlp") != 0) leave("--model is lenet or mlp, not ", o.model);
    const bool is_default = resume && !*resume;
    if (resume)
        snprintf(o.resume, sizeof o.resume, "%s%s", is_default ? o.output : resume, is_default ? "/" CHECKPOINT : "");
    return o;
}
