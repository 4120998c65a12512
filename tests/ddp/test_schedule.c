/* The schedule driven through every order of readiness of up to 7 parameters in up to 4 buckets, through random larger
 * ones, and through every pair of state and event. The oracle is a sentence: bucket b has started exactly when the
 * header is agreed and all members of buckets 0 to b are marked. */
#include "support/test.h"

#include "ddp/schedule.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PARAMETERS 200

/* One run: parameters are marked along `order`, the header comes back before mark number `agreed_at`. */
typedef struct marking_run {
    int parameter_count, bucket_count;
    int bucket_of[MAX_PARAMETERS];
    int order[MAX_PARAMETERS];
    int agreed_at;
    bool reduces_early; /* each bucket as soon as it has started; else all at the end, last first */
} marking_run;

static bool prefix_is_marked(const marking_run *run, const bool *marked, int bucket) {
    for (int i = 0; i < run->parameter_count; i++)
        if (run->bucket_of[i] >= 0 && run->bucket_of[i] <= bucket && !marked[i]) return false;
    return true;
}

static void launch_and_check(ls_schedule *schedule, const marking_run *run, const bool *marked, bool is_agreed,
                             int *launched) {
    int bucket = -1;
    while (schedule_launch(schedule, &bucket)) {
        assert_int_equal(bucket, *launched); /* in order, each once */
        assert_true(is_agreed);
        assert_true(prefix_is_marked(run, marked, bucket)); /* never before it is ready */
        ++*launched;
        if (run->reduces_early) assert_int_equal(schedule_reduced(schedule, bucket), LS_OK);
    }
    const bool next_could = is_agreed && *launched < run->bucket_count && prefix_is_marked(run, marked, *launched);
    assert_false(next_could); /* and not later than it could */
}

static void agree(ls_schedule *schedule, const marking_run *run, const bool *marked, bool *is_agreed, int *launched) {
    assert_int_equal(schedule_agreed(schedule), LS_OK);
    *is_agreed = true;
    launch_and_check(schedule, run, marked, *is_agreed, launched);
}

static void drive(ls_schedule *schedule, const marking_run *run) {
    bool marked[MAX_PARAMETERS] = {false}, is_agreed = false;
    int launched = 0;
    assert_int_equal(schedule_arm(schedule), LS_OK);
    for (int i = 0; i < run->parameter_count; i++) {
        if (i == run->agreed_at) agree(schedule, run, marked, &is_agreed, &launched);
        assert_int_equal(schedule_mark(schedule, run->order[i]), LS_OK);
        marked[run->order[i]] = true;
        launch_and_check(schedule, run, marked, is_agreed, &launched);
    }
    if (!is_agreed) agree(schedule, run, marked, &is_agreed, &launched);
    assert_int_equal(launched, run->bucket_count);
    for (int bucket = run->bucket_count - 1; bucket >= 0 && !run->reduces_early; bucket--) {
        assert_int_equal(schedule->state, SCHEDULE_DRAINING); /* not over before the last sum is back */
        assert_int_equal(schedule_reduced(schedule, bucket), LS_OK);
    }
    assert_int_equal(schedule->state, SCHEDULE_SETTLING);
    assert_int_equal(schedule_settled(schedule), LS_OK);
}

/* Heap's algorithm: calls drive for every order, every moment of agreement, both ways of reducing. */
static void every_order(ls_schedule *schedule, marking_run *run, int left) {
    if (left <= 1) {
        for (run->agreed_at = 0; run->agreed_at <= run->parameter_count; run->agreed_at++) {
            drive(schedule, run);
            run->reduces_early = !run->reduces_early;
        }
        return;
    }
    for (int i = 0; i < left; i++) {
        every_order(schedule, run, left - 1);
        const int other = left % 2 == 0 ? i : 0;
        const int held = run->order[other];
        run->order[other] = run->order[left - 1];
        run->order[left - 1] = held;
    }
}

/* Since every order of marks is tried, only the sizes of buckets matter: every way to write the count as a sum. */
static void every_split(marking_run *run, int bucket, int first) {
    const int left = run->parameter_count - first;
    if (bucket == run->bucket_count - 1) {
        for (int i = first; i < run->parameter_count; i++) run->bucket_of[i] = bucket;
        ls_schedule schedule;
        assert_int_equal(schedule_init(&schedule, run->parameter_count, run->bucket_count, run->bucket_of), LS_OK);
        for (int i = 0; i < run->parameter_count; i++) run->order[i] = i;
        every_order(&schedule, run, run->parameter_count);
        schedule_clear(&schedule);
        return;
    }
    for (int size = 1; size <= left - (run->bucket_count - 1 - bucket); size++) {
        for (int i = first; i < first + size; i++) run->bucket_of[i] = bucket;
        every_split(run, bucket + 1, first + size);
    }
}

