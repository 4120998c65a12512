/* on_gpus.h: ranks as threads, each with a GPU of the stand-in's, and arrays in their memory. */
#ifndef LS_TEST_NCCL_ON_GPUS_H
#define LS_TEST_NCCL_ON_GPUS_H

#include "support/threads.h"

#include "nccl/stand_in.h"

#include <stdlib.h>
#include <string.h>

static inline ls_group_options gpu_options(const ls_rank *rank) {
    ls_group_options options = rank_options(rank);
    options.backend = "nccl";
    return options;
}

static inline ls_group *open_on_gpu(const ls_rank *rank) {
    ls_group *group = NULL;
    const ls_group_options options = gpu_options(rank);
    assert_ok(ls_group_open(&group, &options));
    return group;
}

/* `bytes` bytes of the rank's GPU, as many of them written as `content` has; at least one, so that there is an address. */
static inline void *on_gpu(int device, const void *content, size_t bytes) {
    void *memory = stand_in_allocate(device, bytes ? bytes : 1);
    if (content) stand_in_write(memory, content, bytes);
    return memory;
}

static inline void assert_gpu_holds(const void *memory, const void *expected, size_t bytes) {
    char *found = malloc(bytes + 1);
    assert_non_null(found);
    stand_in_read(found, memory, bytes);
    assert_memory_equal(found, expected, bytes);
    free(found);
}

static int start_anew(void **state) {
    (void)state;
    unsetenv("LOCAL_RANK");
    unsetenv("LOCKSTEP_DEBUG");
    stand_in_reset();
    return 0;
}

/* No rule was broken, and everything that CUDA and NCCL gave was given back. */
static int nothing_is_left(void **state) {
    (void)state;
    assert_int_equal(stand_in_wrong(), 0);
    assert_int_equal(stand_in_live(), 0);
    assert_int_equal(stand_in_contexts(), 0);
    return 0;
}

#define gpu_test(test) cmocka_unit_test_setup_teardown(test, start_anew, nothing_is_left)

#endif
