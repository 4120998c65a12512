/* worker_ddp.c: a rank that trains, for test_ddp.c: worker_ddp STEPS. A model with a buffer, a bucket a parameter, so
 * that every point of the room is passed. A failure is printed as "error STATUS: SENTENCE", and the exit code is 3. */
#include "support/faults.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

static void check(ls_status status) {
    if (status == LS_OK) return;
    printf("error %s: %s\n", ls_status_name(status), ls_last_error());
    fflush(stdout);
    exit(3);
}

static void train(ls_module *module, ls_optim *sgd, int steps) {
    ls_tensor *x = NULL, *y = NULL;
    check(ls_tensor_create(&x, LS_F32, 2, (int64_t[]){4, 784}));
    check(ls_tensor_create(&y, LS_I64, 1, (int64_t[]){4}));
    for (int step = 0; step < steps; step++) {
        ls_step_begin();
        ls_backward(ls_cross_entropy_loss(ls_module_forward(module, x), y));
        ls_optim_step(sgd);
        ls_optim_zero_grad(sgd);
        check(ls_step_end());
        if (step == 3) puts("ready"), fflush(stdout);
    }
    ls_tensor_close(&x);
    ls_tensor_close(&y);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    ls_kill_at_point_from_environment();
    ls_group *group = NULL;
    ls_module *module = NULL;
    ls_tensor *buffer = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    check(ls_group_open(&group, NULL));
    check(ls_mlp_create(&module, NULL));
    check(ls_tensor_create(&buffer, LS_F32, 1, (int64_t[]){10}));
    check(ls_module_add_buffer(module, "statistics", buffer));
    check(ls_ddp_wrap(&ddp, module, group, &(ls_ddp_options){.bucket_cap_bytes = 1}));
    check(ls_sgd_create(&sgd, module, &(ls_sgd_options){.lr = 0.01}));
    train(module, sgd, atoi(argv[1]));
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&module);
    ls_group_close(&group);
    puts("done");
    return 0;
}
