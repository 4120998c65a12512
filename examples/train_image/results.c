/* results.c: the bar and the lines, the CSV files, the curves that gnuplot draws of them. */
#include "train_image/results.h"

#include "train_image/clock.h"

#include <lockstep/autograd.h>
#include <lockstep/trace.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACE_FIRST 10 /* of the first epoch, the steps that are traced */
#define TRACE_LAST 15
#define LOSS_EVERY 10 /* batches a row of loss.csv; an epoch's last row may have fewer */

static const char *const figure_names[FIGURES] = {"epoch",   "train_loss",      "test_accuracy", "images_per_s",
                                                  "step_ms", "exposed_comm_ms", "seconds"};

/* ---- Lines for people ---- */

/* On a terminal a line takes the bar's place. */
void results_say(results *r, const char *format, ...) {
    if (r->rank != 0) return;
    if (r->bar) fprintf(r->bar, "\r%78s\r", ""), fflush(r->bar);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(r->text, format, arguments);
    va_end(arguments);
    fflush(r->text);
}

/* Ten times a second a bar on a terminal, elsewhere a line every ten seconds. */
static void show_progress(results *r, double loss) {
    const double now = now_s(), images_per_s = (double)(r->images * r->world_size) / (now - r->started_at);
    if (now - r->shown_at < (r->bar ? 0.1 : 10)) return;
    r->shown_at = now;
    const int percent = (int)(100 * r->steps / r->all_steps);
    if (!r->bar) {
        results_say(r, "epoch %" PRId64 ": %d%%, loss %.4f, %.0f images/s\n", r->epoch + 1, percent, loss,
                    images_per_s);
        return;
    }
    fprintf(r->bar, "\repoch %" PRId64 " [%-30.*s] %3d%%  loss %.4f  %.0f images/s ", r->epoch + 1, percent * 30 / 100,
            "##############################", percent, loss, images_per_s);
    fflush(r->bar);
}

/* ---- The epochs ---- */

void results_begin_epoch(results *r, int64_t epoch, int64_t steps) {
    r->epoch = epoch;
    r->all_steps = steps;
    r->steps = r->images = r->recent_images = 0;
    r->recent_loss = 0;
    r->started_at = r->shown_at = now_s();
}

void results_add_step(results *r, double loss_sum, int64_t images) {
    if (r->rank != 0) return;
    r->steps++;
    r->images += images;
    r->recent_images += images;
    r->recent_loss += loss_sum;
    const double loss = r->recent_loss / (double)r->recent_images;
    show_progress(r, loss);
    if (r->steps % LOSS_EVERY != 0 && r->steps < r->all_steps) return;
    fprintf(r->loss_csv, "%" PRIu64 ",%.6g\n", ls_step_number(), loss);
    r->recent_images = 0;
    r->recent_loss = 0;
}

ls_status results_trace_some(int64_t epoch, int64_t step) {
    if (epoch != 0 || getenv("LOCKSTEP_TRACE")) return LS_OK;
    return step == TRACE_FIRST ? ls_trace_start("trace") : step == TRACE_LAST ? ls_trace_stop() : LS_OK;
}

void results_end_epoch(results *r, const double figures[FIGURES]) {
    if (r->rank != 0) return;
    results_say(r, "epoch %.0f: loss %.4f, test accuracy %.2f%%, %.0f images/s, %.2f ms a step, %.1f s\n",
                figures[EPOCH], figures[TRAIN_LOSS], 100 * figures[TEST_ACCURACY], figures[IMAGES_PER_S],
                figures[STEP_MS], figures[SECONDS]);
    for (int i = 0; i < FIGURES; i++) fprintf(r->epochs_csv, "%s%.6g", i ? "," : "", figures[i]);
    fputc('\n', r->epochs_csv);
    fflush(r->epochs_csv);
    fflush(r->loss_csv);
    for (int i = 0; r->options->is_json && i < FIGURES; i++) {
        printf("%s\"%s\":", i ? "," : "{", figure_names[i]);
        printf(isfinite(figures[i]) ? "%.6g" : "null", figures[i]); /* JSON has no word for what is no number */
        if (i == FIGURES - 1) puts("}"), fflush(stdout);
    }
}

/* ---- The curves ---- */

