/* train_image.c: trains a small net on Fashion-MNIST, on one process or on many; the program is the same.
 *
 *     build/examples/train_image                                      alone
 *     build/bin/lockstep run -n 2 build/examples/train_image          on two processes
 *
 * In the order of the file: the options; a replica (net, wrap, optimizer); one step; an epoch; the test; how much of a
 * step is spent in communication that nothing hides; what is shown and written; main.                                */
#include <lockstep/lockstep.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define CHECKPOINT "checkpoint.safetensors"
#define TEST_BATCH 250
#define CLASSES 10
#define TIMED_PAIRS 10
#define TRACE_FIRST 10 /* of the first epoch, the steps that are traced */
#define TRACE_LAST 15
#define LOSS_EVERY 10 /* batches a row of loss.csv; an epoch's last row may have fewer */

/* ---- Options ---- */

typedef struct options {
    int64_t epochs, batch;
    uint64_t seed;
    double lr;
    const char *model, *data, *output, *terminal;
    char resume[PATH_BYTES]; /* empty: from the start */
    bool is_json;
} options;

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

static options read_options(int argc, char **argv) {
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
    char *end;
    opterr = 0;
    for (int choice, at = 1; (choice = getopt_long(argc, argv, ":", known, NULL)) != -1; at = optind) {
        const char *const value = optarg ? optarg : "";
        switch (choice) {
        case 'e': o.epochs = read_count("epochs", value, 1); break;
        case 'b': o.batch = read_count("batch", value, 1); break;
        case 'm': o.model = value; break;
        case 's': o.seed = (uint64_t)read_count("seed", value, 0); break;
        case 'l':
            o.lr = strtod(value, &end);
            if (*end || !(o.lr > 0) || !isfinite(o.lr)) leave("--lr takes a positive number, not ", value);
            break;
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
        snprintf(o.resume, PATH_BYTES, "%s%s", is_default ? o.output : resume, is_default ? "/" CHECKPOINT : "");
    return o;
}

/* ---- A replica: what each rank holds a copy of ---- */

typedef struct replica {
    ls_module *net;
    ls_ddp *ddp;
    ls_optim *sgd;
} replica;

static void replica_close(replica *r) {
    ls_optim_close(&r->sgd);
    ls_ddp_close(&r->ddp);
    ls_module_close(&r->net);
}

static ls_status replica_create(replica *r, const options *o, ls_group *group) {
    *r = (replica){0};
    ls_seed_set(o->seed);
    ls_status status = strcmp(o->model, "mlp") == 0 ? ls_mlp_create(&r->net, NULL) : ls_lenet_create(&r->net, NULL);
    if (!status) status = ls_ddp_wrap(&r->ddp, r->net, group, NULL); /* the line that makes it parallel */
    if (!status) status = ls_sgd_create(&r->sgd, r->net, &(ls_sgd_options){.lr = o->lr, .momentum = 0.9});
    if (status) replica_close(r);
    return status;
}

/* ---- Training ---- */

/* One step; adds the losses of the batch's images to `loss_sum`. */
static ls_status train_step(replica *r, const ls_batch *batch, double *loss_sum) {
    ls_step_begin();
    ls_tensor *loss = ls_cross_entropy_loss(ls_module_forward(r->net, batch->x), batch->y);
    ls_backward(loss); /* gradients are averaged over the ranks meanwhile; a NULL loss fails the step on all of them */
    ls_optim_step(r->sgd);
    ls_optim_zero_grad(r->sgd);
    if (loss) *loss_sum += ls_tensor_item(loss) * (double)batch->count;
    return ls_step_end(); /* the one check */
}

/* What an epoch came to, over all ranks: for the CSV and for --json. */
enum { EPOCH, TRAIN_LOSS, TEST_ACCURACY, IMAGES_PER_S, STEP_MS, EXPOSED_COMM_MS, SECONDS, FIGURES };
static const char *const figure_names[FIGURES] = {"epoch",   "train_loss",      "test_accuracy", "images_per_s",
                                                  "step_ms", "exposed_comm_ms", "seconds"};

typedef struct training {
    options options;
    ls_group *group;
    int rank, world_size;
    replica replica;
    ls_dataset images, tests;
    ls_loader *loader, *test_loader;
    double exposed_comm_ms;
    FILE *text, *bar;            /* on rank 0: where plain lines go, and the terminal (or NULL) */
    FILE *epochs_csv, *loss_csv; /* on rank 0 */
    double shown_at;             /* when progress was shown last */
} training;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A line for people, from rank 0; on a terminal it takes the bar's place. */
__attribute__((format(printf, 2, 3))) static void say(training *t, const char *format, ...) {
    if (t->rank != 0) return;
    if (t->bar) fprintf(t->bar, "\r%78s\r", ""), fflush(t->bar);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(t->text, format, arguments);
    va_end(arguments);
    fflush(t->text);
}

/* Ten times a second a bar on a terminal, elsewhere a line every ten seconds. */
static void show_progress(training *t, int64_t epoch, int64_t done, double loss, double images_per_s) {
    const double now = now_s();
    if (t->rank != 0 || now - t->shown_at < (t->bar ? 0.1 : 10)) return;
    t->shown_at = now;
    const int percent = (int)(100 * done / ls_loader_batches(t->loader));
    if (!t->bar) {
        say(t, "epoch %" PRId64 ": %d%%, loss %.4f, %.0f images/s\n", epoch + 1, percent, loss, images_per_s);
        return;
    }
    fprintf(t->bar, "\repoch %" PRId64 " [%-30.*s] %3d%%  loss %.4f  %.0f images/s ", epoch + 1, percent * 30 / 100,
            "##############################", percent, loss, images_per_s);
    fflush(t->bar);
}

/* A few steps of the first epoch go into a trace, unless all of it does. */
static ls_status trace_some(int64_t epoch, int64_t batch) {
    if (epoch != 0 || getenv("LOCKSTEP_TRACE")) return LS_OK;
    return batch == TRACE_FIRST ? ls_trace_start("trace") : batch == TRACE_LAST ? ls_trace_stop() : LS_OK;
}

static ls_status train_epoch(training *t, int64_t epoch, double figures[FIGURES]) {
    const ls_step_schedule schedule = {.base_lr = t->options.lr, .gamma = 0.2, .step_epochs = 3};
    ls_step_schedule_apply(&schedule, t->replica.sgd, (int)epoch);
    ls_module_train(t->replica.net, true);
    const double start = t->shown_at = now_s();
    double sums[2] = {0}, recent[2] = {0}; /* losses and images: of the epoch, of the last few batches */
    int64_t steps = 0;
    ls_batch batch;
    ls_status status;
    while ((status = ls_loader_next(t->loader, &batch)) == LS_OK) { /* LS_END ends the epoch, on every rank alike */
        double loss_sum = 0;
        if ((status = trace_some(epoch, steps))) return status;
        if ((status = train_step(&t->replica, &batch, &loss_sum))) return status;
        sums[0] += loss_sum, sums[1] += (double)batch.count;
        recent[0] += loss_sum, recent[1] += (double)batch.count;
        show_progress(t, epoch, ++steps, recent[0] / recent[1], sums[1] * t->world_size / (now_s() - start));
        if (steps % LOSS_EVERY != 0 && steps < ls_loader_batches(t->loader)) continue;
        if (t->loss_csv) fprintf(t->loss_csv, "%" PRIu64 ",%.6g\n", ls_step_number(), recent[0] / recent[1]);
        recent[0] = recent[1] = 0;
    }
    if (status != LS_END) return status;
    const double seconds = now_s() - start;
    if ((status = ls_group_all_reduce(t->group, sums, 2, LS_F64, LS_SUM, NULL))) return status;
    figures[TRAIN_LOSS] = sums[0] / sums[1];
    figures[IMAGES_PER_S] = sums[1] / seconds;
    figures[STEP_MS] = 1000 * seconds / (double)steps;
    return LS_OK;
}

static int64_t count_right(const ls_tensor *logits, const ls_tensor *labels) {
    const float *scores = ls_tensor_data(logits);
    const int64_t *label = ls_tensor_data(labels);
    int64_t right = 0;
    for (int64_t i = 0; scores && i < ls_tensor_numel(labels); i++, scores += CLASSES) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = scores[c] > scores[best] ? c : best;
        right += best == label[i];
    }
    return right;
}

/* The share of test images that the net gets right. Ranks take a part each; their counts are summed at the end. */
static ls_status test(training *t, double *accuracy) {
    const uint64_t step_number = ls_step_number();
    int64_t counts[2] = {0}; /* right, all */
    ls_batch batch;
    ls_status status;
    ls_module_train(t->replica.net, false);
    ls_no_grad_begin();
    while ((status = ls_loader_next(t->test_loader, &batch)) == LS_OK) {
        ls_step_begin();
        counts[0] += count_right(ls_module_forward(t->replica.net, batch.x), batch.y);
        counts[1] += batch.count;
        status = ls_step_end();
        if (!status && !batch.x) status = LS_ERR_IO; /* an image could not be read: the sentence is the loader's */
        if (status) break;
    }
    ls_no_grad_end();
    ls_step_number_set(step_number); /* ranks may have tested different numbers of batches */
    if (status != LS_END) return status;
    if ((status = ls_group_all_reduce(t->group, counts, 2, LS_I64, LS_SUM, NULL))) return status;
    *accuracy = (double)counts[0] / (double)counts[1];
    return LS_OK;
}

/* ---- Exposed communication: a step less the same step without communication ---- */

static ls_status time_step(training *t, replica *r, const ls_batch *batch, bool is_alone, double *ms) {
    ls_status status = ls_group_barrier(t->group, NULL); /* nobody waits for a late start */
    if (status) return status;
    double ignored = 0;
    const double start = now_s();
    if (is_alone) ls_ddp_no_sync_begin(r->ddp);
    status = train_step(r, batch, &ignored);
    if (is_alone) ls_ddp_no_sync_end(r->ddp);
    *ms = 1000 * (now_s() - start);
    return status;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[TIMED_PAIRS]) {
    qsort(values, TIMED_PAIRS, sizeof *values, compare);
    return (values[(TIMED_PAIRS - 1) / 2] + values[TIMED_PAIRS / 2]) / 2;
}

/* Paired steps on a throw-away replica, each pair in the other order; afterwards nothing is as if it had been. */
static ls_status measure_communication(training *t) {
    const uint64_t step_number = ls_step_number();
    double together[TIMED_PAIRS], alone[TIMED_PAIRS], results[2], ms;
    replica copy;
    ls_loader *loader = NULL;
    ls_batch batch;
    if (t->world_size == 1) return LS_OK;
    ls_status status = replica_create(&copy, &t->options, t->group);
    if (status) return status;
    const ls_loader_options taken = {.batch = t->options.batch, .rank = t->rank, .world_size = t->world_size};
    if ((status = ls_loader_create(&loader, &t->images, &taken))) goto out;
    if ((status = ls_loader_next(loader, &batch))) goto out;

    /* Memory and buckets settle first. */
    for (int i = 0; i < 4 && !status; i++) status = time_step(t, &copy, &batch, i % 2 == 1, &ms);
    for (int i = 0; i < 2 * TIMED_PAIRS && !status; i++) {
        const bool is_alone = i % 4 == 1 || i % 4 == 2;
        status = time_step(t, &copy, &batch, is_alone, is_alone ? &alone[i / 2] : &together[i / 2]);
    }
    if (status) goto out;
    for (int i = 0; i < TIMED_PAIRS; i++) alone[i] = together[i] - alone[i];
    results[0] = median(together);
    results[1] = median(alone);
    if ((status = ls_group_all_reduce(t->group, results, 2, LS_F64, LS_SUM, NULL))) goto out;
    const double step_ms = results[0] / t->world_size;
    t->exposed_comm_ms = fmax(results[1] / t->world_size, 0);
    say(t, "exposed communication: %.2f of %.2f ms, %.1f%% of a step\n", t->exposed_comm_ms, step_ms,
        100 * t->exposed_comm_ms / step_ms);
out:
    ls_loader_close(&loader);
    replica_close(&copy);
    ls_seed_set(t->options.seed);
    ls_step_number_set(step_number);
    return status;
}

/* ---- What is shown and written ---- */

/* Enters the output folder and opens rank 0's files there; false when that cannot be. */
static bool open_outputs(training *t) {
    const char *const folder = t->options.output, *const mode = *t->options.resume ? "a" : "w";
    mkdir(folder, 0777); /* when it cannot be made, it cannot be entered */
    const bool is_entered = chdir(folder) == 0;
    if (is_entered && t->rank != 0) return true;
    if (is_entered) t->epochs_csv = fopen("training.csv", mode);
    if (t->epochs_csv) t->loss_csv = fopen("loss.csv", mode);
    if (!t->loss_csv) fprintf(stderr, "train_image: cannot write in %s: %s\n", folder, strerror(errno));
    if (!t->loss_csv || ftell(t->epochs_csv) > 0) return t->loss_csv != NULL;
    for (int i = 0; i < FIGURES; i++) fprintf(t->epochs_csv, "%s%s", i ? "," : "", figure_names[i]);
    fputc('\n', t->epochs_csv);
    fputs("step,loss\n", t->loss_csv);
    return true;
}

static void report(training *t, const double figures[FIGURES]) {
    if (t->rank != 0) return;
    say(t, "epoch %.0f: loss %.4f, test accuracy %.2f%%, %.0f images/s, %.2f ms a step, %.1f s\n", figures[EPOCH],
        figures[TRAIN_LOSS], 100 * figures[TEST_ACCURACY], figures[IMAGES_PER_S], figures[STEP_MS], figures[SECONDS]);
    for (int i = 0; i < FIGURES; i++) fprintf(t->epochs_csv, "%s%.6g", i ? "," : "", figures[i]);
    fputc('\n', t->epochs_csv);
    fflush(t->epochs_csv);
    fflush(t->loss_csv);
    for (int i = 0; t->options.is_json && i < FIGURES; i++) {
        printf("%s\"%s\":", i ? "," : "{", figure_names[i]);
        printf(isfinite(figures[i]) ? "%.6g" : "null", figures[i]); /* JSON has no word for what is no number */
        if (i == FIGURES - 1) puts("}"), fflush(stdout);
    }
}

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
static void draw_curves(training *t) {
    extern char **environ;
    char *const command[] = {(char[]){"gnuplot"}, (char[]){"curves.gp"}, NULL};
    pid_t child;
    int result = -1;
    FILE *file = fopen("curves.gp", "w");
    if (!file || fputs(curves, file) < 0 || fclose(file) != 0)
        say(t, "cannot write %s/curves.gp\n", t->options.output);
    else if (posix_spawnp(&child, "gnuplot", NULL, NULL, command, environ) == 0)
        waitpid(child, &result, 0);
    if (result != 0)
        say(t, "the curves are not drawn: \"apt-get install gnuplot-nox\", then \"cd %s && gnuplot curves.gp\"\n",
            t->options.output);
}

/* ---- The program ---- */

static ls_status save(const training *t) {
    ls_checkpoint_state state = {.step = ls_step_number(), .seed = t->options.seed, .lr = t->options.lr};
    ls_loader_position(t->loader, &state.epoch, &state.batch);
    return ls_checkpoint_save(CHECKPOINT, t->replica.net, t->replica.sgd, &state);
}

/* Everything up to the first step. */
static ls_status prepare(training *t) {
    options *o = &t->options;
    ls_checkpoint_state state = {.seed = o->seed, .lr = o->lr};
    ls_status status = replica_create(&t->replica, o, t->group);
    if (!status && *o->resume) status = ls_checkpoint_load(o->resume, t->replica.net, t->replica.sgd, &state);
    if (!status) status = ls_dataset_open_fashion_mnist(&t->images, o->data, false);
    if (!status) status = ls_dataset_open_fashion_mnist(&t->tests, o->data, true);
    if (status) return status;
    o->seed = state.seed;
    o->lr = state.lr;
    ls_step_number_set(state.step);

    const ls_loader_options trained = {
        .batch = o->batch, .rank = t->rank, .world_size = t->world_size, .seed = o->seed};
    ls_loader_options tested = trained;
    tested.batch = TEST_BATCH;
    tested.without_shuffle = tested.uneven = true; /* each image once */
    if ((status = ls_loader_create(&t->loader, &t->images, &trained))) return status;
    if ((status = ls_loader_create(&t->test_loader, &t->tests, &tested))) return status;
    return ls_loader_set_position(t->loader, state.epoch, state.batch);
}

static ls_status train(training *t) {
    int64_t parameters = 0, epoch = 0;
    for (int i = 0; i < ls_module_parameter_count(t->replica.net); i++)
        parameters += ls_tensor_numel(ls_module_parameter(t->replica.net, i));
    say(t, "%s, %" PRId64 " parameters; %" PRId64 " images, %d x %" PRId64 " a step\n", t->options.model, parameters,
        t->images.count, t->world_size, t->options.batch);
    ls_status status = measure_communication(t);
    ls_loader_position(t->loader, &epoch, NULL);
    for (; !status && epoch < t->options.epochs; epoch++) {
        double figures[FIGURES] = {[EPOCH] = (double)epoch + 1, [EXPOSED_COMM_MS] = t->exposed_comm_ms};
        const double start = now_s();
        if ((status = train_epoch(t, epoch, figures))) break;
        if ((status = test(t, &figures[TEST_ACCURACY]))) break;
        figures[SECONDS] = now_s() - start;
        if (t->rank == 0 && (status = save(t))) break; /* replicas are equal */
        report(t, figures);
    }
    const ls_status stopped = ls_trace_stop(); /* the epoch may have ended before the traced steps did */
    return status ? status : stopped;
}

static void close_all(training *t) {
    ls_loader_close(&t->loader);
    ls_loader_close(&t->test_loader);
    ls_dataset_close(&t->images);
    ls_dataset_close(&t->tests);
    replica_close(&t->replica);
    ls_group_close(&t->group);
    if (t->epochs_csv) fclose(t->epochs_csv);
    if (t->loss_csv) fclose(t->loss_csv);
}

int main(int argc, char **argv) {
    training t = {.options = read_options(argc, argv)};
    t.text = t.options.is_json ? stderr : stdout;
    ls_status status = ls_group_open(&t.group, NULL); /* from the environment, else a world of one */
    if (!status) {
        t.rank = ls_group_rank(t.group);
        t.world_size = ls_group_world_size(t.group);
        if (t.rank == 0)
            t.bar = t.options.terminal ? fopen(t.options.terminal, "w") : isatty(STDERR_FILENO) ? stderr : NULL;
        status = prepare(&t);
    }
    const bool is_open = !status && open_outputs(&t);
    if (is_open) status = train(&t);
    if (status) fprintf(stderr, "train_image: %s\n", ls_last_error());
    close_all(&t);
    if (status || !is_open) return 1;
    if (t.rank == 0) draw_curves(&t);
    static const char *const made[] = {CHECKPOINT, "training.csv", "loss.csv", "curves.svg", "curves.png", "trace"};
    char list[128] = "";
    for (size_t i = 0, used = 0; i < sizeof made / sizeof *made; i++)
        if (access(made[i], F_OK) == 0) used += (size_t)snprintf(list + used, sizeof list - used, " %s", made[i]);
    say(&t, "results are in %s:%s\n", t.options.output, list);
    return 0;
}
