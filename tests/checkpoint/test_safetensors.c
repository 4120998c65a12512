/* The parser against files that are right, cut, bent and hostile. */
#include "support/test.h"

#include "base/memory.h"
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Makes a file of `header` and `data_bytes` of data 0, 1, 2, ... in a block of exactly its size, so that
 * AddressSanitizer sees a byte too far. The caller frees. */
static uint8_t *make_file(const char *header, size_t data_bytes, size_t *size) {
    const size_t length = strlen(header);
    *size = 8 + length + data_bytes;
    uint8_t *file = test_malloc(*size);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)length >> 8 * i);
    for (size_t i = 0; i < length; i++) file[8 + i] = (uint8_t)header[i];
    for (size_t i = 0; i < data_bytes; i++) file[8 + length + i] = (uint8_t)i;
    return file;
}

static void assert_refused(const char *header, size_t data_bytes, const char *reason) {
    size_t size;
    uint8_t *bytes = make_file(header, data_bytes, &size);
    safetensors file;
    const ls_status status = safetensors_parse(&file, bytes, size);
    test_free(bytes);
    if (status != LS_ERR_FORMAT) fail_msg("accepted: %s", header);
    assert_null(file.header);
    assert_null(file.entries);
    if (!strstr(ls_last_error(), reason)) fail_msg("%s: \"%s\" does not say \"%s\"", header, ls_last_error(), reason);
}

static void assert_accepted(const char *header, size_t data_bytes, size_t count) {
    size_t size;
    uint8_t *bytes = make_file(header, data_bytes, &size);
    safetensors file;
    const ls_status status = safetensors_parse(&file, bytes, size);
    if (status) fail_msg("refused: %s: %s", header, ls_last_error());
    assert_int_equal(file.count, count);
    safetensors_free(&file);
    test_free(bytes);
}

#define TWO                                                              \
    "{\"__metadata__\":{\"step\":\"3\"},"                                \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]}," \
    "\"a\":{\"data_offsets\":[0,8],\"dtype\":\"I64\",\"shape\":[]}}  "

static void a_proper_file_is_read(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = make_file(TWO, 16, &size);
    safetensors file;
    assert_int_equal(safetensors_parse(&file, bytes, size), LS_OK);
    assert_int_equal(file.count, 2);
    assert_string_equal(safetensors_text(&file, "step"), "3");
    assert_null(safetensors_text(&file, "epoch"));
    const safetensors_entry *a = safetensors_find(&file, "a"), *b = safetensors_find(&file, "b");
    assert_non_null(a);
    assert_non_null(b);
    assert_null(safetensors_find(&file, "c"));
    assert_int_equal(a->ndim, 0);
    assert_int_equal(a->dtype, LS_I64);
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->dims[0], 2);
    assert_int_equal(b->dims[1], 1);
    assert_int_equal(file.data[b->begin], 8);
    safetensors_free(&file);
    test_free(bytes);
}

static void what_the_format_allows_is_accepted(void **state) {
    (void)state;
    assert_accepted("{}", 0, 0);
    assert_accepted("{\"__metadata__\":{}}", 0, 0);
    /* Types that Lockstep has not, empty tensors anywhere, all eight dims. */
    assert_accepted("{\"a\":{\"dtype\":\"U16\",\"shape\":[3],\"data_offsets\":[0,6]}}", 6, 1);
    assert_accepted("{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                    "\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]},"
                    "\"f\":{\"dtype\":\"F64\",\"shape\":[7,0],\"data_offsets\":[2,2]}}",
                    2, 3);
    /* An empty one lies at the place of the one behind it, whichever the header names first. */
    assert_accepted("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                    "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                    4, 2);
    assert_accepted("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, 1);
    /* Every type has its size. */
    const struct {
        const char *name;
        int size;
    } types[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
                 {"I32", 4},  {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[128];
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                 types[i].name, 3 * types[i].size);
        assert_accepted(header, 3 * (size_t)types[i].size, 1);
    }
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    size_t size;
    uint8_t *whole = make_file(TWO, 16, &size);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = test_malloc(cut ? cut : 1);
        memcpy(part, whole, cut);
        safetensors file;
        assert_int_equal(safetensors_parse(&file, part, cut), LS_ERR_FORMAT);
        test_free(part);
    }
    assert_refused(TWO, 15, "truncated");
    assert_refused(TWO, 17, "too long");
    test_free(whole);
}

static void a_length_that_cannot_be_is_refused(void **state) {
    (void)state;
    static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};
    static const uint8_t over_limit[] = {1, 0xe1, 0xf5, 5, 0, 0, 0, 0, '{', '}'}; /* 100,000,001 */
    static const uint8_t over_end[] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    static const uint8_t none[] = {0, 0, 0, 0, 0, 0, 0, 0};
    safetensors file;
    assert_int_equal(safetensors_parse(&file, huge, sizeof huge), LS_ERR_FORMAT);
    assert_non_null(strstr(ls_last_error(), "at most 100000000"));
    assert_int_equal(safetensors_parse(&file, over_limit, sizeof over_limit), LS_ERR_FORMAT);
    assert_non_null(strstr(ls_last_error(), "at most 100000000"));
    assert_int_equal(safetensors_parse(&file, over_end, sizeof over_end), LS_ERR_FORMAT);
    assert_non_null(strstr(ls_last_error(), "truncated"));
    assert_int_equal(safetensors_parse(&file, none, sizeof none), LS_ERR_FORMAT);
}

