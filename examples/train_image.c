/* train_image.c: trains a small net on Fashion-MNIST, on one process or on many; the program is the same.
 *
 *     build/examples/train_image                                      alone
 *     build/bin/lockstep run -n 2 build/examples/train_image          on two processes
 *
 * In the order of the file: a replica (net, wrap, optimizer); a step; an epoch; the test; the whole training; main.
 * What is not training stands beside it in train_image/: the options; what is shown and written (results); how much of
 * a step is communication that nothing hides (exposed).                                                             */
#include "train_image/clock.h"
#include "train_image/exposed.h"
#include "train_image/options.h"
#include "train_image/results.h"

#include <lockstep/lockstep.h>

#include <inttypes.h>
#include <string.h>

#define TEST_BATCH 250
#define CLASSES 10

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

/* ---- A step, an epoch ---- */

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

typedef struct training {
    options options;
    ls_group *group;
    int rank, world_size;
    replica replica;
    ls_dataset images, tests;
    ls_loader *loader, *test_loader;
    results results;
    exposed exposed;
} training;

static ls_status train_epoch(training *t, int64_t epoch, double figures[FIGURES]) {
    const ls_step_schedule schedule = {.base_lr = t->options.lr, .gamma = 0.2, .step_epochs = 3};
    ls_step_schedule_apply(&schedule, t->replica.sgd, (int)epoch);
    ls_module_train(t->replica.net, true);
    results_begin_epoch(&t->results, epoch, ls_loader_batches(t->loader));
    const double start = now_s();
    double sums[2] = {0}; /* losses and images of this rank */
    int64_t steps = 0;
    ls_batch batch;
    ls_status status;
    while ((status = ls_loader_next(t->loader, &batch)) == LS_OK) { /* LS_END ends the epoch, on every rank alike */
        double loss_sum = 0;
        if ((status = results_trace_some(epoch, steps++))) return status;
        if ((status = train_step(&t->replica, &batch, &loss_sum))) return status;
        results_add_step(&t->results, loss_sum, batch.count);
        sums[0] += loss_sum;
        sums[1] += (double)batch.count;
    }
    if (status != LS_END) return status;
    const double seconds = now_s() - start;
    if ((status = ls_group_all_reduce(t->group, sums, 2, LS_F64, LS_SUM, NULL))) return status;
    figures[TRAIN_LOSS] = sums[0] / sums[1];
    figures[IMAGES_PER_S] = sums[1] / seconds;
    figures[STEP_MS] = 1000 * seconds / (double)steps;
    return LS_OK;
}

/* ---- The test ---- */

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

/* ---- The whole training ---- */

typedef struct probe {
    replica replica;
    ls_batch batch;
} probe;

static ls_status probe_step(void *context) {
    probe *p = context;
    double ignored = 0;
    return train_step(&p->replica, &p->batch, &ignored);
}

/* Trains a throw-away replica for some steps; afterwards nothing is as if it had been. */
static ls_status measure_communication(training *t) {
    const uint64_t step_number = ls_step_number();
    const ls_loader_options taken = {.batch = t->options.batch, .rank = t->rank, .world_size = t->world_size};
    probe p;
    ls_loader *loader = NULL;
    if (t->world_size == 1) return LS_OK;
    ls_status status = replica_create(&p.replica, &t->options, t->group);
    if (status) return status;
    status = ls_loader_create(&loader, &t->images, &taken);
    if (!status) status = ls_loader_next(loader, &p.batch);
    if (!status) status = exposed_measure(&t->exposed, t->group, p.replica.ddp, probe_step, &p);
    if (!status)
        results_say(&t->results, "exposed communication: %.2f of %.2f ms, %.1f%% of a step\n", t->exposed.exposed_ms,
                    t->exposed.step_ms, 100 * t->exposed.exposed_ms / t->exposed.step_ms);
    ls_loader_close(&loader);
    replica_close(&p.replica);
    ls_seed_set(t->options.seed);
    ls_step_number_set(step_number);
    return status;
}

static ls_status save(const training *t) {
    ls_checkpoint_state state = {.step = ls_step_number(), .seed = t->options.seed, .lr = t->options.lr};
    ls_loader_position(t->loader, &state.epoch, &state.batch);
    return ls_checkpoint_save(CHECKPOINT, t->replica.net, t->replica.sgd, &state);
}

static ls_status train(training *t) {
    int64_t parameters = 0, epoch = 0;
    for (int i = 0; i < ls_module_parameter_count(t->replica.net); i++)
        parameters += ls_tensor_numel(ls_module_parameter(t->replica.net, i));
    results_say(&t->results, "%s, %" PRId64 " parameters; %" PRId64 " images, %d x %" PRId64 " a step\n",
                t->options.model, parameters, t->images.count, t->world_size, t->options.batch);
    ls_status status = measure_communication(t);
    ls_loader_position(t->loader, &epoch, NULL);
    for (; !status && epoch < t->options.epochs; epoch++) {
        double figures[FIGURES] = {[EPOCH] = (double)epoch + 1, [EXPOSED_COMM_MS] = t->exposed.exposed_ms};
        const double start = now_s();
        if ((status = train_epoch(t, epoch, figures))) break;
        if ((status = test(t, &figures[TEST_ACCURACY]))) break;
        figures[SECONDS] = now_s() - start;
        if (t->rank == 0 && (status = save(t))) break; /* replicas are equal */
        results_end_epoch(&t->results, figures);
    }
    const ls_status stopped = ls_trace_stop(); /* the epoch may have ended before the traced steps did */
    return status ? status : stopped;
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

static void close_all(training *t) {
    ls_loader_close(&t->loader);
    ls_loader_close(&t->test_loader);
    ls_dataset_close(&t->images);
    ls_dataset_close(&t->tests);
    replica_close(&t->replica);
    ls_group_close(&t->group);
    results_close(&t->results);
}

int main(int argc, char **argv) {
    training t = {.options = options_read(argc, argv)};
    bool is_open = false;
    ls_status status = ls_group_open(&t.group, NULL); /* from the environment, else a world of one */
    if (!status) {
        t.rank = ls_group_rank(t.group);
        t.world_size = ls_group_world_size(t.group);
        status = prepare(&t);
    }
    /* Only now: what the user named in the options lies where the program was started. */
    if (!status) is_open = results_open(&t.results, &t.options, t.rank, t.world_size);
    if (is_open) status = train(&t);
    if (status) fprintf(stderr, "train_image: %s\n", ls_last_error());
    close_all(&t);
    if (status || !is_open) return 1;
    results_conclude(&t.results);
    return 0;
}
