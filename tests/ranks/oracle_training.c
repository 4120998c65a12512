/* The oracle: a plain loop in one process on the whole batch. With SNAPSHOTS it reads the states that a run on ranks
 * wrote and gives the gradients of one step from each; without, it trains and gives the parameters at the end. */
#include "ranks/plain_training.h"

static void one_step(const training_run *training, ls_module *module, int step) {
    for (int micro = 0; micro < training->micro_steps; micro++) {
        ls_step_begin();
        training_forward_backward(training, module, step, micro, 0, training->parts);
        TRAINING_CHECK(ls_step_end());
    }
}

static void read_parameters(FILE *file, ls_module *module) {
    for (int i = 0; i < ls_module_parameter_count(module); i++) {
        ls_tensor *parameter = ls_module_parameter(module, i);
        const size_t count = (size_t)ls_tensor_numel(parameter);
        double *values = malloc((count ? count : 1) * sizeof *values);
        if (fread(values, sizeof *values, count, file) != count) exit(1);
        training_fill(parameter, values);
        free(values);
    }
}

/* FILE.snapshots holds parameters and gradients of rank 0 in turn; FILE gets the gradients of this process in turn. */
static void gradients_at_snapshots(const training_run *training, ls_module *module, ls_optim *optim, FILE *out) {
    char path[4096];
    snprintf(path, sizeof path, "%s.snapshots", training->file);
    FILE *in = fopen(path, "rb");
    if (!in) exit(1);
    long values = 0;
    for (int i = 0; i < ls_module_parameter_count(module); i++)
        values += (long)ls_tensor_numel(ls_module_parameter(module, i));
    for (int step = 0; step < training->steps; step++) {
        if (!training_snapshot_is_due(training, step)) continue;
        read_parameters(in, module);
        fseek(in, values * (long)sizeof(double), SEEK_CUR);
        one_step(training, module, step);
        training_write_gradients(out, module);
        ls_optim_zero_grad(optim);
    }
    fclose(in);
}

int main(int argc, char **argv) {
    if (argc != 11) return 2;
    const training_run training = training_from(argv);
    ls_module *module = training_model(&training);
    ls_optim *optim = training_optimizer(&training, module);
    char path[4096];
    snprintf(path, sizeof path, "%s.oracle", training.file);
    FILE *out = fopen(path, "wb");
    if (!out) return 1;
    if (training.snapshots > 0) {
        gradients_at_snapshots(&training, module, optim, out);
    } else {
        for (int step = 0; step < training.steps; step++) {
            one_step(&training, module, step);
            TRAINING_CHECK(ls_optim_step(optim));
            ls_optim_zero_grad(optim);
        }
        training_write_parameters(out, module);
    }
    fclose(out);
    ls_optim_close(&optim);
    ls_module_close(&module);
    return 0;
}
