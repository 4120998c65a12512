/* environment.h: what a worker finds in its environment. */
#ifndef LS_LAUNCH_ENVIRONMENT_H
#define LS_LAUNCH_ENVIRONMENT_H

#include <sys/types.h>

/* The job, on every process that descends from it: identities of all launchers above, the innermost last. */
#define LAUNCH_ENV_JOB "LOCKSTEP_JOB"

typedef struct launch_place {
    int rank, ranks;
    int cores;          /* of this host, for all ranks together */
    const char *job;    /* the job's identity */
    const char *socket; /* the name of the store's abstract socket */
    int door;           /* the number of the inherited socket */
    pid_t launcher;
} launch_place;

/* This process's environment, with all that tells a worker its place put in or taken out. Freed by ls_free; NULL when
 * memory was refused. */
char **launch_environment_create(const launch_place *place);

#endif
