/* points.h: the named points of the room's protocols (base/fault.h), for tests that stop or kill a rank at each of them. */
#ifndef LS_GROUP_POINTS_H
#define LS_GROUP_POINTS_H

static const char *const group_points[] = {
    "shm.share.published",   /* our part of the segment, for a group's boards or for memory, is there */
    "shm.share.mapped",      /* we are through, nobody knows */
    "shm.share.met",         /* everyone is */
    "shm.allocate.agreed",   /* all ranks want the same memory, and there is enough */
    "shm.meeting.published", /* our call can be seen */
    "shm.meeting.met",       /* we have seen everyone's, nothing is done yet */
    "shm.in_place.combined", /* a part of our share is written into every copy */
    "shm.in_place.copied",   /* a part of a peer's data is copied */
    "shm.in_place.finished", /* we have said that our part is done */
    "shm.staged.put",        /* a chunk of ours is in the stage */
    "shm.staged.combined",   /* our share of a chunk is combined */
    "shm.staged.taken",      /* a chunk is taken out */
    "shm.message.offered",   /* the other rank can see our message */
    "shm.message.granted",   /* we want the other rank's message */
    "shm.message.written",   /* a part of a message is in the ring */
    "shm.message.read",      /* a part of a message is taken out */
    "shm.operation.done",    /* an operation is complete here */
    "shm.leaving.said",      /* our board says that we have left, or why the group is lost */
};

/* Of groups made of a group, and of the barrier that goes through the store; every backend's. */
static const char *const related_points[] = {
    "related.split.gathered", /* we know everyone's colour and key */
    "related.group.agreed",   /* all ranks want the same group, and have a number for it */
    "related.group.open",     /* it is open here */
    "monitored.barrier.come", /* it can be seen that we have come */
    "monitored.barrier.told", /* the verdict is there, or is here */
};

/* Rank 0 alone comes to "shm.share.gathered" (it has the processes of some ranks, which the others have not) and to
 * "monitored.barrier.collected" (it knows who has come, which the others do not). */

#define RELATED_POINT_COUNT ((int)(sizeof related_points / sizeof related_points[0]))

#define GROUP_POINT_COUNT ((int)(sizeof group_points / sizeof group_points[0]))

#endif
