/* options.h: what the user asks of train_image. */
#ifndef TRAIN_IMAGE_OPTIONS_H
#define TRAIN_IMAGE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* In the output folder; --resume without a file looks for it there. */
#define CHECKPOINT "checkpoint.safetensors"

typedef struct options {
    int64_t epochs, batch;
    uint64_t seed;
    double lr;
    const char *model, *data, *output, *terminal; /* data and terminal: NULL unless given */
    char resume[4096];                            /* empty: from the start */
    bool is_json;
} options;

/* Reads the command line. Does not return after --help (exit code 0) or a wrong call (2, with a sentence). */
options options_read(int argc, char **argv);

#endif
