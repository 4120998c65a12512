/* explore_inside.h: what the explorer's own files share. Readers of a scene need explore.h alone.
 *
 *   explore.c           the search: every choice from every state, and whether the end can be reached from there
 *   explore_states.c    states as tuples of pieces, each different piece kept once; saved from memory and put back
 *   explore_memory.c    loads and stores, and the buffers that reorder stores
 *   explore_threads.c   threads as coroutines; locks, sleeping and waking; who may go on
 *   explore_report.c    what was found, and the steps that lead there                                                 */
#ifndef LS_TEST_EXPLORE_INSIDE_H
#define LS_TEST_EXPLORE_INSIDE_H

#include "models/explore.h"

#include <setjmp.h>

#define MOST_THREADS 5
#define MOST_STORES 6
#define STACK_BYTES 16384
#define BLOCK_BYTES 128

/* --- what a state is made of ------------------------------------------------------------------------------------------ */

typedef struct buffered_store {
    void *at;
    uint64_t value;
    size_t bytes;
    bool is_release;
    bool is_addition; /* nobody else changes the place before it is out */
} buffered_store;

typedef enum thread_status { IS_DORMANT, IS_READY, IS_LOCKING, IS_ASLEEP, IS_JOINING, HAS_ENDED } thread_status;

/* A thread as the others see it. */
typedef struct thread_state {
    _Alignas(BLOCK_BYTES) thread_status status;
    void (*body)(void *argument);
    void *argument;
    bool needs_drained; /* its own stores have to be out before it goes on */
    bool expires, is_woken;
    uint32_t watched, moved; /* bits of words that it has read, and that were advanced since */
    int joined;
    void *awaited; /* mutex, word, or place whose own stores have to be out */
    int stores;
    buffered_store buffer[MOST_STORES];
} thread_state;

/* A thread's own part: its registers, and how much of its stack is live, at the end of it. */
typedef struct own_part {
    jmp_buf registers;
    size_t stack_bytes;
} own_part;

typedef struct coroutine {
    _Alignas(4096) unsigned char stack[STACK_BYTES];
    const char *name;
    own_part own;
} coroutine;

extern thread_state threads[MOST_THREADS];
extern coroutine coroutines[MOST_THREADS];
extern int thread_count, running; /* `running`: whose code runs now */

/* --- explore.c ---------------------------------------------------------------------------------------------------------- */

/* A choice is a thread that goes on (thread) or a store that leaves (thread + MOST_THREADS * (1 + index)). */
#define MOST_CHOICES (MOST_THREADS * (1 + MOST_STORES))

/* Makes the step; the state that comes of it stands in memory, and is not kept yet. */
void take_choice(uint32_t state, int choice);
/* Whether the operation at this place is the one to leave out. */
bool is_left_out(explore_place place, const char *what);

/* --- explore_states.c --------------------------------------------------------------------------------------------------- */

/* Memory that is part of the state, in whole blocks. */
void states_add_memory(void *at, size_t bytes);
/* The state that stands in memory becomes number 0. */
void states_begin(void);
/* What changed is saved: all memory, or one thread's own part. */
void states_save_memory(void);
void states_save_thread(int thread);
/* Puts a state's memory back, and with `thread` not negative that thread's own part. */
void states_restore(uint32_t state, int thread);
/* The number of the state that was saved last: known, or new, first come to by `choice` from the state `from`. */
uint32_t states_keep(uint32_t from, int choice);
size_t states_count(void);
/* How a state was first come to. */
uint32_t states_origin(uint32_t state, int *choice);
void states_forget(void);
/* `memory` with room for one more than `count`. */
void *grow(void *memory, size_t *room, size_t count, size_t bytes);

/* --- explore_memory.c --------------------------------------------------------------------------------------------------- */

bool is_kind(const void *at, explore_kind kind);
/* The bit of a word among those that a thread may have read. */
uint32_t bit_of(const void *word);
uint64_t read_memory(const void *at, size_t bytes);
void write_memory(void *at, size_t bytes, uint64_t value);
bool has_store_at(const thread_state *thread, const void *at);
/* An addition of some thread has not left its buffer yet. */
bool is_being_changed(const void *at);
bool may_leave(const thread_state *thread, int index);
void let_leave(thread_state *thread, int index);
/* A claim that does not hold when `at` was freed. */
void check_is_live(const void *at);
void memory_begin(void);
void memory_forget(void);

/* --- explore_threads.c -------------------------------------------------------------------------------------------------- */

/* Runs a thread until it gives way again. */
void resume(int thread);
/* The running thread gives way until the explorer chooses it again; `awaited` as in thread_state. */
thread_state *pause_for(thread_status status, void *awaited, bool needs_drained);
bool may_run(const thread_state *thread);
void threads_forget(void);

/* --- explore_report.c --------------------------------------------------------------------------------------------------- */

/* The claim that did not hold; NULL: none so far. */
extern const char *broken_claim;

/* The running thread's step, if steps are being told. */
void tell(explore_place place, const char *what, uint64_t value);
void tell_leaving(const buffered_store *store);
/* "what happened", where all threads stand, and the steps from the beginning to `state` and, not negative, one `choice` more. */
void report(explore_result *result, const char *what, bool with_threads, uint32_t state, int choice);
void report_forget(void);

#endif
