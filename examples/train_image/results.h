/* results.h: what train_image shows and writes: progress, CSV files, JSON, curves. Rank 0 does; on the others all of
 * this does nothing. */
#ifndef TRAIN_IMAGE_RESULTS_H
#define TRAIN_IMAGE_RESULTS_H

#include "train_image/options.h"

#include <lockstep/base.h>

#include <stdio.h>

/* What an epoch came to, over all ranks: the columns of training.csv and the members of --json's objects. */
enum { EPOCH, TRAIN_LOSS, TEST_ACCURACY, IMAGES_PER_S, STEP_MS, EXPOSED_COMM_MS, SECONDS, FIGURES };

typedef struct results {
    const options *options; /* borrowed */
    int rank, world_size;
    FILE *text, *bar;            /* where plain lines go, and the terminal (or NULL) */
    FILE *epochs_csv, *loss_csv; /* NULL but on rank 0 */

    /* The epoch under way. */
    int64_t epoch, steps, all_steps, images;
    int64_t recent_images; /* since the last row of loss.csv */
    double recent_loss;    /* summed over them */
    double started_at, shown_at;
} results;

/* Enters the output folder, making it when missing, and opens the files there. False, with a sentence on standard
 * error, when that cannot be. `chosen` is borrowed. */
bool results_open(results *r, const options *chosen, int rank, int world_size);
void results_close(results *r);

/* A line for people. */
__attribute__((format(printf, 2, 3))) void results_say(results *r, const char *format, ...);

/* An epoch of `steps` steps begins; then, after each step, its loss summed over this rank's images. */
void results_begin_epoch(results *r, int64_t epoch, int64_t steps);
void results_add_step(results *r, double loss_sum, int64_t images);

/* Before step `step` of an epoch: a few of the first epoch go into a trace, unless LOCKSTEP_TRACE has all of it do. */
ls_status results_trace_some(int64_t epoch, int64_t step);

/* A row, an object, a line. */
void results_end_epoch(results *r, const double figures[FIGURES]);

/* Has gnuplot draw the curves, and says what lies where. */
void results_conclude(results *r);

#endif
