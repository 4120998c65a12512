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

/* Where a group has several threads, so that they look at who drives. */
typedef enum ranks_several { SEVERAL_ANYWHERE, SEVERAL_IN_FIRST /* group of rank 0 */, SEVERAL_NOWHERE } ranks_several;

/* What a scene is made of. What it does without costs no states. */
typedef struct ranks_plan {
    int ranks;               /* 0: two */
    int groups;              /* of all ranks, each on every rank; 0: one */
    backend_drivers drivers; /* of rank 0; without DRIVEN_BY_ALL there is no progress thread */
    bool has_second_phase;   /* operations end when all are through, as those in place do */
    bool has_failures;       /* groups are lost; else that is a claim that does not hold */
    bool has_closing;        /* and closed */
    bool has_messages;
    bool lanes_are_quiet; /* of messages: the protocol is another scene's, here it is the hand-over */
    bool has_others;      /* who waits polls other groups */
    ranks_several several;
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
/* Work that was posted before the scene begins; with its progress thread, if rank 0 has one. The scene's to close. */
ls_work *ranks_post_before(ls_group *group);

/* A message of one byte, its tag, that is there before the scene begins: rank 0 has only to take it. */
void ranks_send_before(int from, uint8_t tag);

/* Rank 0 has come to its first collective; has shown rank 1 its first message. */
bool ranks_has_begun_collective(void);
bool ranks_has_begun_message(void);

/* All calls have returned, no work is left, and nobody drives but who has closed. */
bool ranks_are_done(void);
/* And this group's memory is free. */
bool ranks_have_freed(const ls_group *group);

/* --- between library.c and ranks.c ------------------------------------------------------------------------------------ */

void *ranks_take_block(size_t bytes);
/* The list of live groups; who waits polls others. */
void library_list_group(ls_group *group);
bool ranks_have_others(void);
void *ranks_live_lock(void);
ls_live **ranks_live_first(void);
void ranks_live_remove(const ls_live *live);
void library_start_progress(ls_group *group); /* before the scene begins */
ls_status ranks_start_progress(ls_thread *thread, void (*body)(void *argument), void *argument);
int ranks_progress_of(const ls_thread *thread);

#endif
