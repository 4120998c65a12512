/* The layout of gradients in buckets: PyTorch's cases by hand, and rules that hold for any model. */
#include "support/test.h"

#include "ddp/buckets.h"

#include <stdlib.h>
#include <time.h>

#define MAX_PARAMETERS 100

typedef struct test_model {
    int count;
    size_t bytes[MAX_PARAMETERS];
    ls_dtype dtypes[MAX_PARAMETERS];
    int order[MAX_PARAMETERS];
} test_model;

static test_model model_of(int count, const size_t *numels, const ls_dtype *dtypes) {
    test_model model = {.count = count};
    for (int i = 0; i < count; i++) {
        model.dtypes[i] = dtypes ? dtypes[i] : LS_F32;
        model.bytes[i] = numels[i] * ls_dtype_size(model.dtypes[i]);
        model.order[i] = i;
    }
    return model;
}

static bucket_plan plan_of(const test_model *model, size_t cap, size_t first_cap) {
    const bucket_request request = {model->count, model->bytes, model->dtypes, model->order, cap, first_cap};
    bucket_plan plan;
    assert_int_equal(bucket_plan_init(&plan, &request), LS_OK);
    return plan;
}

static void assert_buckets(const bucket_plan *plan, const int *bucket_of) {
    for (int i = 0; i < plan->parameter_count; i++) assert_int_equal(plan->bucket_of[i], bucket_of[i]);
}

static void a_bucket_closes_when_its_payload_reaches_the_cap(void **state) {
    (void)state;
    const test_model model = model_of(4, (size_t[]){100, 200, 100, 50}, NULL);
    bucket_plan plan = plan_of(&model, 400, 400);
    assert_buckets(&plan, (int[]){0, 1, 2, 3});
    bucket_plan_clear(&plan);
}

static void each_dtype_has_buckets_of_its_own(void **state) {
    (void)state;
    const ls_dtype dtypes[] = {LS_F32, LS_F64, LS_F32, LS_F64, LS_F32, LS_F64};
    const test_model model = model_of(6, (size_t[]){50, 25, 50, 25, 50, 25}, dtypes);
    bucket_plan plan = plan_of(&model, 400, 400);
    assert_buckets(&plan, (int[]){0, 1, 0, 1, 2, 3});
    bucket_plan_clear(&plan);
    plan = plan_of(&model, 400, 200);
    assert_buckets(&plan, (int[]){0, 1, 2, 3, 2, 3});
    bucket_plan_clear(&plan);
}

static void the_first_bucket_has_a_cap_of_its_own(void **state) {
    (void)state;
    const test_model model = model_of(4, (size_t[]){10, 10, 10, 10}, NULL);
    bucket_plan plan = plan_of(&model, 80, 40);
    assert_buckets(&plan, (int[]){0, 1, 1, 2});
    bucket_plan_clear(&plan);
}

static void a_cap_of_one_byte_means_a_bucket_a_parameter(void **state) {
    (void)state;
    const test_model model = model_of(5, (size_t[]){3, 1, 1000, 7, 2}, NULL);
    bucket_plan plan = plan_of(&model, 1, 0);
    assert_buckets(&plan, (int[]){0, 1, 2, 3, 4});
    bucket_plan_clear(&plan);
}

static void the_default_caps_are_25_mib_and_1_mib_for_the_first(void **state) {
    (void)state;
    const size_t mib = (1 << 20) / 4;
    const test_model model = model_of(5, (size_t[]){mib / 2, mib / 2, 24 * mib, mib, mib}, NULL);
    bucket_plan plan = plan_of(&model, 0, 0);
    assert_buckets(&plan, (int[]){0, 0, 1, 1, 2});
    bucket_plan_clear(&plan);
    plan = plan_of(&model, 4096, 0); /* a small cap is the first bucket's too */
    assert_buckets(&plan, (int[]){0, 1, 2, 3, 4});
    bucket_plan_clear(&plan);
}

static void a_parameter_above_the_cap_shares_with_nobody(void **state) {
    (void)state;
    const test_model model = model_of(3, (size_t[]){10, 1000, 10}, NULL);
    bucket_plan plan = plan_of(&model, 400, 400);
    assert_buckets(&plan, (int[]){0, 1, 2});
    bucket_plan_clear(&plan);
}

