/* Lists of hosts as Slurm writes them. */
#include "support/test.h"

#include "store/nodelist.h"

#include <lockstep/base.h>

#include <string.h>

/* All hosts of the list, with spaces between them; then it ends. */
static void assert_expands(const char *list, const char *expected) {
    char all[512] = "", host[64];
    size_t used = 0;
    ls_status status = LS_OK;
    for (int64_t i = 0; (status = store_nodelist_host(list, i, host, sizeof host)) == LS_OK; i++) {
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? " " : "", host);
        assert_true(used < sizeof all);
    }
    assert_int_equal(status, LS_END);
    assert_string_equal(all, expected);
}

static void lists_expand_as_slurm_means_them(void **state) {
    (void)state;
    assert_expands("login", "login");
    assert_expands("n[1-3,7]", "n1 n2 n3 n7");
    assert_expands("n[1-3,7],login,m[09-11]", "n1 n2 n3 n7 login m09 m10 m11");
    assert_expands("n[001-003]", "n001 n002 n003");
    assert_expands("n[8-12]", "n8 n9 n10 n11 n12");
    assert_expands("rack[0-1]n[1-2]", "rack0n1 rack0n2 rack1n1 rack1n2");
    assert_expands("rack[0-1]n[1-2].site", "rack0n1.site rack0n2.site rack1n1.site rack1n2.site");
    assert_expands("a-b[5],c-[1]d", "a-b5 c-1d");
    assert_expands("[1-2]", "1 2");
}

static void a_host_of_a_huge_list_is_found_at_once(void **state) {
    (void)state;
    char host[64];
    assert_int_equal(
        store_nodelist_host("n[0-99999999999]m[0-9999]", INT64_C(123456789) * 10000 + 42, host, sizeof host), LS_OK);
    assert_string_equal(host, "n123456789m42");
}

static void what_is_no_list_is_named(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        ",",
                                        "a,",
                                        "a,,b",
                                        "n[",
                                        "n[1",
                                        "n[1-",
                                        "n[1-]",
                                        "n[-1]",
                                        "n[3-1]",
                                        "n[1,]",
                                        "n]",
                                        "n[1]]",
                                        "n[x]",
                                        "n[1-2-3]",
                                        "n[[1]]",
                                        "n[1 2]",
                                        "n[1234567890123]",
                                        "n[0-99999999999][0-99999999999][0-99999999999]",
                                        "[1][1][1][1][1][1][1][1][1]"};
    char host[64];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ls_status status = LS_OK;
        for (int64_t index = 0; index < 3 && status == LS_OK; index++)
            status = store_nodelist_host(wrong[i], index, host, sizeof host);
        if (status != LS_ERR_FORMAT) fail_msg("\"%s\" comes to %s", wrong[i], ls_status_name(status));
        assert_non_null(strstr(ls_last_error(), wrong[i]));
    }
    /* A name that does not fit. */
    assert_int_equal(store_nodelist_host("a-long-name", 0, host, 11), LS_ERR_FORMAT);
    assert_int_equal(store_nodelist_host("a-long-name", 0, host, 12), LS_OK);
    assert_int_equal(store_nodelist_host("name[10-11]", 1, host, 6), LS_ERR_FORMAT);
    assert_int_equal(store_nodelist_host("name[10-11]", 1, host, 7), LS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_expand_as_slurm_means_them),
        cmocka_unit_test(a_host_of_a_huge_list_is_found_at_once),
        cmocka_unit_test(what_is_no_list_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
