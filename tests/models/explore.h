/* explore.h: every interleaving of a few threads of real C, under memory that reorders stores.
 *
 * The code under test is compiled with the names of atomics, locks, words and barriers redefined (shared.h) to the calls
 * below. Its threads are coroutines that give way before each such call; the explorer takes every choice of who goes on, from
 * every state that can be reached, breadth first. A state is all of it: the shared memory, each thread's stack and
 * registers, its buffered stores. States are compared in full, so that nothing is missed by a clash of hashes.
 *
 * Memory: each thread has a buffer of stores that others do not see yet. A relaxed store may leave it before stores to
 * other places that were made earlier; a release store (an unlock too) leaves it after all of them. Loads look into the
 * thread's own buffer first. A full barrier, and an exchange or addition that releases, wait until the buffer is empty; one
 * that only acquires does not. An addition leaves through the buffer too, and nobody else changes the place meanwhile: so
 * later loads may be taken before it is seen, as on arm64. That is weaker than x86-64 and as weak as arm64 where stores are
 * concerned. What it leaves out: loads that are taken earlier than they stand; the advance of a word is a full barrier; and
 * memory that is not atomic, which locks and the driver's flag guard, is seen at once (ThreadSanitizer looks at that).
 *
 * What is found:
 *   a claim (explore_claim) that does not hold, and memory used after it was freed;
 *   a state from which no order of events leads to the end (explore_scene.is_end): a sleeper whom nobody will wake, or
 *   threads that go round for ever. Waits with a limit never reach it here, but for those said to expire.         */
#ifndef LS_TEST_EXPLORE_H
#define LS_TEST_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct explore_scene {
    void (*begin)(void);  /* makes what is shared and the threads; runs once */
    bool (*is_end)(void); /* of a state: all is done that should be */
    size_t most_states;   /* more are a failure of the test */
} explore_scene;

typedef struct explore_result {
    size_t states, steps;
    bool is_violated;
    char text[8192]; /* what was found, and the steps that lead there, one a line */
} explore_result;

/* A step to leave out, to see that the rest does not do without: in the function `where`, at a place whose name has `at` in
 * it, the operation `what`: a "barrier", an "advance", a "store", a "change" (an addition), an "exchange" (it becomes a load and
 * a store), a "load" (it finds 0), a "join", a "look" (whether the word has moved, before the sleep). */
typedef struct explore_mutation {
    const char *where, *what, *at;
} explore_mutation;

/* NULL: nothing is left out. */
void explore(const explore_scene *scene, const explore_mutation *left_out, explore_result *result);

/* Whether the operation left out was ever come to. */
bool explore_was_met(void);

/* --- for scenes --------------------------------------------------------------------------------------------------- */

/* Memory that is part of the state, zeroed. Any use of it after it is freed is found, as far as it is by the calls below;
 * what is not explore_alloc's may be freed too, to no effect. */
void *explore_alloc(size_t bytes);
void explore_free(const void *memory);
bool explore_is_freed(const void *memory);
/* The scene's own memory becomes part of the state, zeroed; in blocks of 128 bytes. */
void explore_share(void *at, size_t bytes);
/* What a place is:
 *   word    others sleep on it. Its value counts for nothing, but whether it was advanced since a thread read it, which is
 *           what that thread's next wait compares: so counters make no endless states
 *   hint    nothing right depends on its value, which is always 0
 *   quiet   no other thread cares when it changes: no choice is made before it is used                          */
typedef enum explore_kind { EXPLORE_WORD, EXPLORE_HINT, EXPLORE_QUIET } explore_kind;
void explore_mark(const void *at, explore_kind kind);
/* Adds a thread, which waits for explore_start. */
int explore_dormant_thread(const char *name);
bool explore_has_ended(int thread);
/* The value there, as memory has it. */
uint64_t explore_peek(const void *at, size_t bytes);

/* --- for the code under test -------------------------------------------------------------------------------------- */

typedef enum explore_update { EXPLORE_ADD, EXPLORE_SUBTRACT, EXPLORE_EXCHANGE } explore_update;

/* The function and the expression under way, for traces and mutations. */
typedef struct explore_place {
    const char *where, *at;
} explore_place;

/* Where the value stands, until the next call. */
const void *explore_load(explore_place place, const void *at, size_t bytes);
void explore_store(explore_place place, void *at, size_t bytes, uint64_t value, int order);
uint64_t explore_read_write(explore_place place, void *at, size_t bytes, explore_update how, uint64_t operand,
                            int order);
bool explore_compare_exchange(explore_place place, void *at, size_t bytes, void *expected, uint64_t desired, int order);
void explore_barrier(explore_place place);
void explore_lock(explore_place place, void *mutex);
void explore_unlock(explore_place place, void *mutex);
/* Sleeps until the word moves, if it has not since it was read last; one that `expires` may wake at any time. */
void explore_word_wait(explore_place place, void *word, bool expires);
void explore_word_wake(explore_place place, void *word);
void explore_word_advance(explore_place place, void *word);
void explore_start(int thread, void (*body)(void *argument), void *argument);
/* Waits for a thread's end; a negative one was never started. */
void explore_join(explore_place place, int thread);
void explore_claim(bool holds, const char *text);

#endif
