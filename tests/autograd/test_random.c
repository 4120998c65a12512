/* test_random.c: Philox against its authors' vectors; draws that depend on seed, layer, step, sample and element
 * alone. */
#include "autograd/small.h"

#include "autograd/philox.h"
#include "autograd/random.h"
#include "autograd/samples.h"
#include "base/context.h"
#include "tensor/tensor.h"

#include <stdlib.h>

/* Known answers of Random123's own test file (kat_vectors, philox 4x32, 10 rounds). */
static void philox_gives_the_known_answers(void **state) {
    (void)state;
    static const struct {
        philox_block counter;
        uint64_t key;
        philox_block expected;
    } answers[] = {{{{0, 0, 0, 0}}, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
                   {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
                    UINT64_C(0xffffffffffffffff),
                    {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
                   {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                    UINT64_C(0x299f31d0a4093822),
                    {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}}};
    for (int i = 0; i < 3; i++) {
        const philox_block found = philox(answers[i].counter, answers[i].key);
        assert_memory_equal(found.word, answers[i].expected.word, sizeof found.word);
    }
}

static void the_initialisation_stream_starts_anew_with_its_seed(void **state) {
    (void)state;
    double first[4], mean = 0;
    ls_seed_set(7);
    assert_int_equal(ls_seed(), 7);
    for (int i = 0; i < 4; i++) first[i] = random_next_uniform();
    ls_seed_set(8);
    assert_true(random_next_uniform() != first[0]);
    ls_seed_set(7);
    for (int i = 0; i < 4; i++) assert_true(random_next_uniform() == first[i]);
    for (int i = 0; i < 10000; i++) {
        const double value = random_next_uniform();
        assert_true(value >= 0 && value < 1);
        mean += value / 10000;
    }
    assert_near(mean, 0.5, 0.02); /* seven standard deviations */
}

/* ---- Dropout ---- */

#define ELEMENTS 2001 /* of a sample: no multiple of Philox's four */

/* Dropout of ones [n, ELEMENTS]; the caller frees the values. */
static double *drop(int64_t n, const int64_t *samples, double probability, uint32_t layer, uint64_t step) {
    ls_tensor *x = NULL;
    assert_int_equal(ls_tensor_create(&x, LS_F64, 2, (int64_t[]){n, ELEMENTS}), LS_OK);
    for (int64_t i = 0; i < n * ELEMENTS; i++) ((double *)ls_tensor_data_mut(x))[i] = 1;
    autograd_samples_set(samples, samples ? n : 0);
    ls_step_number_set(step);
    ls_tensor *y = ls_dropout(x, probability, layer);
    autograd_samples_set(NULL, 0);
    double *values = malloc(sizeof(double) * (size_t)(n * ELEMENTS));
    assert_int_equal(ls_tensor_copy_out(y, values), LS_OK);
    ls_tensor_close(&x);
    ls_tensor_close(&y);
    return values;
}

static void dropout_zeroes_its_share_and_scales_the_rest(void **state) {
    (void)state;
    ls_seed_set(3);
    double *values = drop(10, NULL, 0.25, 0, 0);
    int zeroes = 0;
    for (int i = 0; i < 10 * ELEMENTS; i++) {
        zeroes += values[i] == 0;
        if (values[i] != 0) assert_near(values[i], 1 / 0.75, 1e-15);
    }
    assert_near(zeroes / (10.0 * ELEMENTS), 0.25, 0.022); /* seven standard deviations */
    free(values);
    values = drop(1, NULL, 0, 0, 0);
    for (int i = 0; i < ELEMENTS; i++) assert_near(values[i], 1, 0);
    free(values);
}

/* Two ranks of 2 draw what one process of 4 draws, in whatever order samples lie. */
static void a_sample_gets_the_same_draw_wherever_it_lies(void **state) {
    (void)state;
    ls_seed_set(3);
    double *whole = drop(4, (int64_t[]){10, 11, 12, 13}, 0.5, 2, 9);
    double *even = drop(2, (int64_t[]){12, 10}, 0.5, 2, 9), *odd = drop(2, (int64_t[]){11, 13}, 0.5, 2, 9);
    const size_t bytes = sizeof(double) * ELEMENTS;
    assert_memory_equal(&whole[0 * ELEMENTS], &even[1 * ELEMENTS], bytes);
    assert_memory_equal(&whole[1 * ELEMENTS], &odd[0 * ELEMENTS], bytes);
    assert_memory_equal(&whole[2 * ELEMENTS], &even[0 * ELEMENTS], bytes);
    assert_memory_equal(&whole[3 * ELEMENTS], &odd[1 * ELEMENTS], bytes);
    assert_memory_not_equal(&whole[0], &whole[ELEMENTS], bytes);
    free(whole);
    free(even);
    free(odd);
}

static void draws_depend_on_seed_layer_step_and_rank(void **state) {
    (void)state;
    const size_t bytes = sizeof(double) * ELEMENTS;
    ls_seed_set(3);
    double *base = drop(1, NULL, 0.5, 2, 9), *again = drop(1, NULL, 0.5, 2, 9);
    double *others[4] = {drop(1, NULL, 0.5, 3, 9), drop(1, NULL, 0.5, 2, 10)};
    ls_seed_set(4);
    others[2] = drop(1, NULL, 0.5, 2, 9);
    ls_seed_set(3);
    ls_context_here()->rank = 1;
    others[3] = drop(1, NULL, 0.5, 2, 9);
    ls_context_here()->rank = -1;
    assert_memory_equal(base, again, bytes);
    for (int i = 0; i < 4; i++) assert_memory_not_equal(base, others[i], bytes);
    for (int i = 0; i < 4; i++) free(others[i]);
    free(base);
    free(again);
}

/* Without a batch, position + rank 2^32; a batch of another size is no batch of this tensor's. */
static void samples_without_a_batch_are_numbered_by_position_and_rank(void **state) {
    (void)state;
    const int64_t samples[3] = {7, 8, 9};
    assert_int_equal(random_sample_index(2, 3), 2);
    ls_context_here()->rank = 3;
    assert_int_equal(random_sample_index(2, 3), 2 + 3 * (INT64_C(1) << 32));
    autograd_samples_set(samples, 3);
    assert_int_equal(random_sample_index(2, 3), 9);
    assert_int_equal(random_sample_index(2, 6), 2 + 3 * (INT64_C(1) << 32));
    autograd_samples_set(NULL, 0);
    ls_context_here()->rank = -1;
}

static void the_layout_does_not_change_the_mask(void **state) {
    (void)state;
    const int64_t dims[4] = {2, 3, 5, 7};
    double values[2][210], ones[210];
    for (int i = 0; i < 210; i++) ones[i] = 1;
    ls_step_number_set(0);
    for (int nhwc = 0; nhwc < 2; nhwc++) {
        ls_tensor *x = NULL;
        assert_int_equal(ls_tensor_create_layout(&x, LS_F64, 4, dims, nhwc ? LS_LAYOUT_NHWC : LS_LAYOUT_PLAIN), LS_OK);
        assert_int_equal(ls_tensor_copy_in(x, ones), LS_OK);
        ls_tensor *y = ls_dropout(x, 0.5, 0);
        assert_int_equal(ls_tensor_copy_out(y, values[nhwc]), LS_OK);
        ls_tensor_close(&x);
        ls_tensor_close(&y);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(the_initialisation_stream_starts_anew_with_its_seed),
        cmocka_unit_test(dropout_zeroes_its_share_and_scales_the_rest),
        cmocka_unit_test(a_sample_gets_the_same_draw_wherever_it_lies),
        cmocka_unit_test(draws_depend_on_seed_layer_step_and_rank),
        cmocka_unit_test(samples_without_a_batch_are_numbered_by_position_and_rank),
        cmocka_unit_test(the_layout_does_not_change_the_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
