/* A program outside the tree, built against the installed library by test_install.sh: two steps of a wrapped linear
 * model as a world of one, through what is public alone. y = w x with w = 0, x = 1 and targets of 1: each step of rate
 * 1/4 on (w - 1)^2 halves what is left, so w is 1/2, then 3/4. The last line is the library's version. */
#include <lockstep/lockstep.h>

#include <stdio.h>

static ls_status train(ls_module *net, ls_optim *sgd, ls_tensor *x, ls_tensor *y) {
    ls_step_begin();
    ls_backward(ls_mse_loss(ls_module_forward(net, x), y));
    ls_optim_step(sgd);
    ls_optim_zero_grad(sgd);
    return ls_step_end();
}

int main(void) {
    ls_group *group = NULL;
    ls_ddp *ddp = NULL;
    ls_module *net = NULL;
    ls_optim *sgd = NULL;
    ls_tensor *x = NULL, *y = NULL;
    const int64_t dims[] = {3, 1};
    const double ones[] = {1, 1, 1}, zero = 0;
    double weight = 0;
    const ls_layer_options options = {.dtype = LS_F64, .without_bias = true};
    ls_status status = ls_group_open(&group, NULL);
    if (!status) status = ls_tensor_create(&x, LS_F64, 2, dims);
    if (!status) status = ls_tensor_create(&y, LS_F64, 2, dims);
    if (!status) status = ls_tensor_copy_in(x, ones);
    if (!status) status = ls_tensor_copy_in(y, ones);
    if (!status) status = ls_linear_create(&net, 1, 1, &options);
    if (!status) status = ls_tensor_copy_in(ls_module_parameter(net, 0), &zero);
    if (!status) status = ls_ddp_wrap(&ddp, net, group, NULL);
    if (!status) status = ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.25});
    for (int step = 0; step < 2 && !status; step++) status = train(net, sgd, x, y);
    if (!status) status = ls_tensor_copy_out(ls_module_parameter(net, 0), &weight);
    if (status) fprintf(stderr, "outside: %s\n", ls_last_error());
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
    ls_tensor_close(&x);
    ls_tensor_close(&y);
    ls_group_close(&group);
    if (!status && weight != 0.75) fprintf(stderr, "outside: the weight is %.17g after two steps, not 0.75\n", weight);
    if (status || weight != 0.75) return 1;
    puts(ls_version());
    return 0;
}
