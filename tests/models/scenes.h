/* scenes.h: what the tests of this folder share: calls that a scene's threads make, and what is asked of a scene. */
#ifndef LS_TEST_MODELS_SCENES_H
#define LS_TEST_MODELS_SCENES_H

#include "support/test.h"

#include "models/ranks.h"

#include "group/post.h"

/* Bodies of threads; `argument` is the group. */
void scene_call(void *argument); /* blocks */
void scene_call_twice(void *argument);
void scene_post_and_wait(void *argument);
void scene_post(void *argument); /* and lets go */

/* Every interleaving comes to its end and keeps all claims. Prints how many states there are. */
void assert_shown(const explore_scene *scene);

/* A step of the library without which the scene misses its end or breaks a claim. */
typedef struct needed_step {
    explore_mutation step;
    const explore_scene *scene;
} needed_step;
void assert_needed(const needed_step *steps, size_t count);

#endif
