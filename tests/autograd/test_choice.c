/* test_choice.c: a choice of kernels that cannot be met fails the op, naming the variable. In a program of its own: the
 * choice is read once. */
#include "autograd/small.h"

#include <stdlib.h>

static void kernels_that_do_not_exist_fail_the_op(void **state) {
    (void)state;
    setenv("LOCKSTEP_KERNELS", "abacus", 1);
    ls_tensor *a = number(true, 1);
    ls_step_begin();
    assert_null(ls_relu(a));
    assert_int_equal(ls_step_end(), LS_ERR_ENVIRONMENT);
    assert_error_says("LOCKSTEP_KERNELS=abacus");
    ls_tensor_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_that_do_not_exist_fail_the_op)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