/* As LeNet: a large layer behind small ones fills the first bucket, so that it need not wait for the layers before
 * it. */
static void a_parameter_above_the_first_cap_only_joins_the_first_bucket(void **state) {
    (void)state;
    const test_model model = model_of(4, (size_t[]){10, 1000, 10, 10}, NULL);
    bucket_plan plan = plan_of(&model, 100000, 400);
    assert_buckets(&plan, (int[]){0, 0, 1, 1});
    bucket_plan_clear(&plan);
}

static void buckets_are_numbered_by_when_they_become_ready(void **state) {
    (void)state;
    const ls_dtype dtypes[] = {LS_F64, LS_F32, LS_F32, LS_F64};
    const test_model model = model_of(4, (size_t[]){1, 1, 1, 1}, dtypes); /* f64 opens first, f32 is complete first */
    bucket_plan plan = plan_of(&model, 0, 0);
    assert_buckets(&plan, (int[]){1, 0, 0, 1});
    bucket_plan_clear(&plan);
}

static test_model random_model(void) {
    test_model model = {.count = 1 + rand() % MAX_PARAMETERS};
    for (int i = 0; i < model.count; i++) {
        model.dtypes[i] = rand() % 4 ? LS_F32 : LS_F64;
        model.bytes[i] = (size_t)(rand() % 5 ? rand() % 600 : rand() % 3) * ls_dtype_size(model.dtypes[i]);
        model.order[i] = i;
    }
    for (int i = model.count - 1; i > 0; i--) {
        const int other = rand() % (i + 1), held = model.order[i];
        model.order[i] = model.order[other];
        model.order[other] = held;
    }
    return model;
}

static void check_rules(const test_model *model, const bucket_plan *plan, size_t cap) {
    int seen = 0, last_position = -1, position_of[MAX_PARAMETERS] = {0};
    for (int i = 0; i < model->count; i++) position_of[model->order[i]] = i;
    for (int bucket = 0; bucket < plan->bucket_count; bucket++) {
        size_t end = 0, payload = 0;
        int position = -1;
        for (int at = plan->first_member[bucket]; at < plan->first_member[bucket + 1]; at++, seen++) {
            const int parameter = plan->members[at];
            assert_int_equal(plan->bucket_of[parameter], bucket);
            assert_int_equal(model->dtypes[parameter], plan->dtype_of[bucket]);
            assert_int_equal(plan->offset_of[parameter] % BUCKET_ALIGNMENT, 0);
            assert_true(plan->offset_of[parameter] >= end); /* none overlaps */
            end = plan->offset_of[parameter] + model->bytes[parameter];
            assert_true(position_of[parameter] > position); /* along the order */
            position = position_of[parameter];
            assert_true(payload < cap); /* what was there before had not reached the cap */
            payload += model->bytes[parameter];
        }
        assert_true(end <= plan->bytes_of[bucket]);
        assert_true(position > last_position); /* numbered by readiness */
        last_position = position;
    }
    assert_int_equal(seen, model->count); /* each once: members say their bucket, so none is twice */
}

static void any_model_is_laid_out_whole_aligned_and_in_order(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 2000; round++) {
        const test_model model = random_model();
        const size_t cap = 1 + (size_t)(rand() % 4000);
        bucket_plan plan = plan_of(&model, cap, 0), again = plan_of(&model, cap, 0);
        check_rules(&model, &plan, cap);
        assert_true(bucket_plan_equal(&plan, &again)); /* all ranks find the same */
        bucket_plan_clear(&plan);
        bucket_plan_clear(&again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_closes_when_its_payload_reaches_the_cap),
        cmocka_unit_test(each_dtype_has_buckets_of_its_own),
        cmocka_unit_test(the_first_bucket_has_a_cap_of_its_own),
        cmocka_unit_test(a_cap_of_one_byte_means_a_bucket_a_parameter),
        cmocka_unit_test(the_default_caps_are_25_mib_and_1_mib_for_the_first),
        cmocka_unit_test(a_parameter_above_the_cap_shares_with_nobody),
        cmocka_unit_test(a_parameter_above_the_first_cap_only_joins_the_first_bucket),
        cmocka_unit_test(buckets_are_numbered_by_when_they_become_ready),
        cmocka_unit_test(any_model_is_laid_out_whole_aligned_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
