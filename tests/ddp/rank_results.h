/* rank_results.h: ranks as threads of the test: each runs a scenario and writes down what it saw; the test asserts
 * afterwards, on its own thread. */
#ifndef LS_TEST_RANK_RESULTS_H
#define LS_TEST_RANK_RESULTS_H

#include "support/test.h"
#include "support/threads.h"

#include "ddp/scalar_model.h"

#include <lockstep/optim.h>

#include <string.h>

#define MOST_RANKS 4

typedef struct rank_result {
    ls_status status, next_status;
    char text[1024], next_text[1024];
    double gradient[8], next_gradient[8];
    int64_t number;
} rank_result;

typedef void (*rank_scenario)(ls_group *group, rank_result *result);

/* Writes a verdict down, with its sentence. */
static inline void note(rank_result *result, ls_status status) {
    result->status = status;
    snprintf(result->text, sizeof result->text, "%s", status == LS_OK ? "" : ls_last_error());
}

static inline void note_next(rank_result *result, ls_status status) {
    result->next_status = status;
    snprintf(result->next_text, sizeof result->next_text, "%s", status == LS_OK ? "" : ls_last_error());
}

static inline void note_gradients(rank_result *result, const scalar_model *model) {
    for (int i = 0; i < ls_module_parameter_count(model->module); i++) result->gradient[i] = scalar_gradient(model, i);
}

static inline void note_next_gradients(rank_result *result, const scalar_model *model) {
    for (int i = 0; i < ls_module_parameter_count(model->module); i++)
        result->next_gradient[i] = scalar_gradient(model, i);
}

typedef struct rank_results_job {
    rank_scenario run;
    rank_result *results;
} rank_results_job;

static inline void rank_results_body(const ls_rank *rank) {
    const rank_results_job *job = rank->argument;
    ls_group *group = open_rank(rank);
    job->run(group, &job->results[rank->rank]);
    ls_group_close(&group);
}

/* Runs the scenario on `world_size` ranks; results [world_size] are zeroed first. */
static inline void run_scenario(int world_size, rank_scenario run, rank_result *results) {
    memset(results, 0, (size_t)world_size * sizeof *results);
    rank_results_job job = {run, results};
    run_ranks(world_size, rank_results_body, &job);
}

/* The frame of a scenario: a wrapped model of some weights in `model`, `ddp`, `rank`; DONE lets go of it. */
#define LEARN(model_count, options_literal)                                                \
    scalar_model model = {0};                                                              \
    ls_ddp *ddp = NULL;                                                                    \
    const int rank = ls_group_rank(group);                                                 \
    (void)rank;                                                                            \
    ls_status status = scalar_model_create(&model, model_count);                           \
    if (status == LS_OK) status = ls_ddp_wrap(&ddp, model.module, group, options_literal); \
    note(result, status);                                                                  \
    if (status != LS_OK) goto out

#define DONE            \
    out:                \
    ls_ddp_close(&ddp); \
    ls_module_close(&model.module)

#define assert_near(a, b) assert_true(fabs((a) - (b)) <= 1e-12)

/* The verdict that was noted, and a part of its sentence. */
static inline void assert_said(const rank_result *result, ls_status status, const char *text) {
    assert_int_equal(result->status, status);
    assert_non_null(strstr(result->text, text));
}

/* The next step of two ranks, whose gradients are 1 and 2, is well. */
static inline void assert_goes_on(const rank_result *result) {
    assert_int_equal(result->next_status, LS_OK);
    assert_near(result->next_gradient[0], 1.5);
}

#endif
