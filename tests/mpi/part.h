/* part.h: a rank under mpirun that does one of its program's parts, which argv[1] names. The group comes from the environment, as
 * a user's would. Prints "rank N is done" at its end; exits with 1 and the place when something is not as it should be. */
#ifndef LS_TEST_MPI_PART_H
#define LS_TEST_MPI_PART_H

#include "support/table.h"

#include "base/clock.h"
#include "base/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__, #condition, ls_last_error()); \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

/* The call fails with `status`, and its sentence contains `text`. */
#define MUST_FAIL(call, expected, text)                                                                 \
    do {                                                                                                \
        const ls_status must_fail_status = (call);                                                      \
        if (must_fail_status != (expected) || !strstr(ls_last_error(), text)) {                         \
            fprintf(stderr, "%s:%d: expected %s with \"%s\", found %s: %s\n", __FILE__, __LINE__,       \
                    ls_status_name(expected), text, ls_status_name(must_fail_status), ls_last_error()); \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

/* Of the group that was opened last. */
static int rank, world_size;
static bool ends_lost; /* some rank's group is lost at the end */

static inline ls_group *open_group(int64_t timeout_ms) {
    ls_group *group = NULL;
    const ls_status status = ls_group_open(&group, &(ls_group_options){.timeout_ms = timeout_ms});
    if (status != LS_OK) {
        fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_last_error());
        exit(1);
    }
    rank = ls_group_rank(group);
    world_size = ls_group_world_size(group);
    return group;
}

static inline void nap_ms(int64_t ms) {
    ls_sleep_until(ls_deadline_after_ms(ms));
}

/* Some twenty lines of the table of collectives. */
static inline void walk(ls_group *group, uint64_t seed) {
    const table_plan plan = {.seed = seed, .every = 67, .adds_in_any_order = true};
    MUST(table_walk(group, &plan, NULL));
}

typedef struct part {
    const char *name;
    void (*run)(void);
} part;

static inline int run_part(const part *parts, size_t count, int argc, char **argv) {
    const part *named = NULL;
    for (size_t i = 0; i < count; i++)
        if (argc == 2 && strcmp(parts[i].name, argv[1]) == 0) named = &parts[i];
    if (!named) return 2;
    named->run();
    printf("rank %d is done\n", rank);
    fflush(stdout);
    /* The launcher ends the job once one rank of a lost group has ended: until then all have said that they are done. */
    if (ends_lost) {
        ls_group *last = NULL;
        ls_group_open(&last, &(ls_group_options){.timeout_ms = 2500});
        nap_ms(200); /* while the launcher reads it */
        ls_group_close(&last);
    }
    return 0;
}

#endif
