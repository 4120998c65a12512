/* threads.c: ranks as threads. */
#include "support/threads.h"

#include "base/context.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct running {
    ls_rank rank;
    void (*body)(const ls_rank *rank);
    pthread_t thread;
} running;

/* A context of its own: no rank is inherited from the test's thread. */
static void *run(void *argument) {
    const running *self = argument;
    *ls_context_here() = (ls_context){.rank = -1};
    self->body(&self->rank);
    return NULL;
}

void run_ranks_over(ls_store *store, int world_size, void (*body)(const ls_rank *rank), void *argument) {
    /* In threads that are not the test's own, cmocka shows what failed only when it may abort. */
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    running *ranks = calloc((size_t)world_size, sizeof *ranks);
    assert_non_null(ranks);
    for (int rank = 0; rank < world_size; rank++) {
        ranks[rank].rank = (ls_rank){.rank = rank, .world_size = world_size, .store = store, .argument = argument};
        ranks[rank].body = body;
        assert_int_equal(pthread_create(&ranks[rank].thread, NULL, run, &ranks[rank]), 0);
    }
    for (int rank = 0; rank < world_size; rank++) pthread_join(ranks[rank].thread, NULL);
    free(ranks);
    unsetenv("CMOCKA_TEST_ABORT");
}

void run_ranks(int world_size, void (*body)(const ls_rank *rank), void *argument) {
    ls_store *store = NULL;
    assert_ok(ls_store_open_hash(&store));
    run_ranks_over(store, world_size, body, argument);
    ls_store_close(&store);
}

ls_group_options rank_options(const ls_rank *rank) {
    return (ls_group_options){
        .store = rank->store, .rank = rank->rank, .world_size = rank->world_size, .timeout_ms = 60000};
}

ls_group *open_rank(const ls_rank *rank) {
    ls_group *group = NULL;
    const ls_group_options options = rank_options(rank);
    assert_ok(ls_group_open(&group, &options));
    return group;
}

void assert_error_says_at(const char *text, const char *file, int line) {
    if (strstr(ls_last_error(), text)) return;
    print_error("the last error is \"%s\", without \"%s\"\n", ls_last_error(), text);
    _fail(file, line);
}
