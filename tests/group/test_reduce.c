/* test_reduce.c: conversions of 16-bit floats, bit by bit, and the kernels, which give the same bits however data is split. */
#include "support/test.h"

#include "group/half.h"
#include "group/oracle.h"
#include "group/reduce.h"

#include <stdlib.h>
#include <time.h>

static void widening_is_exact(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const double f16 = decode_half((uint16_t)bits, 10, 15), bf16 = decode_half((uint16_t)bits, 7, 127);
        const double got_f16 = f16_widen((uint16_t)bits), got_bf16 = bf16_widen((uint16_t)bits);
        assert_true(isnan(f16) ? isnan(got_f16) : f16 == got_f16 && !signbit(f16) == !signbit(got_f16));
        assert_true(isnan(bf16) ? isnan(got_bf16) : bf16 == got_bf16 && !signbit(bf16) == !signbit(got_bf16));
    }
}

static void check_narrowing(float value) {
    const uint16_t f16 = f16_narrow(value), bf16 = bf16_narrow(value);
    if (isnan(value)) {
        assert_true(isnan(f16_widen(f16)) && isnan(bf16_widen(bf16)));
        return;
    }
    assert_int_equal(f16, encode_half(value, 10, 15));
    assert_int_equal(bf16, encode_half(value, 7, 127));
}

/* Around each number of both formats, and half way to the next one: where rounding turns. */
static void narrowing_rounds_to_nearest_ties_to_even(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        for (int format = 0; format < 2; format++) {
            const float here = format ? bf16_widen((uint16_t)bits) : f16_widen((uint16_t)bits);
            const float next = format ? bf16_widen((uint16_t)(bits + 1)) : f16_widen((uint16_t)(bits + 1));
            const float middle = here / 2 + next / 2;
            const float values[] = {here, middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
            for (int i = 0; i < 4; i++) check_narrowing(values[i]);
        }
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 300000; i++) check_narrowing(f32_of_bits((uint32_t)(seed = mix(seed))));
    check_narrowing(65519.996f);
    check_narrowing(65520.0f);
    check_narrowing(3.4e38f);
    check_narrowing(1e-45f);
}

static void a_nan_stays_in_every_op_of_floats(void **state) {
    (void)state;
    static const ls_op ops[] = {LS_SUM, LS_PRODUCT, LS_MAX, LS_MIN, LS_AVERAGE};
    for (int op = 0; op < 5; op++)
        for (int at = 0; at < 3; at++) {
            float f32[3] = {1, 2, 3}, result = 0;
            uint16_t f16[3] = {0x3c00, 0x4000, 0x4200}, half = 0;
            f32[at] = NAN;
            f16[at] = 0x7e00;
            void *const sources[] = {&f32[0], &f32[1], &f32[2]}, *const halves[] = {&f16[0], &f16[1], &f16[2]};
            reduce_into(reduce_kernel_for(LS_F32, ops[op]), 4, sources, 3, 0, 1, &result);
            reduce_into(reduce_kernel_for(LS_F16, ops[op]), 2, halves, 3, 0, 1, &half);
            assert_true(isnan(result));
            assert_true(isnan(f16_widen(half)));
        }
}

#define MOST 9001

/* In one go, into one place and into all; and in two goes, split anywhere. */
static void check_kernel(ls_dtype dtype, ls_op op, int ranks, size_t count, uint64_t seed) {
    const reduce_kernel *kernel = reduce_kernel_for(dtype, op);
    const size_t size = ls_dtype_size(dtype), split = count ? mix(seed) % count : 0;
    void *sources[8];
    char *expected = malloc(MOST * 8), *result = malloc(MOST * 8), *parts = malloc(MOST * 8);
    assert_non_null(kernel);
    for (int rank = 0; rank < ranks; rank++) {
        sources[rank] = malloc(MOST * 8);
        for (size_t i = 0; i < count; i++) draw(sources[rank], i, i, dtype, seed, rank);
    }
    for (size_t i = 0; i < count; i++) {
        const void *elements[8];
        for (int rank = 0; rank < ranks; rank++) elements[rank] = (char *)sources[rank] + i * size;
        expect_element(expected + i * size, dtype, op, elements, ranks);
    }
    reduce_into(kernel, size, sources, ranks, 0, count, result);
    assert_memory_equal(result, expected, count * size);
    reduce_into(kernel, size, sources, ranks, 0, split, parts);
    reduce_into(kernel, size, sources, ranks, split * size, count - split, parts + split * size);
    assert_memory_equal(parts, expected, count * size);
    reduce_in_place(kernel, size, sources, ranks, 0, count);
    for (int rank = 0; rank < ranks; rank++) {
        assert_memory_equal(sources[rank], expected, count * size);
        free(sources[rank]);
    }
    free(expected);
    free(result);
    free(parts);
}

static void every_kernel_equals_the_serial_oracle_at_any_split(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 2, 7, 64, 1023, MOST};
    const uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++)
        for (int op = 0; op < LS_OP_COUNT; op++) {
            if (!is_defined((ls_dtype)dtype, (ls_op)op)) {
                assert_null(reduce_kernel_for((ls_dtype)dtype, (ls_op)op));
                continue;
            }
            for (int ranks = 2; ranks <= 8; ranks += ranks < 5 ? 1 : 3)
                for (int i = 0; i < 7; i++)
                    check_kernel((ls_dtype)dtype, (ls_op)op, ranks, counts[i], seed + (uint64_t)i);
        }
}

static void an_average_of_integers_is_formed_in_64_bits_and_cut_toward_zero(void **state) {
    (void)state;
    int8_t a[] = {120, -3, 1}, b[] = {100, -4, -2}, result[3];
    void *const sources[] = {a, b};
    reduce_into(reduce_kernel_for(LS_I8, LS_AVERAGE), 1, sources, 2, 0, 3, result);
    assert_int_equal(result[0], 110);
    assert_int_equal(result[1], -3);
    assert_int_equal(result[2], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_is_exact),
        cmocka_unit_test(narrowing_rounds_to_nearest_ties_to_even),
        cmocka_unit_test(a_nan_stays_in_every_op_of_floats),
        cmocka_unit_test(every_kernel_equals_the_serial_oracle_at_any_split),
        cmocka_unit_test(an_average_of_integers_is_formed_in_64_bits_and_cut_toward_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
