/* The IDX parser against files that are right, cut, bent and hostile. */
#include "support/faults.h"
#include "support/test.h"

#include "base/memory.h"
#include "data/idx.h"

#include <string.h>

#define ZLIB_CONST
#include <zlib.h>

#define COUNT 7
#define HEADER 16

/* An IDX file of COUNT images of 3x2 with the values 0, 1, 2, ... */
static size_t make_plain(uint8_t *file) {
    static const uint8_t header[HEADER] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 3, 0, 0, 0, 2};
    memcpy(file, header, HEADER);
    for (int i = 0; i < COUNT * 6; i++) file[HEADER + i] = (uint8_t)i;
    return HEADER + COUNT * 6;
}

static size_t pack(const uint8_t *bytes, size_t size, uint8_t *packed, size_t limit) {
    z_stream stream = {.next_in = bytes, .avail_in = (uInt)size, .next_out = packed, .avail_out = (uInt)limit};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return limit - stream.avail_out;
}

/* Reads from a block of exactly `size` bytes, so that AddressSanitizer sees a byte too far. */
static ls_status read_exact(idx_array *array, const uint8_t *bytes, size_t size, int ndim) {
    uint8_t *copy = test_malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    const ls_status status = idx_read(array, copy, size, ndim);
    test_free(copy);
    return status;
}

static void assert_is_whole(idx_array *array) {
    assert_int_equal(array->ndim, 3);
    assert_int_equal(array->dims[0], COUNT);
    assert_int_equal(array->dims[1], 3);
    assert_int_equal(array->dims[2], 2);
    for (int i = 0; i < COUNT * 6; i++) assert_int_equal(array->values[i], i);
    idx_free(array);
    assert_null(array->values);
}

static void assert_refused(const uint8_t *bytes, size_t size, int ndim, const char *reason) {
    idx_array array;
    assert_int_equal(read_exact(&array, bytes, size, ndim), LS_ERR_FORMAT);
    assert_null(array.values);
    if (!strstr(ls_last_error(), reason)) fail_msg("\"%s\" does not say \"%s\"", ls_last_error(), reason);
}

static void plain_and_packed_files_are_read(void **state) {
    (void)state;
    uint8_t plain[256], packed[256];
    const size_t size = make_plain(plain), packed_size = pack(plain, size, packed, sizeof packed);
    idx_array array;
    assert_int_equal(read_exact(&array, plain, size, 3), LS_OK);
    assert_is_whole(&array);
    assert_int_equal(read_exact(&array, packed, packed_size, 3), LS_OK);
    assert_is_whole(&array);
}

static void labels_have_one_dim(void **state) {
    (void)state;
    const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 255}, none[] = {0, 0, 8, 1, 0, 0, 0, 0};
    idx_array array;
    assert_int_equal(read_exact(&array, labels, sizeof labels, 1), LS_OK);
    assert_int_equal(array.dims[0], 3);
    assert_int_equal(array.values[2], 255);
    idx_free(&array);
    assert_int_equal(read_exact(&array, none, sizeof none, 1), LS_OK);
    assert_int_equal(array.dims[0], 0);
    idx_free(&array);
}

static void a_file_cut_anywhere_is_told_as_truncated(void **state) {
    (void)state;
    uint8_t plain[256], packed[256];
    const size_t size = make_plain(plain), packed_size = pack(plain, size, packed, sizeof packed);
    for (size_t cut = 0; cut < size; cut++) assert_refused(plain, cut, 3, "truncated");
    /* Cut after the values but inside gzip's trailer, too. */
    for (size_t cut = 0; cut < packed_size; cut++) assert_refused(packed, cut, 3, "truncated");
}

static void damaged_gzip_never_yields_other_values(void **state) {
    (void)state;
    uint8_t plain[256], packed[256];
    const size_t size = make_plain(plain), packed_size = pack(plain, size, packed, sizeof packed);
    int refused = 0;
    for (size_t bit = 0; bit < packed_size * 8; bit++) {
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        idx_array array;
        const ls_status status = read_exact(&array, packed, packed_size, 3);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (status == LS_OK)
            assert_is_whole(&array); /* the time stamp in gzip's header, for instance */
        else
            assert_int_equal(status, LS_ERR_FORMAT);
        refused += status != LS_OK;
    }
    /* Everything but 7 bytes of the header (flags of the text, time, level, system) is covered by a check. */
    assert_true(refused >= (int)packed_size * 8 - 7 * 8);

    memset(packed + packed_size - 8, 0, 4);
    assert_refused(packed, packed_size, 3, "damaged");
}

static void bytes_after_the_last_value_are_refused(void **state) {
    (void)state;
    uint8_t plain[256], packed[256];
    const size_t size = make_plain(plain);
    plain[size] = 0;
    assert_refused(plain, size + 1, 3, "after its last value");
    size_t packed_size = pack(plain, size + 1, packed, sizeof packed);
    assert_refused(packed, packed_size, 3, "after its last value");
    packed_size = pack(plain, size, packed, sizeof packed);
    packed[packed_size] = 0;
    assert_refused(packed, packed_size + 1, 3, "after its last value");
    packed_size += pack(plain, size, packed + packed_size, sizeof packed - packed_size);
    assert_refused(packed, packed_size, 3, "after its last value");
}

static void another_magic_number_is_told_with_the_expected_one(void **state) {
    (void)state;
    uint8_t plain[256];
    const size_t size = make_plain(plain);
    assert_refused(plain, size, 1, "expected 0x00000801");
    for (int i = 0; i < 4; i++) {
        plain[i] ^= 0x20;
        assert_refused(plain, size, 3, "expected 0x00000803");
        plain[i] ^= 0x20;
    }
    assert_refused((const uint8_t *)"PNG, or any other text", 22, 3, "magic number");
}

static void sizes_that_cannot_be_cost_no_memory(void **state) {
    (void)state;
    uint8_t plain[256], packed[256];
    const size_t size = make_plain(plain);
    const uint64_t blocks = ls_alloc_count();
    plain[4] = 0xff; /* 4 billion images */
    assert_refused(plain, size, 3, "more than it can hold");
    memset(plain + 4, 0xff, 12);
    assert_refused(plain, size, 3, "past what a size can hold");
    assert_int_equal(ls_alloc_count(), blocks);
    memset(plain + 4, 0, 12);
    plain[7] = 1;
    assert_refused(plain, size, 3, "dim 1 of the array is 0");

    /* Packed: the best ratio bounds what the rest of the file can hold. */
    make_plain(plain);
    plain[4] = 0xff;
    const size_t packed_size = pack(plain, size, packed, sizeof packed);
    assert_refused(packed, packed_size, 3, "more than it can hold");
}

static void a_fault_at_any_call_is_told_and_leaves_nothing(void **state) {
    (void)state;
    uint8_t plain[256], packed[256];
    const size_t size = make_plain(plain), packed_size = pack(plain, size, packed, sizeof packed);
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        idx_array array;
        const ls_status status = idx_read(&array, packed, packed_size, 3);
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(array.values);
        }
        idx_free(&array);
    }
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_packed_files_are_read),
        cmocka_unit_test(labels_have_one_dim),
        cmocka_unit_test(a_file_cut_anywhere_is_told_as_truncated),
        cmocka_unit_test(damaged_gzip_never_yields_other_values),
        cmocka_unit_test(bytes_after_the_last_value_are_refused),
        cmocka_unit_test(another_magic_number_is_told_with_the_expected_one),
        cmocka_unit_test(sizes_that_cannot_be_cost_no_memory),
        cmocka_unit_test(a_fault_at_any_call_is_told_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
