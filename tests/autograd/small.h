/* small.h: little tensors for the tests of the tape. */
#ifndef LS_TEST_AUTOGRAD_SMALL_H
#define LS_TEST_AUTOGRAD_SMALL_H

#include "support/test.h"

#include <lockstep/autograd.h>

#include <math.h>
#include <string.h>

/* A vector of f64; a leaf that requires gradients if wanted. */
static inline ls_tensor *vector(bool requires_grad, int64_t count, const double *values) {
    ls_tensor *tensor = NULL;
    assert_int_equal(ls_tensor_create(&tensor, LS_F64, 1, &count), LS_OK);
    assert_int_equal(ls_tensor_copy_in(tensor, values), LS_OK);
    if (requires_grad) assert_int_equal(ls_tensor_set_requires_grad(tensor, true), LS_OK);
    return tensor;
}

static inline ls_tensor *number(bool requires_grad, double value) {
    return vector(requires_grad, 1, &value);
}

static inline double grad_of(const ls_tensor *leaf) {
    assert_non_null(ls_tensor_grad(leaf));
    return ls_tensor_item(ls_tensor_grad(leaf));
}

#define assert_near(found, expected, tolerance) near_or_fail(found, expected, tolerance, __FILE__, __LINE__)
static inline void near_or_fail(double found, double expected, double tolerance, const char *file, int line) {
    if (fabs(found - expected) <= tolerance) return;
    print_error("%.17g, expected %.17g within %g\n", found, expected, tolerance);
    _fail(file, line);
}

/* The thread's last error holds the words. */
static inline void assert_error_says(const char *words) {
    if (strstr(ls_last_error(), words)) return;
    print_error("expected \"%s\" in \"%s\"\n", words, ls_last_error());
    fail();
}

#endif
