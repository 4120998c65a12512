/* A rank whose openings fail, over a store that rank 0 serves at MASTER_ADDR:PORT: worker_refused PORT
 *
 * Says why each failed, and rank 0 at last how many keys the store has more after the last than after the first. The ranks have to
 * find out where they are. Exit codes: 0, 3 when something else failed, 4 when a group opened. */
#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/group.h>

#include <stdio.h>
#include <stdlib.h>

enum { OPENINGS = 3 };

static int fail(void) {
    printf("%s\n", ls_last_error());
    return 3;
}

/* Until all ranks have come here once more. */
static ls_status meet(ls_store *store, int world_size, int round) {
    int64_t come = 0;
    ls_status status = ls_store_add(store, "come", 1, &come);
    while (status == LS_OK && come < (int64_t)world_size * round) {
        ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
        status = ls_store_add(store, "come", 0, &come);
    }
    return status;
}

int main(int argc, char **argv) {
    ls_store *store = NULL;
    int64_t keys[OPENINGS] = {0};
    int round = 0;
    const char *own = getenv("RANK"), *world_size = getenv("WORLD_SIZE"), *host = getenv("MASTER_ADDR");
    if (argc != 2 || !own || !world_size || !host) return 2;
    const ls_group_options options = {.rank = atoi(own), .world_size = atoi(world_size), .timeout_ms = 20000};
    if (ls_store_open_tcp(&store, host, atoi(argv[1]), options.rank == 0, 20000) != LS_OK) return fail();
    for (int i = 0; i < OPENINGS; i++) {
        ls_group_options opening = options;
        ls_group *group = NULL;
        opening.store = store;
        if (ls_group_open(&group, &opening) == LS_OK) return 4;
        printf("open: %s\n", ls_last_error());
        /* Nobody opens again, or ends, before all keys are counted. */
        if (meet(store, options.world_size, ++round) != LS_OK || ls_store_count(store, &keys[i]) != LS_OK ||
            meet(store, options.world_size, ++round) != LS_OK)
            return fail();
    }
    /* Who serves the store stays until the others have their last answer. */
    if (options.rank == 0) ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
    if (options.rank == 0) printf("keys: %+d\n", (int)(keys[OPENINGS - 1] - keys[0]));
    ls_store_close(&store);
    return 0;
}
