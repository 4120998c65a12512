/* A rank of three, the first of which serves the store, and is stopped while the others need it:
 *
 *   worker_stopped open          once the ranks have met
 *   worker_stopped duplicate     once a duplicate is agreed on
 *   worker_stopped alloc         once memory of the group is agreed on
 *   worker_stopped barrier       before it comes to a monitored barrier
 *
 * What is done has a limit of LIMIT_MS. Exit codes: 0, or 3 after a failure, whose status and sentence are printed. */
#include "support/faults.h"

#include <lockstep/group.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_MS = 1000 };

static void stop(void *argument) {
    (void)argument;
    raise(SIGSTOP);
}

/* What is done, and the point at which rank 0 stops; NULL: before it calls. */
static const struct {
    const char *name, *point;
} all[] = {{"open", "rendezvous.met"},
           {"duplicate", "related.group.agreed"},
           {"alloc", "shm.allocate.agreed"},
           {"barrier", NULL}};

static ls_status use(ls_group *group, const char *what) {
    ls_group *duplicate = NULL;
    void *memory = NULL;
    if (strcmp(what, "duplicate") == 0) return ls_group_duplicate(&duplicate, group);
    if (strcmp(what, "alloc") == 0) return ls_group_alloc(group, 4096, &memory);
    if (strcmp(what, "barrier") != 0) return LS_OK;
    if (ls_group_rank(group) == 0) stop(NULL);
    return ls_group_monitored_barrier(group, LIMIT_MS);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const ls_group_options options = {.timeout_ms = LIMIT_MS};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, what) == 0 && all[i].point) ls_at_point(all[i].point, 0, 1, stop, NULL);
    ls_group *group = NULL;
    ls_status status = ls_group_open(&group, &options);
    if (status == LS_OK) status = use(group, what);
    printf("%s: %s\n", ls_status_name(status), status == LS_OK ? "done" : ls_last_error());
    ls_group_close(&group);
    return status == LS_OK ? 0 : 3;
}
