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

/* A test: every interleaving of `scene` comes to its end and keeps all claims. Prints how many states there are. */
#define SHOWN(sentence, scene) \
    { #sentence, show_scene, NULL, NULL, (void *)&(scene) }
void show_scene(void **state);

/* A step of the library without which the scene misses its end or breaks a claim. */
typedef struct needed_step {
    explore_mutation step;
    const explore_scene *scene;
} needed_step;

/* A test: none of `steps`, which a NULL scene ends, can be left out. */
#define NEEDED(sentence, steps) \
    { #sentence, show_needed, NULL, NULL, (void *)(steps) }
void show_needed(void **state);

#endif
