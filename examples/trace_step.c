/* trace_step.c: five steps of LeNet as a Chrome trace, to see what overlaps what: one rank-N.json for each rank.
 *
 *     build/bin/lockstep run -n 2 build/examples/trace_step output/trace
 *     scripts/plot-step.sh output/trace output/step              draws one of the steps; or open the files in Perfetto
 *
 * A second argument is the buckets' size in KiB (1024): smaller buckets start earlier, larger ones are fewer.        */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

#define BATCH 64
#define WARM_UP_STEPS 20
#define TRACED_STEPS 5

static ls_status step(ls_module *net, ls_optim *sgd, ls_loader *loader) {
    ls_batch batch;
    const ls_status status = ls_loader_next(loader, &batch);
    if (status != LS_OK) return status;
    ls_step_begin();
    ls_backward(ls_cross_entropy_loss(ls_module_forward(net, batch.x), batch.y));
    ls_optim_step(sgd);
    ls_optim_zero_grad(sgd);
    return ls_step_end();
}

/* Ranks start the traced steps together, so that the picture shows one step and no late start. */
static ls_status trace(ls_module *net, ls_optim *sgd, ls_loader *loader, ls_group *group, const char *directory) {
    ls_status status = LS_OK;
    for (int i = 0; i < WARM_UP_STEPS && !status; i++) status = step(net, sgd, loader);
    if (!status) status = ls_group_barrier(group, NULL);
    if (!status) status = ls_trace_start(directory);
    for (int i = 0; i < TRACED_STEPS && !status; i++) status = step(net, sgd, loader);
    const ls_status stopped = ls_trace_stop();
    return status ? status : stopped;
}

int main(int argc, char **argv) {
    ls_group *group = NULL;
    ls_module *net = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    ls_loader *loader = NULL;
    ls_dataset images = {0};
    if (argc < 2) {
        fputs("usage: trace_step DIRECTORY [BUCKET_KIB]\n", stderr);
        return 2;
    }
    const ls_ddp_options options = {.bucket_cap_bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1024) << 10};
    ls_status status = ls_group_open(&group, NULL);
    if (!status) status = ls_dataset_open_fashion_mnist(&images, NULL, false);
    if (!status) status = ls_lenet_create(&net, NULL);
    if (!status) status = ls_ddp_wrap(&ddp, net, group, &options);
    if (!status) status = ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.05, .momentum = 0.9});
    if (!status) {
        const ls_loader_options dealt = {
            .batch = BATCH, .rank = ls_group_rank(group), .world_size = ls_group_world_size(group)};
        status = ls_loader_create(&loader, &images, &dealt);
    }
    if (!status) status = trace(net, sgd, loader, group, argv[1]);
    if (status) fprintf(stderr, "trace_step: %s\n", ls_last_error());
    ls_loader_close(&loader);
    ls_dataset_close(&images);
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
    ls_group_close(&group);
    return status ? 1 : 0;
}
