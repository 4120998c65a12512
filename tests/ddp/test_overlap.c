/* Overlap is real: over a backend that takes 50 ms an operation, backward computes while buckets are under way. Shown
 * by the times that the backend and the computation themselves took down, never by how long it all took. */
#include "support/test.h"

#include "base/clock.h"
#include "base/wait.h"
#include "ddp/scalar_model.h"
#include "group/backend.h"

#include <string.h>

#define OPERATION_NS (50 * LS_NS_PER_MS)
#define COMPUTE_NS (80 * LS_NS_PER_MS)
#define LAYERS 5

typedef struct interval {
    int64_t start_ns, end_ns;
} interval;

/* Taken down by the backend: sums over f64 are the buckets of the model below. Written under the group's driver, read
 * after everything is complete. */
static interval reductions[64];
static int reduction_count;
static interval computations[LAYERS];
static int computation_count;

/* ---- A world of one whose every operation takes its time ---- */

static void slow_start(void *state, backend_op *op) {
    solo_backend.start(state, op);
    op->scratch[0] = (uint64_t)ls_now_ns();
}

static backend_progress slow_poll(void *state, backend_op *op) {
    const int64_t start_ns = (int64_t)op->scratch[0], now_ns = ls_now_ns();
    (void)state;
    if (now_ns < start_ns + OPERATION_NS) return BACKEND_PENDING;
    if (op->call.kind == GROUP_ALL_REDUCE && op->call.dtype == LS_F64)
        reductions[reduction_count++] = (interval){start_ns, now_ns};
    return BACKEND_DONE;
}

static ls_status slow_examine(void *state, backend_op *op) {
    (void)state;
    (void)op;
    return LS_OK;
}

static uint32_t slow_bell(void *state) {
    (void)state;
    return 0;
}

static backend_progress slow_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    const int64_t end_ns = (int64_t)op->scratch[0] + OPERATION_NS;
    (void)bell;
    ls_sleep_until(end_ns < deadline_ns ? end_ns : deadline_ns);
    return slow_poll(state, op);
}

static ls_group *open_slow_group(void) {
    static ls_backend slow;
    slow = solo_backend;
    slow.name = "slow";
    slow.reach = LS_REACH_HOST; /* operations outlive their post, so the progress thread is wanted */
    slow.start = slow_start;
    slow.poll = slow_poll;
    slow.examine = slow_examine;
    slow.bell = slow_bell;
    slow.sleep = slow_sleep;
    ls_group *group = NULL;
    assert_int_equal(group_open_backend(&group, &(ls_group_options){.world_size = 1}, &slow), LS_OK);
    return group;
}

/* ---- A chain of layers whose backward takes its time ---- */

static ls_status compute(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    interval *took = &computations[computation_count++];
    took->start_ns = ls_now_ns();
    ls_sleep_until(took->start_ns + COMPUTE_NS);
    took->end_ns = ls_now_ns();
    return ls_tensor_copy_in(grad_inputs[0], ls_tensor_data(grad_output));
}

static ls_status chain_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                               ls_tensor **outputs, int output_count) {
    (void)context;
    (void)input_count;
    (void)output_count;
    ls_tensor *x = inputs[0];
    for (int i = 0; i < LAYERS; i++) {
        ls_tensor *y = ls_linear(x, ls_module_parameter(self, i), NULL);
        ls_no_grad_begin();
        ls_tensor *output = ls_scale(y, 1);
        ls_no_grad_end();
        x = ls_op_record("compute", output, &y, 1, compute, NULL, NULL);
    }
    outputs[0] = x;
    return x ? LS_OK : ls_step_status();
}

static scalar_model chain_model(void) {
    scalar_model model = {0};
    const ls_module_callbacks callbacks = {.forward = chain_forward};
    assert_int_equal(ls_module_create(&model.module, &callbacks, NULL), LS_OK);
    for (int i = 0; i < LAYERS; i++) {
        const char name[] = {(char)('a' + i), 0};
        ls_tensor *weight = NULL;
        assert_int_equal(ls_tensor_create(&weight, LS_F64, 2, (int64_t[]){1, 1}), LS_OK);
        assert_int_equal(ls_tensor_copy_in(weight, &(double){1}), LS_OK);
        assert_int_equal(ls_module_add_parameter(model.module, name, weight), LS_OK);
    }
    return model;
}

static void buckets_are_reduced_while_backward_computes(void **state) {
    (void)state;
    ls_group *group = open_slow_group();
    ls_ddp *ddp = NULL;
    scalar_model model = chain_model();
    assert_int_equal(
        ls_ddp_wrap(&ddp, model.module, group, &(ls_ddp_options){.bucket_cap_bytes = 1, .keep_buckets = true}), LS_OK);
    reduction_count = computation_count = 0;
    if (scalar_step(&model, 1) != LS_OK) fail_msg("%s", ls_last_error());
    assert_int_equal(computation_count, LAYERS);
    assert_int_equal(reduction_count, LAYERS);

    /* Bucket i holds the weight behind computation i. It starts before the next computation is over, and all but the
     * last two are back before the last computation ends: somebody drove them while this thread computed. */
    const int64_t backward_end_ns = computations[LAYERS - 1].end_ns;
    int overlaps = 0; /* computations that began while the bucket before them was still under way */
    for (int i = 0; i < LAYERS - 1; i++) {
        overlaps += computations[i + 1].start_ns < reductions[i].end_ns;
        assert_true(reductions[i].start_ns >= computations[i].end_ns);
        assert_true(reductions[i].start_ns < computations[i + 1].end_ns);
        if (i < LAYERS - 2) assert_true(reductions[i].end_ns < backward_end_ns);
    }
    assert_true(overlaps >= 2); /* none when posting waits */
    /* The wrap's own times tell the same. */
    for (int i = 0; i < LAYERS; i++) {
        int64_t start_ns = 0, end_ns = 0, ready_ns = 0;
        assert_int_equal(ls_ddp_bucket_times(ddp, i, &start_ns, &end_ns), LS_OK);
        assert_int_equal(ls_ddp_ready_time(ddp, LAYERS - 1 - i, &ready_ns), LS_OK);
        assert_true(start_ns <= reductions[i].start_ns && end_ns >= reductions[i].end_ns);
        assert_true(ready_ns >= computations[i].end_ns);
        if (i < LAYERS - 1) assert_true(ready_ns < computations[i + 1].end_ns);
    }
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
    ls_group_close(&group);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(buckets_are_reduced_while_backward_computes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
