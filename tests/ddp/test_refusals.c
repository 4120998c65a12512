/* One rank is refused memory, once, at each place where it asks for some: all ranks fail alike in that call or step,
 * none hangs, none goes on with numbers of another step, and the steps that follow are right. Ranks are threads. */
#include "ddp/rank_results.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#define STEPS 3
#define MOST_REFUSALS 2000

static _Thread_local bool is_refused_here;
static _Thread_local int asked;
static int refused_at;
static bool was_refused;

static bool refuse(ls_fault_kind kind) {
    if (!is_refused_here || !(kind & (LS_FAULT_MEMORY | LS_FAULT_THREAD)) || ++asked != refused_at) return false;
    return was_refused = true;
}

static const ls_fault_hooks refusing = {.should_fail = refuse};

/* What one rank came to: the wrap's or the reducer's creation, then the steps. */
typedef struct verdicts {
    int count;
    ls_status status[STEPS + 1];
    char text[STEPS + 1][LS_ERROR_TEXT_BYTES];
    double gradient[STEPS + 1];
} verdicts;

static void add(verdicts *all, ls_status status, double gradient) {
    const bool was_on = is_refused_here;
    is_refused_here = false;
    all->status[all->count] = status;
    snprintf(all->text[all->count], sizeof all->text[0], "%s", status == LS_OK ? "" : ls_last_error());
    all->gradient[all->count++] = gradient;
    is_refused_here = was_on;
}

/* What the program itself allocates is not refused. */
static void wrap_and_step(ls_group *group, verdicts *all) {
    static const ls_ddp_options options = {.find_unused_parameters = true, .bucket_cap_bytes = 1};
    const bool is_target = ls_group_rank(group) == 1;
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    ls_tensor *batch = scalar_batch(&(double){ls_group_rank(group) + 1}, 1);
    assert_ok(scalar_model_create(&model, 3));
    model.is_upward = true; /* so that a rebuild moves gradients */
    is_refused_here = is_target;
    add(all, ls_ddp_wrap(&ddp, model.module, group, &options), 0);
    for (int step = 0; step < STEPS && ddp; step++) {
        ls_step_begin();
        ls_backward(ls_mean(ls_module_forward(model.module, batch)));
        const ls_status status = ls_step_end();
        add(all, status, scalar_gradient(&model, 0));
        scalar_zero_gradients(&model);
    }
    is_refused_here = false;
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
    ls_tensor_close(&batch);
}

static void create_and_step(ls_group *group, verdicts *all) {
    double own = 0;
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64, .gradient = &own},
                                     {.name = "b", .dtype = LS_F64, .ndim = 1, .dims = {3000}}};
    const ls_reducer_options options = {.find_unused_parameters = true, .bucket_cap_bytes = 1};
    ls_reducer *reducer = NULL;
    is_refused_here = ls_group_rank(group) == 1;
    add(all, ls_reducer_create(&reducer, group, gradients, 2, &options), 0);
    for (int step = 0; step < STEPS && reducer; step++) {
        own = ls_group_rank(group) + 1;
        ls_status status = ls_reducer_begin(reducer);
        /* b is used in the last step only: until then its content is put aside. */
        if (status == LS_OK && step == STEPS - 1) ls_reducer_ready(reducer, 1);
        if (status == LS_OK) ls_reducer_ready(reducer, 0);
        if (status == LS_OK) status = ls_reducer_finish(reducer);
        add(all, status, own);
    }
    is_refused_here = false;
    ls_reducer_close(&reducer);
}

typedef struct refusal_job {
    void (*run)(ls_group *group, verdicts *all);
    verdicts ranks[2];
} refusal_job;

static void refusal_body(const ls_rank *rank) {
    refusal_job *job = rank->argument;
    ls_group *group = open_rank(rank);
    asked = 0;
    job->run(group, &job->ranks[rank->rank]);
    ls_group_close(&group);
}

/* Whether the refusal struck before there was a way to agree, or in the middle of moving gradients, when this rank's
 * buckets are no more what they were: then the group is aborted, and says why. */
static bool is_told_by_an_abort(const verdicts *other, const verdicts *refused, int at) {
    return other->status[at] == LS_ERR_ABORTED && refused->status[at] == LS_ERR_MEMORY &&
           strstr(other->text[at], "rank 1") && strstr(other->text[at], "cannot allocate");
}

static void assert_alike(const refusal_job *job) {
    const verdicts *other = &job->ranks[0], *refused = &job->ranks[1];
    if (other->count != refused->count) print_error("refusal %d\n", refused_at);
    assert_int_equal(other->count, refused->count);
    for (int at = 0; at < other->count; at++) {
        if (other->status[at] != refused->status[at] && !is_told_by_an_abort(other, refused, at)) {
            print_error("refusal %d, call %d: %s, %s\n", refused_at, at, other->text[at], refused->text[at]);
            assert_int_equal(other->status[at], refused->status[at]);
        }
        if (at > 0 && other->status[at] == LS_OK) assert_near(other->gradient[at], 1.5);
        if (at > 0 && other->status[at] == LS_OK) assert_near(refused->gradient[at], 1.5);
    }
}

static void refuse_everywhere(void (*run)(ls_group *group, verdicts *all)) {
    static refusal_job job;
    ls_fault_hooks_installed = &refusing;
    was_refused = true;
    for (refused_at = 1; was_refused && refused_at < MOST_REFUSALS; refused_at++) {
        const uint64_t live = ls_alloc_live();
        was_refused = false;
        memset(&job, 0, sizeof job);
        job.run = run;
        run_ranks(2, refusal_body, &job);
        assert_alike(&job);
        assert_int_equal(ls_alloc_live(), live);
    }
    assert_true(refused_at > 20 && !was_refused);
}

static void a_wrap_refused_memory_on_one_rank_fails_alike_on_all_wherever_it_strikes(void **state) {
    (void)state;
    refuse_everywhere(wrap_and_step);
}

static void a_reducer_refused_memory_on_one_rank_fails_alike_on_all_wherever_it_strikes(void **state) {
    (void)state;
    refuse_everywhere(create_and_step);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrap_refused_memory_on_one_rank_fails_alike_on_all_wherever_it_strikes),
        cmocka_unit_test(a_reducer_refused_memory_on_one_rank_fails_alike_on_all_wherever_it_strikes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
