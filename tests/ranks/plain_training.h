/* plain_training.h: the training that the equality tests compare: a model, data drawn by sample number, a step.
 *
 * oracle_training.c runs it whole in one process and links neither ddp nor group; worker_training.c runs a rank's share
 * under a wrap. Sample s of the run is the same numbers everywhere, so that N ranks of B samples see what one process
 * of N B sees. */
#ifndef LS_TEST_PLAIN_TRAINING_H
#define LS_TEST_PLAIN_TRAINING_H

#include "base/digest.h"

#include <lockstep/autograd.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* argv: MODEL DTYPE OPTIMIZER STEPS MICRO_STEPS BATCH PARTS CAP_BYTES SNAPSHOTS FILE. A part is a rank's share. */
typedef struct training_run {
    const char *model, *optimizer, *file;
    ls_dtype dtype;
    int steps;
    int micro_steps; /* the last one synchronises */
    int batch;       /* of one part */
    int parts;
    size_t cap_bytes;
    int snapshots; /* states written along the run, evenly */
} training_run;

static inline training_run training_from(char **argv) {
    return (training_run){.model = argv[1],
                          .dtype = strcmp(argv[2], "f64") == 0 ? LS_F64 : LS_F32,
                          .optimizer = argv[3],
                          .steps = atoi(argv[4]),
                          .micro_steps = atoi(argv[5]),
                          .batch = atoi(argv[6]),
                          .parts = atoi(argv[7]),
                          .cap_bytes = (size_t)atoll(argv[8]),
                          .snapshots = atoi(argv[9]),
                          .file = argv[10]};
}

#define TRAINING_CHECK(call)                                                     \
    do {                                                                         \
        if ((call) != LS_OK) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, ls_last_error()); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

/* A number in [0, 1) for (sample, position): splitmix64's finaliser. */
static inline double training_draw(uint64_t sample, uint64_t position) {
    uint64_t z = sample * UINT64_C(0x9e3779b97f4a7c15) + position * UINT64_C(0xd1342543de82ef95) + 12345;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static inline void training_fill(ls_tensor *tensor, const double *values) {
    const int64_t count = ls_tensor_numel(tensor);
    if (ls_tensor_dtype(tensor) == LS_F64) {
        TRAINING_CHECK(ls_tensor_copy_in(tensor, values));
        return;
    }
    float *narrow = malloc((size_t)(count ? count : 1) * sizeof *narrow);
    for (int64_t i = 0; i < count; i++) narrow[i] = (float)values[i];
    TRAINING_CHECK(ls_tensor_copy_in(tensor, narrow));
    free(narrow);
}

/* `count` samples from number `first` on. */
static inline void training_batch(const training_run *training, int64_t first, int64_t count, ls_tensor **x,
                                  ls_tensor **y) {
    const int64_t x_dims[] = {count, 1, 28, 28}, y_dims[] = {count};
    TRAINING_CHECK(ls_tensor_create_layout(x, training->dtype, 4, x_dims, LS_LAYOUT_NHWC));
    TRAINING_CHECK(ls_tensor_create(y, LS_I64, 1, y_dims));
    double *values = calloc((size_t)count * 784, sizeof *values);
    int64_t *labels = ls_tensor_data_mut(*y);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t pixel = 0; pixel < 784; pixel++)
            values[i * 784 + pixel] = training_draw((uint64_t)(first + i), (uint64_t)pixel) - 0.5;
        labels[i] = (int64_t)(training_draw((uint64_t)(first + i), 784) * 10);
    }
    training_fill(*x, values);
    free(values);
}

static inline ls_module *training_model(const training_run *training) {
    ls_module *module = NULL;
    const ls_layer_options options = {.dtype = training->dtype};
    ls_seed_set(7);
    TRAINING_CHECK(strcmp(training->model, "mlp") == 0 ? ls_mlp_create(&module, &options)
                                                       : ls_lenet_create(&module, &options));
    return module;
}

static inline ls_optim *training_optimizer(const training_run *training, ls_module *module) {
    ls_optim *optim = NULL;
    if (strcmp(training->optimizer, "sgd") == 0)
        TRAINING_CHECK(
            ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4}));
    else
        TRAINING_CHECK(ls_adamw_create(&optim, module, &(ls_adamw_options){.lr = 1e-3, .weight_decay = 1e-2}));
    return optim;
}

/* Samples of micro-step `micro` of step `step` for parts [part, part + parts). */
static inline void training_forward_backward(const training_run *training, ls_module *module, int step, int micro,
                                             int part, int parts) {
    ls_tensor *x = NULL, *y = NULL;
    const int64_t first = (((int64_t)step * training->micro_steps + micro) * training->parts + part) * training->batch;
    training_batch(training, first, (int64_t)parts * training->batch, &x, &y);
    ls_tensor *loss = ls_cross_entropy_loss(ls_module_forward(module, x), y);
    TRAINING_CHECK(ls_backward(ls_scale(loss, 1.0 / training->micro_steps)));
    ls_tensor_close(&x);
    ls_tensor_close(&y);
}

static inline void training_write(FILE *file, const ls_tensor *tensor) {
    const size_t count = (size_t)ls_tensor_numel(tensor);
    double *values = malloc((count ? count : 1) * sizeof *values);
    TRAINING_CHECK(ls_tensor_copy_out(tensor, values));
    if (ls_tensor_dtype(tensor) == LS_F32)
        for (size_t i = count; i-- > 0;) {
            float narrow;
            memcpy(&narrow, (char *)values + i * sizeof narrow, sizeof narrow);
            values[i] = (double)narrow;
        }
    if (fwrite(values, sizeof *values, count, file) != count) exit(1);
    free(values);
}

static inline void training_write_parameters(FILE *file, const ls_module *module) {
    for (int i = 0; i < ls_module_parameter_count(module); i++) training_write(file, ls_module_parameter(module, i));
}

static inline void training_write_gradients(FILE *file, const ls_module *module) {
    for (int i = 0; i < ls_module_parameter_count(module); i++)
        training_write(file, ls_tensor_grad(ls_module_parameter(module, i)));
}

/* Whether a snapshot is due before `step`. */
static inline bool training_snapshot_is_due(const training_run *training, int step) {
    return training->snapshots > 0 && step % (training->steps / training->snapshots) == 0;
}

/* Of what all replicas must share: parameters and optimizer state. */
static inline uint64_t training_digest(const ls_module *module, const ls_optim *optim) {
    uint64_t digest = LS_DIGEST_START;
    const int parameters = ls_module_parameter_count(module), states = ls_optim_state_count(optim);
    for (int i = 0; i < parameters + states; i++) {
        const ls_tensor *tensor =
            i < parameters ? ls_module_parameter(module, i) : ls_optim_state(optim, i - parameters);
        const size_t bytes = (size_t)ls_tensor_numel(tensor) * ls_dtype_size(ls_tensor_dtype(tensor));
        digest = ls_digest(digest, ls_tensor_data(tensor), bytes);
    }
    return digest;
}

#endif
