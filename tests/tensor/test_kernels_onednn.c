/* test_kernels_onednn.c: what the oneDNN shim keeps between calls, and that it lets go of it. That its results are
 * right is test_kernels.c's. Without oneDNN all tests are skipped. */
#include "support/faults.h"
#include "tensor/arrays.h"

#include "base/memory.h"
#include "base/thread.h"

static const kernels_conv2d conv = {2, 3, 8, 8, 5, 3, 3, 1, 1};
enum { CONV_X = 2 * 8 * 8 * 3, CONV_W = 3 * 3 * 3 * 5, CONV_B = 5, CONV_Y = 2 * 8 * 8 * 5 };
static const kernels_linear linear = {4, 33, 7};
enum { LINEAR_X = 4 * 33, LINEAR_W = 33 * 7, LINEAR_B = 7, LINEAR_Y = 4 * 7 };

static const ls_kernels *table;

static int open(void **state) {
    (void)state;
    table = kernels_onednn(LS_F32);
    random_open();
    return 0;
}

static void need_onednn(void) {
    if (!table) LS_SKIP("oneDNN is not built in");
}

static void draw(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = (float)random_value();
}

/* All that a step calls, once: its first failure. */
static ls_status run_everything(void) {
    static _Thread_local float x[CONV_X], w[CONV_W], b[CONV_B], y[CONV_Y], dx[CONV_X], dw[CONV_W], db[CONV_B];
    static _Thread_local float lx[LINEAR_X], lw[LINEAR_W], lb[LINEAR_B], ly[LINEAR_Y], ldx[LINEAR_X], ldw[LINEAR_W];
    const kernels_target weight = {dw, true}, bias = {db, false}, linear_weight = {ldw, true},
                         linear_bias = {lb, false};
    ls_status status = table->conv2d_forward(&conv, x, w, 1, b, y);
    if (status == LS_OK) status = table->conv2d_backward_data(&conv, y, w, 1, dx);
    if (status == LS_OK) status = table->conv2d_backward_weight(&conv, x, y, weight, bias);
    if (status == LS_OK) status = table->linear_forward(&linear, lx, lw, lb, ly);
    if (status == LS_OK) status = table->linear_backward_data(&linear, ly, lw, ldx);
    if (status == LS_OK) status = table->linear_backward_weight(&linear, lx, ly, linear_weight, linear_bias);
    return status;
}

static void a_shape_seen_before_allocates_nothing(void **state) {
    (void)state;
    need_onednn();
    assert_int_equal(run_everything(), LS_OK);
    const uint64_t allocated = ls_alloc_count();
    for (int round = 0; round < 10; round++) assert_int_equal(run_everything(), LS_OK);
    assert_int_equal(ls_alloc_count(), allocated);
}

static void weights_are_packed_anew_when_their_version_changes(void **state) {
    (void)state;
    need_onednn();
    float x[CONV_X], w[CONV_W], before[CONV_Y], y[CONV_Y], after[CONV_Y], dx[CONV_X], data_after[CONV_X];
    draw(x, CONV_X);
    draw(w, CONV_W);
    assert_int_equal(table->conv2d_forward(&conv, x, w, 7, NULL, before), LS_OK);
    assert_int_equal(table->conv2d_backward_data(&conv, before, w, 7, dx), LS_OK);
    draw(w, CONV_W);
    assert_int_equal(kernels_reference(LS_F32)->conv2d_forward(&conv, x, w, 0, NULL, after), LS_OK);
    assert_int_equal(kernels_reference(LS_F32)->conv2d_backward_data(&conv, before, w, 0, data_after), LS_OK);

    /* Under the old version the packed copy serves, which shows that there is one. */
    assert_int_equal(table->conv2d_forward(&conv, x, w, 7, NULL, y), LS_OK);
    assert_memory_equal(y, before, sizeof y);
    /* A new version, and none, see the new content. */
    const uint64_t versions[] = {8, 0};
    for (int v = 0; v < 2; v++) {
        assert_int_equal(table->conv2d_forward(&conv, x, w, versions[v], NULL, y), LS_OK);
        for (int i = 0; i < CONV_Y; i++) assert_true(fabsf(y[i] - after[i]) < 1e-4F);
        assert_int_equal(table->conv2d_backward_data(&conv, before, w, versions[v], dx), LS_OK);
        for (int i = 0; i < CONV_X; i++) assert_true(fabsf(dx[i] - data_after[i]) < 1e-4F);
    }
    /* Version 0 promises nothing, twice in a row neither. */
    memset(w, 0, sizeof w);
    assert_int_equal(table->conv2d_forward(&conv, x, w, 0, NULL, y), LS_OK);
    for (int i = 0; i < CONV_Y; i++) assert_true(y[i] == 0);
}

/* More shapes, and more weights, than are kept: the oldest go, results stay right, memory stays bounded. */
static void what_is_kept_is_bounded(void **state) {
    (void)state;
    need_onednn();
    kernels_thread_release();
    static float x[300], w[300 * 8], y[8];
    draw(x, 300);
    draw(w, 300 * 8);
    const uint64_t live = ls_alloc_live();
    for (int64_t in = 1; in <= 300; in++) {
        const kernels_linear shape = {1, in, 8};
        float expected[8];
        assert_int_equal(table->linear_forward(&shape, x, w, NULL, y), LS_OK);
        assert_int_equal(kernels_reference(LS_F32)->linear_forward(&shape, x, w, NULL, expected), LS_OK);
        for (int i = 0; i < 8; i++) assert_true(fabsf(y[i] - expected[i]) < 1e-3F);
    }
    assert_true(ls_alloc_live() - live <= 128 + 2); /* plans, the session, its scratch */

    static float weights[300][CONV_W], conv_x[CONV_X], conv_y[CONV_Y];
    for (int k = 0; k < 300; k++) {
        weights[k][0] = 1;
        assert_int_equal(table->conv2d_forward(&conv, conv_x, weights[k], 1, NULL, conv_y), LS_OK);
    }
    assert_true(ls_alloc_live() - live <= 128 + 128 + 2);
    kernels_thread_release();
    assert_int_equal(ls_alloc_live(), live);
}

static void thread_body(void *argument) {
    *(ls_status *)argument = run_everything();
}

static void a_thread_that_ends_leaves_nothing(void **state) {
    (void)state;
    need_onednn();
    const uint64_t live = ls_alloc_live();
    ls_thread threads[3] = {0};
    ls_status statuses[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_thread_start(&threads[i], "kernels", thread_body, &statuses[i]), LS_OK);
    }
    for (int i = 0; i < 3; i++) {
        ls_thread_join(&threads[i]);
        assert_int_equal(statuses[i], LS_OK);
    }
    assert_int_equal(ls_alloc_live(), live);
}

/* Every allocation of ours fails in turn; the run after each succeeds on what is kept. */
static void refused_memory_is_an_error_and_leaves_nothing(void **state) {
    (void)state;
    need_onednn();
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        kernels_thread_release();
        const ls_status status = run_everything();
        if (ls_fault_was_met()) assert_int_equal(status, LS_ERR_MEMORY);
        ls_fault_disarm();
        assert_int_equal(run_everything(), LS_OK);
        kernels_thread_release();
    }
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_seen_before_allocates_nothing),
        cmocka_unit_test(weights_are_packed_anew_when_their_version_changes),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(a_thread_that_ends_leaves_nothing),
        cmocka_unit_test(refused_memory_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("kernels_onednn", tests, open, NULL);
}
