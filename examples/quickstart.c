/* quickstart.c: the example of section 3.1 of arXiv 2006.15704. The README shows which of its lines make it parallel.
 *
 *     build/bin/lockstep run -n 2 build/examples/quickstart                                                          */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

int main(void) {
    float inputs[20 * 10], targets[20 * 10];
    ls_group *group = NULL;
    ls_ddp *ddp = NULL;
    ls_module *net = NULL;
    ls_optim *sgd = NULL;
    ls_tensor *x = NULL, *y = NULL;
    ls_status s;

    if ((s = ls_group_open(&group, NULL))) goto out; /* all ranks of the job; started alone, a world of one */
    srand(1 + (unsigned)ls_group_rank(group));       /* each rank has samples of its own */
    for (int i = 0; i < 20 * 10; i++) {
        inputs[i] = (float)rand() / (float)RAND_MAX;
        targets[i] = (float)rand() / (float)RAND_MAX;
    }
    if ((s = ls_tensor_borrow(&x, LS_F32, 2, (int64_t[]){20, 10}, LS_LAYOUT_PLAIN, inputs, NULL, NULL))) goto out;
    if ((s = ls_tensor_borrow(&y, LS_F32, 2, (int64_t[]){20, 10}, LS_LAYOUT_PLAIN, targets, NULL, NULL))) goto out;
    if ((s = ls_linear_create(&net, 10, 10, NULL))) goto out;
    if ((s = ls_ddp_wrap(&ddp, net, group, NULL))) goto out; /* from here on gradients are averages over the ranks */
    if ((s = ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.01}))) goto out;

    for (int step = 0; step < 100; step++) {
        ls_step_begin();
        ls_tensor *loss = ls_mse_loss(ls_module_forward(net, x), y);
        ls_backward(loss);
        ls_optim_step(sgd);
        ls_optim_zero_grad(sgd);
        if (step % 50 == 49) printf("step %d: loss %.4f\n", step + 1, ls_tensor_item(loss));
        if ((s = ls_step_end())) goto out; /* the one check: the first error of the step */
    }
    printf("first weight %.7f\n", ((const float *)ls_tensor_data(ls_module_parameter(net, 0)))[0]);
out:
    if (s) fprintf(stderr, "quickstart: %s\n", ls_last_error());
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
    ls_tensor_close(&x);
    ls_tensor_close(&y);
    ls_group_close(&group);
    return s ? 1 : 0;
}
