/* test_ddp.c: a rank dies while it trains: the other ends at once with an error that names it, and nothing remains. */
#include "faults/kills.h"

#include "ddp/points.h"

static void a_rank_killed_at_any_point_of_a_step_is_named_at_once(void **state) {
    (void)state;
    for (int i = 0; i < DDP_POINT_COUNT; i++)
        for (int rank = 0; rank < 2; rank++) kill_at("worker_ddp", (const char *[]){"5", NULL}, ddp_points[i], rank, 1);
}

/* In a later step, with buckets laid out anew. */
static void a_rank_killed_in_a_later_step_is_named_at_once(void **state) {
    (void)state;
    static const char *const points[] = {"ddp.header.posted", "ddp.header.taken", "ddp.bucket.posted",
                                         "ddp.footer.posted"};
    for (int i = 0; i < 4; i++) kill_at("worker_ddp", (const char *[]){"5", NULL}, points[i], i % 2, i == 2 ? 20 : 4);
}

static void a_rank_killed_at_any_moment_of_training_is_named_at_once(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 50; i++) kill_at_some_moment("worker_ddp", (const char *[]){"1000000", NULL}, 30000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_killed_at_any_point_of_a_step_is_named_at_once),
        cmocka_unit_test(a_rank_killed_in_a_later_step_is_named_at_once),
        cmocka_unit_test(a_rank_killed_at_any_moment_of_training_is_named_at_once),
    };
    if (!make_temporary()) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_temporary();
    return failed;
}
