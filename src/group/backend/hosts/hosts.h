/* hosts.h: ranks of several hosts, some of which share one: shared memory within each host, TCP between them.
 *
 *   plan.c    which operations of the two backends an operation becomes
 *   work.c    what a rank does by itself between them
 *   op.c      runs all of it, one step after the other
 *   open.c    opens the groups beneath, its table of functions
 *
 * Beneath a group there are up to three, each a state of a backend of its own:
 *
 *     whole     all ranks, over TCP: carries whatever has no plan, and all messages
 *     within    the ranks of this host, over shared memory
 *     lane      one rank of each host, those of the same index on theirs, over TCP: what goes between hosts runs on
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

/* Where a step runs: in a group beneath, or on this rank alone. */
typedef enum hosts_where {
    HOSTS_WHOLE,
    HOSTS_WITHIN,
    HOSTS_LANE,
    HOSTS_PARTS,
    HOSTS_END = HOSTS_PARTS, /* what was combined becomes the result: an average, a short type */
    HOSTS_LOAD,              /* the user's array comes into scratch, in a type that is wide enough to add in */
    HOSTS_STORE              /* and back */
} hosts_where;

/* How an array lies in scratch. Rows begin `stride` elements apart in the user's array; a host's are one block, which is dealt
 * to the lanes in parts: [lanes][hosts][part]. */
typedef struct hosts_layout {
    ls_dtype dtype;
    size_t stride; /* 0: no rows, one stretch as it is */
    size_t part;
} hosts_layout;

/* One step of a plan; the call's dtype and op are the user's where the step is this rank's own. */
typedef struct hosts_step {
    hosts_where where;
    group_call call;
    hosts_layout layout; /* of LOAD and STORE */
} hosts_step;

#define HOSTS_MOST_LANES 16 /* that share one array: fewer, larger parts */
#define HOSTS_MOST_STEPS (6 + HOSTS_MOST_LANES)

/* Steps for the elements (of each row, where there are rows) up to `next`; a plan for those behind follows. */
typedef struct hosts_steps {
    hosts_step list[HOSTS_MOST_STEPS];
    int count; /* 0: the call has no plan, and goes over all ranks */
    size_t next;
} hosts_steps;

/* The two halves of a rank's scratch, between which data goes to and fro. */
#define HOSTS_HALF_BYTES ((size_t)2 << 20)

/* Where a rank is among the others; the numbers are the same on all. */
typedef struct hosts_place {
    int world_size;
    int host, host_count;
    int index, local_size; /* this rank's among those of its host */
    int lanes;             /* of the whole group: ranks of the smallest host */
    int largest;           /* ranks of the largest */
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
    hosts_steps steps; /* of the operation under way */
    int step;
    backend_op inner; /* of the step under way, in a group beneath */
    size_t done;      /* of one of our own: see hosts_work */
    char *scratch;    /* [2 * HOSTS_HALF_BYTES] */
} hosts_group;

/* Where ranks share hosts, every rank has one of the two. */
static inline bool hosts_have_plans(const hosts_group *hosts) {
    return hosts->parts[HOSTS_WITHIN].state || hosts->parts[HOSTS_LANE].state;
}

/* plan.c: the steps of `call` on this rank from element `at` on. Pure: of `scratch` only the address counts. */
void hosts_plan(const hosts_place *place, const group_call *call, char *scratch, size_t at, hosts_steps *steps);

/* work.c: goes on with a step of this rank's own, for some 100 us; `done` begins at 0. Returns whether it is complete. */
bool hosts_work(const hosts_place *place, const hosts_step *step, size_t *done);

/* op.c */
void hosts_start(void *state, backend_op *op);
backend_progress hosts_poll(void *state, backend_op *op);
ls_status hosts_examine(void *state, backend_op *op);
void hosts_describe_missing(void *state, const backend_op *op, char *text, size_t bytes);
uint32_t hosts_bell(void *state);
backend_progress hosts_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);
void hosts_wake(void *state);

#endif
