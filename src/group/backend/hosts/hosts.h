/* hosts.h: ranks of several hosts, some of which share one: shared memory within each host, TCP between them.
 *
 *   plan.c    which operations of the two backends an operation becomes
 *   op.c      runs them, one after the other
 *   open.c    opens the groups beneath, its table of functions
 *
 * Beneath a group there are up to three, each a state of a backend of its own:
 *
 *     whole     all ranks, over TCP: carries whatever has no plan, and all messages
 *     within    the ranks of this host, over shared memory
 *     lane      one rank of each host, those of the same index on theirs, over TCP: an all-reduce between hosts runs on
 *               as many lanes as the smallest host has ranks, each with its part of the data
 *
 * Where no host has a second rank, and with LOCKSTEP_DEBUG=detail, which compares the calls of all ranks first, there
 * is `whole` alone. Like every state they belong to whoever drives the group; only leave, bell and wake come from any
 * thread.                                                                                                            */
#ifndef LS_GROUP_HOSTS_HOSTS_H
#define LS_GROUP_HOSTS_HOSTS_H

#include "group/backend.h"
#include "group/reduce.h"

/* A group beneath. */
typedef struct hosts_part {
    const ls_backend *backend;
    void *state;     /* NULL: there is none */
    uint64_t number; /* of the last operation that it ran for us */
} hosts_part;

typedef enum hosts_where { HOSTS_WHOLE, HOSTS_WITHIN, HOSTS_LANE, HOSTS_PARTS, HOSTS_DIVIDE = HOSTS_PARTS } hosts_where;

/* One step of a plan. HOSTS_DIVIDE: what was summed becomes an average, by ourselves. */
typedef struct hosts_step {
    hosts_where where;
    group_call call;
} hosts_step;

#define HOSTS_MOST_LANES 16
#define HOSTS_MOST_STEPS (3 + HOSTS_MOST_LANES)

/* Where a rank is among the others; the numbers are the same on all. */
typedef struct hosts_place {
    int world_size;
    int host, host_count;
    int index, local_size; /* this rank's among those of its host */
    int lanes;             /* of the whole group */
    const int *host_of;    /* [world_size] numbers of hosts */
    int *index_of;         /* [world_size] */
} hosts_place;

typedef struct hosts_group {
    ls_group *group;
    hosts_place place;
    int *within_names, *lane_names; /* the ranks of the two: numbers of the group's */
    hosts_part parts[HOSTS_PARTS];
    _Atomic uint32_t bell;

    /* The driver's. */
    hosts_step steps[HOSTS_MOST_STEPS];
    int step_count, step; /* of the operation under way; step_count 0: it runs on `whole` */
    backend_op inner;     /* of the step under way */
    size_t divided;       /* elements */
} hosts_group;

/* Where ranks share hosts, every rank has one of the two. */
static inline bool hosts_have_plans(const hosts_group *hosts) {
    return hosts->parts[HOSTS_WITHIN].state || hosts->parts[HOSTS_LANE].state;
}

/* plan.c: the steps of `call` on this rank; 0: it has no plan. Pure. */
int hosts_plan(const hosts_place *place, const group_call *call, hosts_step steps[HOSTS_MOST_STEPS]);

/* op.c */
void hosts_start(void *state, backend_op *op);
backend_progress hosts_poll(void *state, backend_op *op);
ls_status hosts_examine(void *state, backend_op *op);
void hosts_describe_missing(void *state, const backend_op *op, char *text, size_t bytes);
uint32_t hosts_bell(void *state);
backend_progress hosts_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);
void hosts_wake(void *state);

#endif
