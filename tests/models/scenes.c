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

void assert_shown(const explore_scene *scene) {
    explore(scene, NULL, &result);
    print_message("%zu states, %zu steps\n", result.states, result.steps);
    if (result.is_violated) fprintf(stderr, "%s\n", result.text); /* longer than cmocka prints */
    assert_false(result.is_violated);
    assert_true(result.states > 1000);
}

void assert_needed(const needed_step *steps, size_t count) {
    for (size_t i = 0; i < count; i++) {
        explore(steps[i].scene, &steps[i].step, &result);
        if (!result.is_violated || !explore_was_met())
            print_error("without the %s of %s in %s: nothing is found in %zu states (met: %d)\n", steps[i].step.what,
                        steps[i].step.at ? steps[i].step.at : "", steps[i].step.where, result.states,
                        explore_was_met());
        assert_true(explore_was_met());
        assert_true(result.is_violated);
        assert_null(strstr(result.text, "more than")); /* states: that proves nothing */
    }
}
