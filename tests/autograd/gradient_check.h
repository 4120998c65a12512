/* gradient_check.h: gradients against central finite differences, for any function of a few tensors.
 *
 * The function's output is weighted element by element and summed, so that every element has a gradient of its own. The
 * differences are taken in f64; the f32 gradients are compared with the f64 ones.                                    */
#ifndef LS_TEST_GRADIENT_CHECK_H
#define LS_TEST_GRADIENT_CHECK_H

#include "support/test.h"

#include "autograd/observer.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Random numbers of the tests: splitmix64, from a printed seed or that of LOCKSTEP_TEST_SEED ---- */

static uint64_t check_state;

static inline uint64_t check_next(void) {
    uint64_t z = check_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline void check_seed(void) {
    const char *wanted = getenv("LOCKSTEP_TEST_SEED");
    check_state = wanted ? strtoull(wanted, NULL, 10) : (uint64_t)time(NULL);
    print_message("LOCKSTEP_TEST_SEED=%llu\n", (unsigned long long)check_state);
}

static inline int64_t check_between(int64_t low, int64_t high) {
    return low + (int64_t)(check_next() % (uint64_t)(high - low + 1));
}

static inline double check_uniform(void) { /* in [-1, 1), a float */
    return (double)((int64_t)(check_next() >> 40) - (1 << 23)) / (1 << 23);
}

/* ---- A function under test ---- */

#define CHECK_MOST_INPUTS 3

typedef struct check_input {
    int ndim;
    int64_t dims[LS_MAX_DIMS];
    ls_layout layout;
    bool is_distinct;  /* all values differ by more than the differences' step, and from 0: for kinks and maxima */
    bool without_grad; /* a constant */
} check_input;

typedef struct check_case {
    const char *name;
    int input_count;
    check_input inputs[CHECK_MOST_INPUTS];
    ls_tensor *(*apply)(ls_tensor *const *inputs, const void *config);
    const void *config;
} check_case;

static inline int64_t check_numel(const check_input *input) {
    int64_t numel = 1;
    for (int i = 0; i < input->ndim; i++) numel *= input->dims[i];
    return numel;
}

/* Zeroed, so that no tool takes an element for unset; the caller frees them. */
static inline double *check_doubles(int64_t count) {
    double *values = calloc((size_t)count + 1, sizeof(double));
    assert_non_null(values);
    return values;
}

/* Values in logical order. */
static inline double *check_values(const check_input *input) {
    const int64_t numel = check_numel(input), half = numel / 2;
    double *values = check_doubles(numel);
    for (int64_t i = 0; i < numel; i++)
        values[i] = input->is_distinct ? ((double)(i - half) + 0.5) / 64 : check_uniform();
    for (int64_t i = numel - 1; i > 0 && input->is_distinct; i--) {
        const int64_t other = check_between(0, i);
        const double held = values[i];
        values[i] = values[other];
        values[other] = held;
    }
    return values;
}

static inline void check_fill(ls_tensor *tensor, const double *values) {
    if (ls_tensor_dtype(tensor) == LS_F64) {
        assert_int_equal(ls_tensor_copy_in(tensor, values), LS_OK);
        return;
    }
    const int64_t numel = ls_tensor_numel(tensor);
    float *narrow = calloc((size_t)numel + 1, sizeof(float));
    for (int64_t i = 0; i < numel; i++) narrow[i] = (float)values[i];
    assert_int_equal(ls_tensor_copy_in(tensor, narrow), LS_OK);
    free(narrow);
}

static inline double *check_read(const ls_tensor *tensor) {
    const int64_t numel = ls_tensor_numel(tensor);
    double *values = check_doubles(numel);
    if (ls_tensor_dtype(tensor) == LS_F64) {
        assert_int_equal(ls_tensor_copy_out(tensor, values), LS_OK);
        return values;
    }
    float *narrow = calloc((size_t)numel + 1, sizeof(float));
    assert_int_equal(ls_tensor_copy_out(tensor, narrow), LS_OK);
    for (int64_t i = 0; i < numel; i++) values[i] = (double)narrow[i];
    free(narrow);
    return values;
}

static inline ls_tensor *check_tensor(const check_input *input, ls_dtype dtype, const double *values) {
    ls_tensor *tensor = NULL;
    assert_int_equal(ls_tensor_create_layout(&tensor, dtype, input->ndim, input->dims, input->layout), LS_OK);
    check_fill(tensor, values);
    return tensor;
}

/* Weights that differ from element to element, of the output's shape. */
static inline ls_tensor *check_weights(const ls_tensor *output) {
    ls_tensor *weights = NULL;
    assert_int_equal(tensor_create_raw(&weights, output->dtype, output->ndim, output->dims, output->layout), LS_OK);
    double *values = check_doubles(output->numel);
    for (int64_t i = 0; i < output->numel; i++) values[i] = (double)(float)(1 + 0.5 * sin((double)i + 1));
    check_fill(weights, values);
    free(values);
    return weights;
}

/* The weighted sum, inside a step. */
static inline ls_tensor *check_loss(const check_case *test, ls_tensor *const *inputs) {
    ls_tensor *output = test->apply(inputs, test->config);
    if (!output) {
        print_error("%s: %s\n", test->name, ls_last_error());
        fail();
        return NULL;
    }
    ls_tensor *weights = check_weights(output);
    ls_tensor *loss = ls_sum(ls_mul(output, weights));
    ls_tensor_close(&weights);
    return loss;
}

static inline double check_loss_value(const check_case *test, ls_tensor *const *inputs) {
    ls_step_begin();
    ls_no_grad_begin();
    const double value = ls_tensor_item(check_loss(test, inputs));
    ls_no_grad_end();
    assert_int_equal(ls_step_end(), LS_OK);
    return value;
}

static inline void check_backward(const check_case *test, ls_tensor *const *inputs) {
    ls_step_begin();
    const ls_status status = ls_backward(check_loss(test, inputs));
    if (status != LS_OK) print_error("%s: %s\n", test->name, ls_last_error());
    assert_int_equal(status, LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
}

/* d loss / d inputs[which], by central differences. */
static inline double *check_differences(const check_case *test, ls_tensor *const *inputs, int which, double *values) {
    const double step = 1e-5;
    const int64_t numel = check_numel(&test->inputs[which]);
    double *slopes = check_doubles(numel);
    for (int64_t i = 0; i < numel; i++) {
        const double middle = values[i];
        values[i] = middle + step;
        check_fill(inputs[which], values);
        const double above = check_loss_value(test, inputs);
        values[i] = middle - step;
        check_fill(inputs[which], values);
        slopes[i] = (above - check_loss_value(test, inputs)) / (2 * step);
        values[i] = middle;
    }
    check_fill(inputs[which], values);
    return slopes;
}

static inline void check_close(const check_case *test, const char *what, int which, int64_t numel, const double *found,
                               const double *expected, double factor, double tolerance) {
    double largest = 1e-3;
    for (int64_t i = 0; i < numel; i++) largest = fmax(largest, fabs(factor * expected[i]));
    for (int64_t i = 0; i < numel; i++) {
        if (fabs(found[i] - factor * expected[i]) <= tolerance * largest) continue;
        print_error("%s: %s: input %d, element %lld of %lld: %.12g, expected %.12g\n", test->name, what, which,
                    (long long)i, (long long)numel, found[i], factor * expected[i]);
        fail();
    }
}

static inline void check_grads(const check_case *test, const char *what, ls_tensor *const *inputs,
                               double *const *expected, double factor, double tolerance) {
    for (int k = 0; k < test->input_count; k++) {
        if (test->inputs[k].without_grad) continue;
        ls_tensor *grad = ls_tensor_grad(inputs[k]);
        assert_non_null(grad);
        assert_true(tensor_is_alike(grad, inputs[k]));
        double *found = check_read(grad);
        check_close(test, what, k, check_numel(&test->inputs[k]), found, expected[k], factor, tolerance);
        free(found);
    }
}

/* One dtype: stored, accumulated by a second backward, and the same in a home that held rubbish. */
static inline void check_ways(const check_case *test, ls_dtype dtype, double *const *values, double *const *expected,
                              double tolerance) {
    ls_tensor *inputs[CHECK_MOST_INPUTS] = {NULL}, *homes[CHECK_MOST_INPUTS] = {NULL};
    for (int k = 0; k < test->input_count; k++) {
        inputs[k] = check_tensor(&test->inputs[k], dtype, values[k]);
        if (!test->inputs[k].without_grad) assert_int_equal(ls_tensor_set_requires_grad(inputs[k], true), LS_OK);
    }
    check_backward(test, inputs);
    check_grads(test, "stored", inputs, expected, 1, tolerance);
    check_backward(test, inputs);
    check_grads(test, "accumulated", inputs, expected, 2, tolerance);

    for (int k = 0; k < test->input_count; k++) {
        if (test->inputs[k].without_grad) continue;
        homes[k] = check_tensor(&test->inputs[k], dtype, values[k]);
        ls_tensor_zero_grad(inputs[k]);
        assert_null(ls_tensor_grad(inputs[k]));
        assert_int_equal(autograd_leaf_set_home(inputs[k], homes[k]), LS_OK);
    }
    check_backward(test, inputs);
    check_grads(test, "stored in its home", inputs, expected, 1, tolerance);
    for (int k = 0; k < test->input_count; k++)
        if (homes[k]) assert_ptr_equal(ls_tensor_data(ls_tensor_grad(inputs[k])), ls_tensor_data(homes[k]));
    check_backward(test, inputs);
    check_grads(test, "accumulated in its home", inputs, expected, 2, tolerance);
    for (int k = 0; k < test->input_count; k++) {
        ls_tensor_close(&inputs[k]);
        ls_tensor_close(&homes[k]);
    }
}

/* Each input alone: what the others' gradients would have needed is not there. */
static inline void check_alone(const check_case *test, double *const *values, double *const *expected) {
    for (int only = 0; only < test->input_count; only++) {
        if (test->inputs[only].without_grad) continue;
        check_case single = *test;
        ls_tensor *inputs[CHECK_MOST_INPUTS] = {NULL};
        for (int k = 0; k < test->input_count; k++) {
            single.inputs[k].without_grad = k != only;
            inputs[k] = check_tensor(&test->inputs[k], LS_F64, values[k]);
        }
        assert_int_equal(ls_tensor_set_requires_grad(inputs[only], true), LS_OK);
        check_backward(&single, inputs);
        check_grads(&single, "alone", inputs, expected, 1, 1e-12);
        for (int k = 0; k < test->input_count; k++) ls_tensor_close(&inputs[k]);
    }
}

static inline void check_gradients(const check_case *test) {
    double *values[CHECK_MOST_INPUTS] = {NULL}, *exact[CHECK_MOST_INPUTS] = {NULL}, *slopes[CHECK_MOST_INPUTS] = {NULL};
    ls_tensor *inputs[CHECK_MOST_INPUTS] = {NULL};
    for (int k = 0; k < test->input_count; k++) {
        values[k] = check_values(&test->inputs[k]);
        inputs[k] = check_tensor(&test->inputs[k], LS_F64, values[k]);
    }
    for (int k = 0; k < test->input_count; k++) {
        if (test->inputs[k].without_grad) continue;
        slopes[k] = check_differences(test, inputs, k, values[k]);
        assert_int_equal(ls_tensor_set_requires_grad(inputs[k], true), LS_OK);
    }
    check_backward(test, inputs);
    check_grads(test, "against differences", inputs, slopes, 1, 1e-7);
    for (int k = 0; k < test->input_count; k++)
        if (!test->inputs[k].without_grad) exact[k] = check_read(ls_tensor_grad(inputs[k]));
    check_ways(test, LS_F64, values, exact, 1e-12);
    check_ways(test, LS_F32, values, exact, 2e-5);
    check_alone(test, values, exact);
    for (int k = 0; k < CHECK_MOST_INPUTS; k++) {
        ls_tensor_close(&inputs[k]);
        free(values[k]);
        free(exact[k]);
        free(slopes[k]);
    }
}

#endif
