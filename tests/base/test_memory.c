/* The one door to malloc: sizes that cannot be, and what is counted. */
#include "support/test.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* They round up past what a size can hold: a block of nothing would be handed out. */
static void sizes_that_cannot_be_are_refused_with_a_sentence(void **state) {
    (void)state;
    const uint64_t count = ls_alloc_count();
    const size_t sizes[] = {SIZE_MAX - 62, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ls_fail(LS_ERR_IO, "something else");
        assert_null(ls_alloc_raw(sizes[i]));
        assert_non_null(strstr(ls_last_error(), "cannot allocate"));
        assert_int_equal(ls_last_status(), LS_ERR_MEMORY);
    }
    assert_null(ls_alloc_array(SIZE_MAX / 8 + 1, 8));
    assert_non_null(strstr(ls_last_error(), "past what a size can hold"));
    assert_null(ls_strdup(NULL));
    assert_int_equal(ls_alloc_count(), count);
}

static void blocks_are_zeroed_aligned_and_counted(void **state) {
    (void)state;
    const uint64_t live = ls_alloc_live();
    for (size_t bytes = 0; bytes < 300; bytes++) {
        unsigned char *block = ls_alloc(bytes);
        assert_non_null(block); /* also of no bytes */
        assert_int_equal((uintptr_t)block % LS_ALIGNMENT, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(block[i], 0);
        memset(block, 0xff, bytes); /* so that the next one is not zero by chance */
        assert_int_equal(ls_alloc_live(), live + 1);
        ls_free(block);
    }
    ls_free(NULL);
    assert_int_equal(ls_alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_cannot_be_are_refused_with_a_sentence),
        cmocka_unit_test(blocks_are_zeroed_aligned_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
