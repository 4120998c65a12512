/* test_bits.c: whatever is combined has the same bits: in one message and in several, in any memory, on all ranks, in every run,
 * and, since all add in the order of the ranks, over shared memory and over TCP. Between hosts: tests/hosts/test_bits.sh. */
#include "support/threads.h"

#include "base/wait.h"
#include "group/backend.h"
#include "group/bits.h"

#include <time.h>

typedef struct run {
    const ls_backend *backend;
    uint64_t seed, digest;
} run;

static void find_digest(const ls_rank *rank) {
    run *self = rank->argument;
    const ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, self->backend));
    const uint64_t digest = bits_of_all(group, self->seed);
    if (rank->rank == 0) self->digest = digest;
    ls_group_close(&group);
}

static void the_bits_are_the_same_in_every_run_and_split_and_over_every_backend(void **state) {
    (void)state;
    const ls_backend *const backends[] = {&shm_backend, &tcp_backend, &shm_backend, &tcp_backend};
    const int runs = LS_UNDER_THREAD_SANITIZER ? 2 : 4;
    for (int world_size = 3; world_size <= 4; world_size++) {
        run all = {.seed = (uint64_t)time(NULL)};
        uint64_t first = 0;
        print_message("%d ranks, seed %llu\n", world_size, (unsigned long long)all.seed);
        for (int i = 0; i < runs; i++) {
            all.backend = backends[i];
            run_ranks(world_size, find_digest, &all);
            if (i == 0) first = all.digest;
            assert_int_equal(all.digest, first);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_the_same_in_every_run_and_split_and_over_every_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
