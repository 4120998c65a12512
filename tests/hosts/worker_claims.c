/* A rank whose two threads allocate group memory at the same moments, and again where they were refused: worker_claims COUNT
 *
 * All ranks do so as often, COUNT times a thread. Who is refused has posted nothing: so it hears of no other rank, and the ranks
 * stay in step. Exit codes: 0, 3 when something else failed, which it says. */
#include "base/clock.h"
#include "base/wait.h"

#include <lockstep/group.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ls_group *group;
static int wanted;

static ls_status allocate(void) {
    char refusal[64];
    void *memory = NULL;
    ls_status status = LS_OK;
    snprintf(refusal, sizeof refusal, "rank %d: another thread", ls_group_rank(group));
    while ((status = ls_group_alloc(group, 4096, &memory)) == LS_ERR_STATE &&
           strncmp(ls_last_error(), refusal, strlen(refusal)) == 0)
        ls_sleep_until(ls_now_ns() + LS_NS_PER_MS / 10);
    ls_group_free(group, memory);
    return status;
}

static void *allocate_all(void *status) {
    for (int i = 0; i < wanted && *(ls_status *)status == LS_OK; i++) *(ls_status *)status = allocate();
    if (*(ls_status *)status != LS_OK) printf("%s\n", ls_last_error());
    return NULL;
}

int main(int argc, char **argv) {
    ls_status first = LS_OK, second = LS_OK, after = LS_OK;
    pthread_t other;
    if (argc != 2) return 2;
    wanted = atoi(argv[1]);
    if (ls_group_open(&group, &(ls_group_options){.timeout_ms = 20000}) != LS_OK) return 2;
    if (pthread_create(&other, NULL, allocate_all, &second) != 0) return 2;
    allocate_all(&first);
    pthread_join(other, NULL);
    if ((after = ls_group_barrier(group, NULL)) != LS_OK) printf("%s\n", ls_last_error());
    ls_group_close(&group);
    return first != LS_OK || second != LS_OK || after != LS_OK ? 3 : 0;
}
