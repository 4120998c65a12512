/* ranks.h: a few ranks in one process, each with groups of its own, for the scenes.
 *
 * The backend is the real one's sleeping, waking, leaving and messages (shm/peers.c, shm/messages.c) beside collectives of the
 * model's own, which are done when all ranks have come to them. Once a group is closed the backend may not be called.  */
#ifndef LS_TEST_MODELS_RANKS_H
#define LS_TEST_MODELS_RANKS_H

#include "models/explore.h"

#include "group/group.h"

#define MOST_RANKS 3
#define MOST_GROUPS 4

/* What a scene is made of. */
typedef struct ranks_plan {
    int ranks;               /* 0: two */
    int groups;              /* of all ranks, each on every rank; 0: one */
    backend_drivers drivers; /* of rank 0; without DRIVEN_BY_ALL there is no progress thread */
    bool has_second_phase;   /* operations end when all are through, as those in place do */
    bool has_failures; /* groups are lost or closed: else that is a claim that does not hold, and costs no states */
    bool has_messages;
    bool has_others;        /* who waits polls other groups */
    bool others_are_single; /* only rank 0 has several threads: nobody looks at the driver of the others */
} ranks_plan;

/* Makes them all; called when a scene begins. */
void ranks_make(const ranks_plan *plan);
/* The group number `which` of a rank. */
ls_group *ranks_group(int rank, int which);
/* A rank comes to its operations up to `number` without waiting for ours: what ours see of its driver. */
void ranks_arrive(ls_group *group, uint64_t number);
void ranks_have_arrived(ls_group *group, uint64_t number); /* from the beginning */

/* Adds a thread of the scene; `body` NULL: another one starts it. */
int ranks_add_caller(const char *name, void (*body)(void *argument), ls_group *group);
/* All calls have returned, no work is left, and nobody drives but who has closed. */
bool ranks_are_done(void);
/* And this group's memory is free. */
bool ranks_have_freed(const ls_group *group);

/* --- between library.c and ranks.c -------------------------------------------------------------------------------------------------------- */

void *ranks_take_block(size_t bytes);
/* The list of live groups; who waits polls others. */
void library_list_group(ls_group *group);
bool ranks_have_others(void);
void *ranks_live_lock(void);
ls_live **ranks_live_first(void);
void ranks_live_remove(const ls_live *live);
ls_status ranks_start_progress(ls_thread *thread, void (*body)(void *argument), void *argument);
int ranks_progress_of(const ls_thread *thread);

#endif