static void buckets_start_in_order_when_ready_and_never_before_for_every_order(void **state) {
    (void)state;
    for (int parameters = 1; parameters <= 7; parameters++)
        for (int buckets = 1; buckets <= 4 && buckets <= parameters; buckets++) {
            marking_run run = {.parameter_count = parameters, .bucket_count = buckets};
            every_split(&run, 0, 0);
        }
}

static void random_large_schedules_hold_the_same_rules(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 300; round++) {
        marking_run run = {.parameter_count = 1 + rand() % MAX_PARAMETERS};
        run.bucket_count = 1 + rand() % run.parameter_count;
        for (int i = 0; i < run.parameter_count; i++) {
            run.bucket_of[i] = i < run.bucket_count ? i : rand() % run.bucket_count;
            if (i >= run.bucket_count && rand() % 8 == 0) run.bucket_of[i] = -1; /* no elements */
            run.order[i] = i;
        }
        for (int i = run.parameter_count - 1; i > 0; i--) {
            const int other = rand() % (i + 1), held = run.order[i];
            run.order[i] = run.order[other];
            run.order[other] = held;
        }
        run.agreed_at = rand() % (run.parameter_count + 1);
        run.reduces_early = rand() % 2;
        ls_schedule schedule;
        assert_int_equal(schedule_init(&schedule, run.parameter_count, run.bucket_count, run.bucket_of), LS_OK);
        drive(&schedule, &run); /* and again, from idle */
        drive(&schedule, &run);
        schedule_clear(&schedule);
    }
}

/* ---- Every pair of state and event ---- */

typedef enum schedule_event { ARM, AGREED, MARK, LAUNCH, REDUCED, SETTLED, FAIL, RESET, EVENT_COUNT } schedule_event;

static const int two_buckets[] = {0, 1};

/* A schedule of two parameters in two buckets, brought to a state. */
static ls_schedule brought_to(schedule_state state) {
    ls_schedule schedule;
    int bucket;
    assert_int_equal(schedule_init(&schedule, 2, 2, two_buckets), LS_OK);
    if (state == SCHEDULE_BROKEN) schedule_fail(&schedule);
    if (state == SCHEDULE_IDLE || state == SCHEDULE_BROKEN) return schedule;
    schedule_arm(&schedule);
    if (state == SCHEDULE_AGREEING) return schedule;
    schedule_agreed(&schedule);
    if (state == SCHEDULE_LAUNCHING) return schedule;
    schedule_mark(&schedule, 0);
    schedule_mark(&schedule, 1);
    assert_true(schedule_launch(&schedule, &bucket));
    assert_true(schedule_launch(&schedule, &bucket));
    if (state == SCHEDULE_DRAINING) return schedule;
    schedule_reduced(&schedule, 0);
    schedule_reduced(&schedule, 1);
    return schedule;
}

static ls_status apply(ls_schedule *schedule, schedule_event event) {
    int bucket;
    switch (event) {
    case ARM: return schedule_arm(schedule);
    case AGREED: return schedule_agreed(schedule);
    case MARK: return schedule_mark(schedule, 0);
    case LAUNCH: return schedule_launch(schedule, &bucket) ? LS_OK : LS_ERR_STATE;
    case REDUCED: return schedule_reduced(schedule, 0);
    case SETTLED: return schedule_settled(schedule);
    case FAIL: schedule_fail(schedule); return LS_OK;
    case RESET: schedule_reset(schedule); return LS_OK;
    default: return LS_ERR_STATE;
    }
}

#define REFUSED (-1)