static const char curves[] =
    "# Draws curves.svg and curves.png from training.csv and loss.csv: gnuplot curves.gp\n"
    "set datafile separator comma\n"
    "set style line 1 lc rgb '#3366aa' lw 2 pt 7 ps 0.7\n"
    "set border 3 lc rgb '#666666'; set tics nomirror out; set grid lc rgb '#dddddd' lt 1\n"
    "set margins 9, 3, 4, 3; unset key\n"
    "do for [kind in 'svg png'] {\n"
    "    if (kind eq 'svg') { set terminal svg size 900,360 font 'sans,14' background 'white' }\n"
    "    else { set terminal pngcairo size 900,360 font 'sans,11' }\n"
    "    set output 'curves.'.kind; set multiplot layout 1,2\n"
    "    set title 'training loss'; set xlabel 'step'; set xtics autofreq; set xrange [0:*]; set yrange [0:*]\n"
    "    plot 'loss.csv' skip 1 using 1:2 with lines ls 1\n"
    "    set title 'test accuracy, %'; set xlabel 'epoch'; set xtics 1\n"
    "    stats 'training.csv' skip 1 using (100 * $3) nooutput; set yrange [STATS_min - 1:STATS_max + 1]\n"
    "    plot 'training.csv' skip 1 using 1:(100 * $3) with linespoints ls 1\n"
    "    unset multiplot; unset output\n"
    "}\n";

/* Writes curves.gp and has gnuplot draw from it. */
static void draw_curves(results *r) {
    extern char **environ;
    char *const command[] = {(char[]){"gnuplot"}, (char[]){"curves.gp"}, NULL};
    pid_t child;
    int result = -1;
    FILE *file = fopen("curves.gp", "w");
    if (!file || fputs(curves, file) < 0 || fclose(file) != 0)
        results_say(r, "cannot write %s/curves.gp\n", r->options->output);
    else if (posix_spawnp(&child, "gnuplot", NULL, NULL, command, environ) == 0)
        waitpid(child, &result, 0);
    if (result != 0)
        results_say(r,
                    "the curves are not drawn: \"apt-get install gnuplot-nox\", then \"cd %s && gnuplot curves.gp\"\n",
                    r->options->output);
}

void results_conclude(results *r) {
    static const char *const made[] = {CHECKPOINT, "training.csv", "loss.csv", "curves.svg", "curves.png", "trace"};
    if (r->rank != 0) return;
    draw_curves(r);
    char list[128] = "";
    for (size_t i = 0, used = 0; i < sizeof made / sizeof *made; i++)
        if (access(made[i], F_OK) == 0) used += (size_t)snprintf(list + used, sizeof list - used, " %s", made[i]);
    results_say(r, "results are in %s:%s\n", r->options->output, list);
}

/* ---- The files ---- */

/* A resumed training adds to the files that are there. */
static bool open_files(results *r) {
    const char *const mode = *r->options->resume ? "a" : "w";
    r->epochs_csv = fopen("training.csv", mode);
    if (r->epochs_csv) r->loss_csv = fopen("loss.csv", mode);
    if (!r->loss_csv) return false;
    if (ftell(r->epochs_csv) > 0) return true;
    for (int i = 0; i < FIGURES; i++) fprintf(r->epochs_csv, "%s%s", i ? "," : "", figure_names[i]);
    fputc('\n', r->epochs_csv);
    fputs("step,loss\n", r->loss_csv);
    return true;
}

bool results_open(results *r, const options *chosen, int rank, int world_size) {
    *r = (results){.options = chosen, .rank = rank, .world_size = world_size};
    r->text = chosen->is_json ? stderr : stdout;
    if (rank == 0) r->bar = chosen->terminal ? fopen(chosen->terminal, "w") : isatty(STDERR_FILENO) ? stderr : NULL;
    mkdir(chosen->output, 0777); /* when it cannot be made, it cannot be entered */
    const bool is_entered = chdir(chosen->output) == 0;
    if (is_entered && (rank != 0 || open_files(r))) return true;
    fprintf(stderr, "train_image: cannot write in %s: %s\n", chosen->output, strerror(errno));
    return false;
}

void results_close(results *r) {
    if (r->epochs_csv) fclose(r->epochs_csv);
    if (r->loss_csv) fclose(r->loss_csv);
    r->epochs_csv = r->loss_csv = NULL;
}
