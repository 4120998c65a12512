/* bench.h: the pieces of `lockstep bench`. All-reduce: the command orders rounds of contenders, which are jobs of
 * their own (bench/round.h), and sets them side by side. */
#ifndef LS_TOOLS_BENCH_H
#define LS_TOOLS_BENCH_H

#include <lockstep/group.h>

#include <sys/types.h>

/* Each returns the exit code. */
int bench_all_reduce_main(int argc, char **argv);   /* the command */
int bench_all_reduce_worker(int argc, char **argv); /* one rank of the library's own job */
int bench_startup_main(int argc, char **argv);
int bench_startup_worker(int argc, char **argv);

/* --- bench_jobs.c: the library and its peers, each a job of its own ----------------------------------------------- */

#define BENCH_MOST_JOBS 16
#define BENCH_MOST_RANKS 64

typedef struct bench_job {
    char impl[24], version[64];
    int ranks;
    pid_t process;                /* of the program that started the ranks; 0: it has been waited for */
    int orders[BENCH_MOST_RANKS]; /* where we write, a rank each */
    int first;                    /* what the ranks open: descriptors for orders, then the one for answers */
    int answers;                  /* where we read */
    bool is_ready;                /* and has not failed since */
} bench_job;

/* One round of a job. */
typedef struct bench_job_round {
    const char *way;
    size_t bytes;
    bool is_fresh;
    int operations;
    double pause_us;
    double median_us, best_us; /* what came out */
} bench_job_round;

/* Starts the library's own job, and every peer in a folder of peers (NULL: none), each an executable DIR/PEER/start.
 * Peers that do not come up are left out with a line on standard error. Returns how many there are, the library first,
 * or 0. */
int bench_jobs_start(bench_job *jobs, int ranks, size_t most_bytes, const char *peers);
/* Returns false, and lets go of the job, when it failed. */
bool bench_job_run(bench_job *job, bench_job_round *round);
/* Ends all jobs and waits for them. */
void bench_jobs_end(bench_job *jobs, int count);

/* --- bench_yardstick.c -------------------------------------------------------------------------------------------- */

/* The yardstick: the two prototypes of an all-reduce of f32 sums between ranks of one host that set what is reachable.
 * No checks, no errors, no sleep: only data and flags. */
typedef struct bench_yardstick bench_yardstick;

#define BENCH_ONE_PHASE_BYTES ((size_t)16384)

ls_status bench_yardstick_open(bench_yardstick **yardstick, ls_group *group, size_t most_bytes);
void bench_yardstick_close(bench_yardstick **yardstick);
/* This rank's copy, which all ranks map. */
float *bench_yardstick_data(const bench_yardstick *yardstick);
/* Each rank adds its share of all copies and writes it into all copies. */
void bench_in_place(bench_yardstick *yardstick, size_t bytes);
/* Each rank publishes `bytes` of `data`, at most BENCH_ONE_PHASE_BYTES, and adds everyone's. */
void bench_one_phase(bench_yardstick *yardstick, float *data, size_t bytes);

#endif
