/* scenes.c: what the tests of this folder share. */
#include "models/scenes.h"

#include <stdio.h>
#include <string.h>

static const group_call a_barrier = {.kind = GROUP_BARRIER, .dtype = LS_U8};

void scene_call(void *argument) {
    explore_claim(group_run(argument, &a_barrier) == LS_OK, "a call fails");
}

void scene_call_twice(void *argument) {
    scene_call(argument);
    scene_call(argument);
}

void scene_post_and_wait(void *argument) {
    ls_work *work = NULL;
    explore_claim(group_post(argument, &a_barrier, &work) == LS_OK, "a post fails");
    explore_claim(ls_work_wait(work, 0) == LS_OK, "a wait fails");
    ls_work_close(&work);
}

void scene_post(void *argument) {
    ls_work *work = NULL;
    explore_claim(group_post(argument, &a_barrier, &work) == LS_OK, "a post fails");
    ls_work_close(&work);
}

static explore_result result;

void show_scene(void **state) {
    explore(*state, NULL, &result);
    print_message("%zu states, %zu steps\n", result.states, result.steps);
    if (result.is_violated) fprintf(stderr, "%s\n", result.text); /* longer than cmocka prints */
    assert_false(result.is_violated);
    assert_true(result.states > 500);
}

void show_needed(void **state) {
    int not_found = 0;
    for (const needed_step *each = *state; each->scene; each++) {
        const explore_mutation *step = &each->step;
        explore(each->scene, step, &result);
        /* Too many states prove nothing. */
        if (explore_was_met() && result.is_violated && !strstr(result.text, "more than")) continue;
        print_error("without the %s of %s in %s nothing is found in %zu states (met: %d)\n", step->what,
                    step->at ? step->at : "all", step->where, result.states, explore_was_met());
        not_found++;
    }
    assert_int_equal(not_found, 0);
}
