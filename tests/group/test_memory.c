/* Memory of ls_group_alloc begins on a page, whatever a page's size is here, and is zeroed: with one rank and with several. */
#include "support/threads.h"

#include <stdint.h>
#include <unistd.h>

enum { MEMORIES = 6 };

static void allocate(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), sizes[MEMORIES] = {1, page - 1, page, page + 1, 8192, 3 * page};
    void *memories[MEMORIES];
    for (int i = 0; i < MEMORIES; i++) {
        assert_ok(ls_group_alloc(group, sizes[i], &memories[i]));
        assert_int_equal((uintptr_t)memories[i] % page, 0);
        const unsigned char *bytes = memories[i];
        for (size_t at = 0; at < sizes[i]; at++) assert_int_equal(bytes[at], 0);
    }
    for (int i = 0; i < MEMORIES; i++) ls_group_free(group, memories[i]);
    ls_group_close(&group);
}

static void memory_begins_on_a_page_and_is_zeroed(void **state) {
    (void)state;
    for (int world_size = 1; world_size <= 3; world_size++) run_ranks(world_size, allocate, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_begins_on_a_page_and_is_zeroed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
