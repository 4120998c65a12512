/* schedule.h: which bucket may start, and when backward is over. See schedule.c for the machine. */
#ifndef LS_DDP_SCHEDULE_H
#define LS_DDP_SCHEDULE_H

#include <lockstep/base.h>

typedef enum schedule_state {
    SCHEDULE_IDLE = 0,
    SCHEDULE_AGREEING,
    SCHEDULE_LAUNCHING,
    SCHEDULE_DRAINING,
    SCHEDULE_SETTLING,
    SCHEDULE_BROKEN,
    SCHEDULE_STATE_COUNT
} schedule_state;

const char *schedule_state_name(schedule_state state);

/* Fields are read by tests and the reducer, written in schedule.c alone. */
typedef struct ls_schedule {
    schedule_state state;
    int parameter_count, bucket_count;
    int *bucket_of;    /* [parameter_count]; -1: no elements, always ready, never counted */
    int *member_count; /* [bucket_count] counted members */
    int *pending;      /* [bucket_count] members that are not marked yet */
    bool *is_marked;   /* [parameter_count] */
    bool *is_reduced;  /* [bucket_count] */
    int unmarked;      /* parameters of this step that are not marked yet */
    int next;          /* the bucket that starts next; those before it have started */
    int unreduced;     /* buckets whose sums are not back */
} ls_schedule;

/* Sets up for a layout: bucket_of [parameter_count], each in [0, bucket_count) or -1; copied. Errors: LS_ERR_MEMORY. */
ls_status schedule_init(ls_schedule *schedule, int parameter_count, int bucket_count, const int *bucket_of);
void schedule_clear(ls_schedule *schedule);

/* The events. Each returns LS_ERR_STATE, names state and event, and changes nothing where the machine has no such
 * arrow. */
ls_status schedule_arm(ls_schedule *schedule);
ls_status schedule_agreed(ls_schedule *schedule);
ls_status schedule_mark(ls_schedule *schedule, int parameter);
ls_status schedule_reduced(ls_schedule *schedule, int bucket);
ls_status schedule_settled(ls_schedule *schedule);
void schedule_fail(ls_schedule *schedule);
void schedule_reset(ls_schedule *schedule);

/* Takes the next bucket if it may start now: it counts as started. False when none may. */
bool schedule_launch(ls_schedule *schedule, int *bucket);

#endif