/* The state that follows; REFUSED where the event does not fit and nothing may change. */
static const int arrows[SCHEDULE_STATE_COUNT][EVENT_COUNT] = {
    /*                      ARM                 AGREED              MARK                LAUNCH            */
    [SCHEDULE_IDLE] = {SCHEDULE_AGREEING, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, SCHEDULE_BROKEN, SCHEDULE_IDLE},
    [SCHEDULE_AGREEING] = {REFUSED, SCHEDULE_LAUNCHING, SCHEDULE_AGREEING, REFUSED, REFUSED, REFUSED, SCHEDULE_BROKEN,
                           SCHEDULE_IDLE},
    [SCHEDULE_LAUNCHING] = {REFUSED, REFUSED, SCHEDULE_LAUNCHING, REFUSED, REFUSED, REFUSED, SCHEDULE_BROKEN,
                            SCHEDULE_IDLE},
    [SCHEDULE_DRAINING] = {REFUSED, REFUSED, REFUSED, REFUSED, SCHEDULE_DRAINING, REFUSED, SCHEDULE_BROKEN,
                           SCHEDULE_IDLE},
    [SCHEDULE_SETTLING] = {REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, SCHEDULE_IDLE, SCHEDULE_BROKEN, SCHEDULE_IDLE},
    [SCHEDULE_BROKEN] = {REFUSED, REFUSED, SCHEDULE_BROKEN, REFUSED, REFUSED, REFUSED, SCHEDULE_BROKEN, SCHEDULE_IDLE},
};

static void every_state_takes_its_events_and_refuses_the_others_unchanged(void **state) {
    (void)state;
    for (int from = 0; from < SCHEDULE_STATE_COUNT; from++)
        for (int event = 0; event < EVENT_COUNT; event++) {
            ls_schedule schedule = brought_to((schedule_state)from);
            const ls_schedule before = schedule;
            assert_int_equal(schedule.state, from);
            const ls_status status = apply(&schedule, (schedule_event)event);
            if (arrows[from][event] == REFUSED) {
                assert_int_equal(status, LS_ERR_STATE);
                assert_memory_equal(&schedule, &before, sizeof before);
                if (event != LAUNCH && event != MARK && !(event == REDUCED && from == SCHEDULE_LAUNCHING))
                    assert_non_null(strstr(ls_last_error(), schedule_state_name((schedule_state)from)));
            } else {
                assert_int_equal(status, LS_OK);
                assert_int_equal(schedule.state, arrows[from][event]);
            }
            schedule_clear(&schedule);
        }
}

static void a_second_mark_is_refused_and_counts_nothing(void **state) {
    (void)state;
    ls_schedule schedule = brought_to(SCHEDULE_LAUNCHING);
    int bucket;
    assert_int_equal(schedule_mark(&schedule, 1), LS_OK);
    assert_int_equal(schedule_mark(&schedule, 1), LS_ERR_STATE);
    assert_int_equal(schedule.pending[1], 0);
    assert_int_equal(schedule.pending[0], 1);
    assert_false(schedule_launch(&schedule, &bucket)); /* bucket 0 still waits */
    assert_int_equal(schedule_mark(&schedule, 2), LS_ERR_ARGUMENT);
    schedule_clear(&schedule);
}

static void a_bucket_is_reduced_once_and_only_after_it_started(void **state) {
    (void)state;
    ls_schedule schedule = brought_to(SCHEDULE_LAUNCHING);
    int bucket;
    assert_int_equal(schedule_reduced(&schedule, 0), LS_ERR_STATE);
    schedule_mark(&schedule, 0);
    assert_true(schedule_launch(&schedule, &bucket));
    assert_int_equal(schedule_reduced(&schedule, 1), LS_ERR_STATE);
    assert_int_equal(schedule_reduced(&schedule, 0), LS_OK);
    assert_int_equal(schedule_reduced(&schedule, 0), LS_ERR_STATE);
    assert_int_equal(schedule.unreduced, 1);
    schedule_clear(&schedule);
}

static void without_buckets_agreeing_leads_to_the_end(void **state) {
    (void)state;
    ls_schedule schedule;
    int bucket;
    assert_int_equal(schedule_init(&schedule, 2, 0, (const int[]){-1, -1}), LS_OK);
    for (int step = 0; step < 2; step++) {
        assert_int_equal(schedule_arm(&schedule), LS_OK);
        assert_int_equal(schedule_mark(&schedule, 1), LS_OK);
        assert_int_equal(schedule_agreed(&schedule), LS_OK);
        assert_false(schedule_launch(&schedule, &bucket));
        assert_int_equal(schedule_settled(&schedule), LS_OK);
    }
    schedule_clear(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_start_in_order_when_ready_and_never_before_for_every_order),
        cmocka_unit_test(random_large_schedules_hold_the_same_rules),
        cmocka_unit_test(every_state_takes_its_events_and_refuses_the_others_unchanged),
        cmocka_unit_test(a_second_mark_is_refused_and_counts_nothing),
        cmocka_unit_test(a_bucket_is_reduced_once_and_only_after_it_started),
        cmocka_unit_test(without_buckets_agreeing_leads_to_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