/* One tensor `"a"` with the given inside, over 4 bytes of data. */
static void assert_tensor_refused(const char *inside, const char *reason) {
    char header[512];
    snprintf(header, sizeof header, "{\"a\":%s}", inside);
    assert_refused(header, 4, reason);
}

static void hostile_headers_are_refused(void **state) {
    (void)state;
    assert_refused(" {}", 0, "does not begin with {");
    assert_refused("[]", 0, "does not begin with {");
    assert_refused("{", 0, "no proper JSON");
    assert_refused("{} {}", 0, "no proper JSON");
    assert_refused("{\"a\xff\":1}", 0, "no proper JSON");
    assert_refused("{\"a\\u0000\":1}", 0, "no proper JSON");
#define ONE "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
    assert_refused("{\"a\":" ONE ",\"a\":" ONE "}", 4, "no proper JSON");
    assert_refused("{\"__metadata__\":[]}", 0, "not a table of texts");
    assert_refused("{\"__metadata__\":{\"step\":3}}", 0, "\"step\" is not a text");
    assert_tensor_refused("3", "expected dtype");
    assert_tensor_refused("{}", "expected dtype");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}", "nothing else");
    assert_tensor_refused("{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}", "expected dtype");
    assert_tensor_refused("{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}", "no dtype \"F33\"");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}", "shape");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}", "shape");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}", "dim 0");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1,1.0],\"data_offsets\":[0,4]}", "dim 1");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}",
                          "past what a size");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}",
                          "past what a size");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}",
                          "no proper JSON");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}", "not [begin, end]");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}", "not [begin, end]");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}", "not [begin, end]");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{\"begin\":0,\"end\":4}}",
                          "not [begin, end]");
    assert_tensor_refused("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}", "takes 8 bytes");
    assert_tensor_refused(
        "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775803,9223372036854775807]}", "begins at");
}

static void holes_and_overlaps_are_refused(void **state) {
    (void)state;
    const struct {
        int offsets[3][2];
        size_t bytes;
        bool is_right;
    } cases[] = {
        {{{0, 4}, {4, 8}, {8, 12}}, 12, true},  {{{8, 12}, {0, 4}, {4, 8}}, 12, true},
        {{{0, 4}, {4, 8}, {9, 13}}, 13, false}, {{{0, 4}, {4, 8}, {7, 11}}, 11, false},
        {{{0, 4}, {0, 4}, {4, 8}}, 8, false},   {{{1, 5}, {5, 9}, {9, 13}}, 13, false},
        {{{0, 4}, {4, 8}, {8, 12}}, 13, false}, {{{0, 4}, {4, 8}, {8, 12}}, 11, false},
        {{{0, 4}, {8, 12}, {4, 8}}, 0, false},  {{{0, 4}, {0, 4}, {0, 4}}, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512];
        size_t used = 0;
        for (int t = 0; t < 3; t++)
            used += (size_t)snprintf(header + used, sizeof header - used,
                                     "%c\"%c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                                     t ? ',' : '{', 'a' + t, cases[i].offsets[t][0], cases[i].offsets[t][1]);
        snprintf(header + used, sizeof header - used, "}");
        if (cases[i].is_right)
            assert_accepted(header, cases[i].bytes, 3);
        else
            assert_refused(header, cases[i].bytes, "");
    }
}

static void deep_nesting_is_refused_without_harm(void **state) {
    (void)state;
    enum { DEPTH = 200000 };
    char *header = test_malloc(DEPTH + 8);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    header[5 + DEPTH] = '\0';
    assert_refused(header, 0, "no proper JSON");
    test_free(header);
}

/* Flips, cuts and copies inside a proper file: whatever comes out is accepted or refused, never worse (the sanitizers
 * watch), and what is accepted lies inside the file. */
static void random_damage_is_survived(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    size_t size;
    uint8_t *whole = make_file(TWO, 16, &size);
    const uint64_t live = ls_alloc_live();
    for (int round = 0; round < 20000; round++) {
        uint8_t *bent = test_malloc(size);
        memcpy(bent, whole, size);
        for (int flips = 1 + rand() % 4; flips > 0; flips--)
            bent[8 + (size_t)rand() % (size - 8)] = (uint8_t)(rand() % 128);
        safetensors file;
        const ls_status status = safetensors_parse(&file, bent, size);
        assert_true(status == LS_OK || status == LS_ERR_FORMAT);
        for (size_t i = 0; i < file.count; i++) assert_true(file.data + file.entries[i].end <= bent + size);
        safetensors_free(&file);
        test_free(bent);
    }
    assert_int_equal(ls_alloc_live(), live);
    test_free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proper_file_is_read),
        cmocka_unit_test(what_the_format_allows_is_accepted),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_length_that_cannot_be_is_refused),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(holes_and_overlaps_are_refused),
        cmocka_unit_test(deep_nesting_is_refused_without_harm),
        cmocka_unit_test(random_damage_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
