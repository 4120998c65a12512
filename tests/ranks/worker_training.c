/* A rank's share of the training that oracle_training.c runs whole. Every rank writes FILE.digest.RANK, a digest of
 * parameters and optimizer state after every step; rank 0 writes FILE.parameters at the end and FILE.snapshots
 * (parameters before and gradients after the backward of a step, in turn). */
#include "ranks/plain_training.h"

#include <lockstep/ddp.h>

static FILE *open_file(const training_run *training, const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", training->file, what);
    FILE *file = fopen(path, "wb");
    if (!file) exit(1);
    return file;
}

static void micro_step(const training_run *training, ls_ddp *ddp, ls_module *module, int step, int micro, int rank) {
    const bool is_last = micro == training->micro_steps - 1;
    if (!is_last) ls_ddp_no_sync_begin(ddp);
    ls_step_begin();
    training_forward_backward(training, module, step, micro, rank, 1);
    TRAINING_CHECK(ls_step_end());
    if (!is_last) ls_ddp_no_sync_end(ddp);
}

int main(int argc, char **argv) {
    if (argc != 11) return 2;
    const training_run training = training_from(argv);
    ls_group *group = NULL;
    ls_ddp *ddp = NULL;
    TRAINING_CHECK(ls_group_open(&group, NULL));
    const int rank = ls_group_rank(group);
    ls_module *module = training_model(&training);
    TRAINING_CHECK(ls_ddp_wrap(&ddp, module, group, &(ls_ddp_options){.bucket_cap_bytes = training.cap_bytes}));
    ls_optim *optim = training_optimizer(&training, module);
    char name[32];
    snprintf(name, sizeof name, "digest.%d", rank);
    FILE *digests = open_file(&training, name), *snapshots = rank == 0 ? open_file(&training, "snapshots") : NULL;
    for (int step = 0; step < training.steps; step++) {
        const bool takes_snapshot = snapshots && training_snapshot_is_due(&training, step);
        if (takes_snapshot) training_write_parameters(snapshots, module);
        for (int micro = 0; micro < training.micro_steps; micro++)
            micro_step(&training, ddp, module, step, micro, rank);
        if (takes_snapshot) training_write_gradients(snapshots, module);
        TRAINING_CHECK(ls_optim_step(optim));
        ls_optim_zero_grad(optim);
        fprintf(digests, "%016llx\n", (unsigned long long)training_digest(module, optim));
    }
    if (rank == 0) {
        FILE *parameters = open_file(&training, "parameters");
        training_write_parameters(parameters, module);
        fclose(parameters);
        fclose(snapshots);
    }
    fclose(digests);
    ls_optim_close(&optim);
    ls_ddp_close(&ddp);
    ls_module_close(&module);
    ls_group_close(&group);
    return 0;
}
