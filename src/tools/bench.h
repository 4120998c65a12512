/* bench.h: the pieces of `lockstep bench`: the command collects records that ranks print, a line each. */
#ifndef LS_TOOLS_BENCH_H
#define LS_TOOLS_BENCH_H

#include <lockstep/group.h>

/* Each returns the exit code. */
int bench_all_reduce_main(int argc, char **argv);   /* the command */
int bench_all_reduce_worker(int argc, char **argv); /* one rank of it */
int bench_startup_main(int argc, char **argv);
int bench_startup_worker(int argc, char **argv);

/* What a rank measured, in microseconds. */
typedef struct bench_record {
    char impl[24], memory[12], mode[12], pattern[12];
    int ranks;
    size_t bytes;
    double median_us, best_us;
    double ratio; /* to "reachable", the median over rounds; 0: not measured beside it */
} bench_record;

/* As a JSON object with its newline, and back. */
void bench_print(const bench_record *record);
bool bench_parse(const char *line, bench_record *record);

/* The sizes that are measured, ended by 0. */
extern const size_t bench_sizes[];

/* The yardstick: the two prototypes of an all-reduce of f32 sums between ranks of one host that set what is reachable. No
 * checks, no errors, no sleep: only data and flags. */
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
