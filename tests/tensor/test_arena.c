/* test_arena.c: blocks are handed out again, whichever thread gave them back, and none is lost. */
#include "support/faults.h"

#include "base/memory.h"
#include "base/thread.h"
#include "base/wait.h"
#include "tensor/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void a_size_seen_before_allocates_nothing(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 64, 65, 512, 513, 576, 577, 4096, 100000, 1 << 20};
    void *blocks[11], *held = arena_take(1);
    for (int round = 0; round < 3; round++) {
        const uint64_t before = ls_alloc_count();
        for (int i = 0; i < 11; i++) {
            blocks[i] = arena_take(sizes[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % LS_ALIGNMENT, 0);
            memset(blocks[i], i + 1, sizes[i]);
        }
        for (int i = 0; i < 11; i++) arena_give(blocks[i]);
        if (round > 0) assert_int_equal(ls_alloc_count(), before);
    }
    arena_give(held);
    arena_give(NULL);
}

/* Blocks never overlap and keep their bytes, through a random order of takes and gives. */
static void random_takes_and_gives_never_overlap(void **state) {
    (void)state;
    enum { PLACES = 64 };
    struct {
        unsigned char *block;
        size_t bytes;
        unsigned char mark;
    } places[PLACES] = {{0}};
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    ls_note_what_is_there();
    for (int i = 0; i < 20000; i++) {
        const int p = rand() % PLACES;
        if (places[p].block) {
            for (size_t k = 0; k < places[p].bytes; k++) assert_int_equal(places[p].block[k], places[p].mark);
            arena_give(places[p].block);
            places[p].block = NULL;
        } else {
            places[p].bytes = (size_t)(rand() % (1 << (rand() % 14)));
            places[p].mark = (unsigned char)rand();
            places[p].block = arena_take(places[p].bytes);
            assert_non_null(places[p].block);
            memset(places[p].block, places[p].mark, places[p].bytes);
        }
    }
    for (int p = 0; p < PLACES; p++) arena_give(places[p].block);
    assert_nothing_left();
}

static void zeroed_blocks_are_zeroed_again(void **state) {
    (void)state;
    void *held = arena_take(1);
    for (int round = 0; round < 2; round++) {
        unsigned char *block = arena_take_zeroed(1000);
        for (int i = 0; i < 1000; i++) assert_int_equal(block[i], 0);
        memset(block, 0xff, 1000);
        arena_give(block);
    }
    arena_give(held);
}

static void the_last_block_gives_all_memory_back(void **state) {
    (void)state;
    ls_note_what_is_there();
    void *first = arena_take(100), *second = arena_take(5000);
    arena_give(second);
    assert_true(ls_alloc_live() > 0);
    arena_give(first);
    assert_nothing_left();
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    ls_note_what_is_there();
    assert_null(arena_take(SIZE_MAX));
    assert_null(arena_take(((size_t)1 << 48) + 1));
    assert_non_null(strstr(ls_last_error(), "cannot allocate"));
    assert_nothing_left();
}

static void a_kept_block_can_be_refused_like_a_new_one(void **state) {
    (void)state;
    int failures = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        void *held = arena_take(1);
        if (held) {
            arena_give(arena_take(100));
            void *again = arena_take(100);
            failures += !again;
            arena_give(again);
        }
        arena_give(held);
    }
    assert_int_equal(failures, 1);
    assert_nothing_left();
}

/* ---- Threads ---- */

enum { SHARED = 200 };
static void *_Atomic shared[SHARED];

static void give_shared(void *unused) {
    (void)unused;
    for (int given = 0; given < SHARED;) {
        for (int i = 0; i < SHARED; i++) {
            void *block = atomic_exchange(&shared[i], NULL);
            if (!block) continue;
            memset(block, 1, 256);
            arena_give(block);
            given++;
        }
    }
}

static void blocks_given_by_another_thread_come_back_to_their_owner(void **state) {
    (void)state;
    ls_note_what_is_there();
    void *held = arena_take(1);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < SHARED; i++) {
            unsigned char *block = arena_take(256);
            memset(block, 2, 256);
            atomic_store(&shared[i], block);
        }
        ls_thread giver = {0};
        assert_int_equal(ls_thread_start(&giver, "giver", give_shared, NULL), LS_OK);
        for (int i = 0; i < 1000; i++) arena_give(arena_take(256)); /* meanwhile */
        ls_thread_join(&giver);
        /* All are here again: taking as many asks for none. */
        void *blocks[SHARED];
        const uint64_t before = ls_alloc_count();
        for (int i = 0; i < SHARED; i++) blocks[i] = arena_take(256);
        assert_int_equal(ls_alloc_count(), before);
        for (int i = 0; i < SHARED; i++) arena_give(blocks[i]);
    }
    arena_give(held);
    assert_nothing_left();
}

static void take_and_leave(void *unused) {
    (void)unused;
    for (int i = 0; i < SHARED; i++) atomic_store(&shared[i], arena_take(256));
    arena_give(arena_take(1000)); /* kept, then lost with the thread */
}

static void blocks_outlive_the_thread_that_took_them(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_thread taker = {0};
    assert_int_equal(ls_thread_start(&taker, "taker", take_and_leave, NULL), LS_OK);
    ls_thread_join(&taker);
    give_shared(NULL);
    assert_nothing_left();
}

static atomic_bool may_end;

static void take_and_wait(void *unused) {
    (void)unused;
    for (int i = 0; i < SHARED; i++) atomic_store(&shared[i], arena_take(256));
    while (!atomic_load(&may_end)) ls_yield();
}

/* The owner asks for nothing more: it finds them as it ends. */
static void blocks_that_came_back_go_with_their_thread(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_thread taker = {0};
    atomic_store(&may_end, false);
    assert_int_equal(ls_thread_start(&taker, "taker", take_and_wait, NULL), LS_OK);
    give_shared(NULL);
    atomic_store(&may_end, true);
    ls_thread_join(&taker);
    assert_nothing_left();
}

/* The owner ends while another thread gives its blocks back. */
static void an_owner_may_end_while_others_give(void **state) {
    (void)state;
    ls_note_what_is_there();
    for (int round = 0; round < 20; round++) {
        ls_thread taker = {0}, giver = {0};
        assert_int_equal(ls_thread_start(&giver, "giver", give_shared, NULL), LS_OK);
        assert_int_equal(ls_thread_start(&taker, "taker", take_and_leave, NULL), LS_OK);
        ls_thread_join(&taker);
        ls_thread_join(&giver);
    }
    assert_nothing_left();
}

static void *do_nothing(void *unused) {
    return unused;
}

/* With the first thread ThreadSanitizer starts one of its own, which is not left behind by the library. */
static int start_a_thread(void **state) {
    (void)state;
    pthread_t thread;
    return pthread_create(&thread, NULL, do_nothing, NULL) || pthread_join(thread, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_seen_before_allocates_nothing),
        cmocka_unit_test(random_takes_and_gives_never_overlap),
        cmocka_unit_test(zeroed_blocks_are_zeroed_again),
        cmocka_unit_test(the_last_block_gives_all_memory_back),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_kept_block_can_be_refused_like_a_new_one),
        cmocka_unit_test(blocks_given_by_another_thread_come_back_to_their_owner),
        cmocka_unit_test(blocks_outlive_the_thread_that_took_them),
        cmocka_unit_test(blocks_that_came_back_go_with_their_thread),
        cmocka_unit_test(an_owner_may_end_while_others_give),
    };
    return cmocka_run_group_tests(tests, start_a_thread, NULL);
}
