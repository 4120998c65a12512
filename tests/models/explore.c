/* explore.c: states are kept as tuples of pieces (blocks of the shared memory, threads), each different piece once. */
#undef _FORTIFY_SOURCE /* its longjmp does not go from stack to stack */
#include "models/explore.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <ucontext.h>

#define MOST_THREADS 5
#define MOST_STORES 6
#define STACK_BYTES 16384
#define ARENA_BYTES 16384
#define BLOCK_BYTES 128
#define MOST_BLOCKS (ARENA_BYTES / BLOCK_BYTES)
#define MOST_PLACES 32

/* --- what a state is made of ------------------------------------------------------------------------------------------ */

typedef struct buffered_store {
    void *at;
    uint64_t value;
    size_t bytes;
    bool is_release;
    bool is_addition; /* nobody else changes the place before it is out */
} buffered_store;

typedef enum thread_status { IS_DORMANT, IS_READY, IS_LOCKING, IS_ASLEEP, IS_JOINING, HAS_ENDED } thread_status;

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

/* Everything in here is saved and restored. */
static struct {
    _Alignas(4096) thread_state threads[MOST_THREADS];
    unsigned char arena[ARENA_BYTES];
} shared;

/* A thread's own part of the state. */
typedef struct own_part {
    jmp_buf registers;
    size_t stack_bytes; /* live ones, at the end of its stack */
} own_part;

static struct {
    _Alignas(4096) unsigned char stack[STACK_BYTES];
    const char *name;
    own_part own;
} coroutines[MOST_THREADS];

static int thread_count, running;
static size_t arena_used;
static jmp_buf explorer;
static ucontext_t maker;

static struct {
    const void *at;
    explore_kind kind;
} places[MOST_PLACES];
static int place_count;

static const explore_mutation *left_out;
static bool was_met;
static const char *broken_claim;
static char last_step[256];
static bool is_telling;

/* --- coroutines ------------------------------------------------------------------------------------------------------- */

static unsigned char *stack_pointer(void) {
    unsigned char *pointer;
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %0" : "=r"(pointer));
#else
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
#endif
    return pointer;
}

/* Back to the explorer, until it chooses this thread again. */
static __attribute__((noinline)) void give_way(void) {
    coroutines[running].own.stack_bytes = (size_t)(coroutines[running].stack + STACK_BYTES - stack_pointer());
    if (_setjmp(coroutines[running].own.registers) == 0) _longjmp(explorer, 1);
}

static void run_thread(void) {
    coroutines[running].own.stack_bytes = (size_t)(coroutines[running].stack + STACK_BYTES - stack_pointer());
    if (_setjmp(coroutines[running].own.registers) == 0) setcontext(&maker);
    thread_state *self = &shared.threads[running];
    self->body(self->argument);
    self = &shared.threads[running];
    self->status = HAS_ENDED;
    give_way();
    abort();
}

static int make_thread(const char *name) {
    ucontext_t context;
    running = thread_count++;
    if (thread_count > MOST_THREADS || getcontext(&context) != 0) abort();
    coroutines[running].name = name;
    context.uc_stack.ss_sp = coroutines[running].stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, run_thread, 0);
    swapcontext(&maker, &context);
    return thread_count - 1;
}

static void resume(int thread) {
    running = thread;
    if (_setjmp(explorer) == 0) _longjmp(coroutines[thread].own.registers, 1);
}

/* --- memory ----------------------------------------------------------------------------------------------------------- */

static int place_of(const void *at) {
    for (int i = 0; i < place_count; i++)
        if (places[i].at == at) return i;
    return -1;
}

static bool is_kind(const void *at, explore_kind kind) {
    const int place = place_of(at);
    return place >= 0 && places[place].kind == kind;
}

static bool is_quiet(const void *at) {
    return is_kind(at, EXPLORE_QUIET) || is_kind(at, EXPLORE_HINT);
}

static uint32_t bit_of(const void *word) {
    const int place = place_of(word);
    if (place < 0) abort(); /* a word that the scene has not marked */
    return UINT32_C(1) << place;
}

static uint64_t read_memory(const void *at, size_t bytes) {
    uint64_t value = 0;
    memcpy(&value, at, bytes); /* little endian */
    return value;
}

static void write_memory(void *at, size_t bytes, uint64_t value) {
    memcpy(at, &value, bytes);
}

static bool has_store_at(const thread_state *thread, const void *at) {
    for (int i = 0; i < thread->stores; i++)
        if (thread->buffer[i].at == at) return true;
    return false;
}

static bool is_being_changed(const void *at) {
    for (int i = 0; i < thread_count; i++)
        for (int j = 0; j < shared.threads[i].stores; j++)
            if (shared.threads[i].buffer[j].at == at && shared.threads[i].buffer[j].is_addition) return true;
    return false;
}

/* As the running thread sees it. */
static uint64_t read_own(const void *at, size_t bytes) {
    const thread_state *self = &shared.threads[running];
    for (int i = self->stores - 1; i >= 0; i--)
        if (self->buffer[i].at == at) return self->buffer[i].value;
    return read_memory(at, bytes);
}

static bool may_leave(const thread_state *thread, int index) {
    const buffered_store *store = &thread->buffer[index];
    if (store->is_release) return index == 0;
    for (int i = 0; i < index; i++)
        if (thread->buffer[i].at == store->at) return false;
    return true;
}

static void let_leave(thread_state *thread, int index) {
    const buffered_store store = thread->buffer[index];
    thread->stores--;
    memmove(&thread->buffer[index], &thread->buffer[index + 1],
            (size_t)(thread->stores - index) * sizeof(buffered_store));
    memset(&thread->buffer[thread->stores], 0, sizeof(buffered_store));
    write_memory(store.at, store.bytes, store.value);
}

static bool is_release(int order) {
    return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static bool is_left_out(explore_place place, const char *what) {
    if (!left_out || strcmp(left_out->what, what) != 0 || strcmp(left_out->where, place.where) != 0 ||
        (left_out->at && !strstr(place.at, left_out->at)))
        return false;
    was_met = true;
    return true;
}

static void tell(explore_place place, const char *what, uint64_t value) {
    if (is_telling)
        snprintf(last_step, sizeof last_step, "%s: %s: %s %s (%llu)", coroutines[running].name, place.where, what,
                 place.at, (unsigned long long)value);
}

/* The running thread waits for the explorer; `awaited` as in thread_state. */
static thread_state *pause_for(thread_status status, void *awaited, bool needs_drained) {
    thread_state *self = &shared.threads[running];
    self->status = status;
    self->awaited = awaited;
    self->needs_drained = needs_drained;
    give_way();
    self = &shared.threads[running];
    self->status = IS_READY;
    self->awaited = NULL;
    self->needs_drained = false;
    return self;
}

const void *explore_load(explore_place place, const void *at, size_t bytes) {
    if (!is_quiet(at)) pause_for(IS_READY, NULL, false);
    static uint64_t value;
    value = read_own(at, bytes);
    if (is_kind(at, EXPLORE_WORD)) {
        shared.threads[running].watched |= bit_of(at);
        shared.threads[running].moved &= ~bit_of(at);
    }
    tell(place, "loads", value);
    return &value;
}

/* No choice before it: others see it when it leaves the buffer. */
void explore_store(explore_place place, void *at, size_t bytes, uint64_t value, int order) {
    thread_state *self = &shared.threads[running];
    if (is_left_out(place, "store")) return;
    if (bytes < 8) value &= (UINT64_C(1) << 8 * bytes) - 1;
    if (is_kind(at, EXPLORE_HINT)) return;
    if (is_quiet(at)) {
        write_memory(at, bytes, value);
        return;
    }
    if (self->stores == MOST_STORES) self = pause_for(IS_READY, NULL, true);
    self->buffer[self->stores++] =
        (buffered_store){.at = at, .value = value, .bytes = bytes, .is_release = is_release(order)};
}

uint64_t explore_read_write(explore_place place, void *at, size_t bytes, explore_update how, uint64_t operand,
                            int order) {
    if (!is_quiet(at)) pause_for(IS_READY, at, is_release(order));
    const uint64_t before = read_memory(at, bytes);
    tell(place, "changes", before);
    if (is_left_out(place, "change")) return before;
    const uint64_t after = how == EXPLORE_ADD ? before + operand : how == EXPLORE_SUBTRACT ? before - operand : operand;
    if (is_quiet(at)) {
        write_memory(at, bytes, after);
        return before;
    }
    explore_store(place, at, bytes, after, memory_order_release);
    thread_state *self = &shared.threads[running];
    self->buffer[self->stores - 1].is_addition = true;
    return before;
}

bool explore_compare_exchange(explore_place place, void *at, size_t bytes, void *expected, uint64_t desired,
                              int order) {
    pause_for(IS_READY, at, is_release(order));
    const uint64_t before = read_memory(at, bytes);
    const bool is_equal = before == read_memory(expected, bytes);
    tell(place, is_equal ? "takes" : "cannot take", before);
    if (is_equal && is_left_out(place, "exchange")) pause_for(IS_READY, at, false); /* two steps instead of one */
    if (is_equal)
        write_memory(at, bytes, desired);
    else
        write_memory(expected, bytes, before);
    return is_equal;
}

void explore_barrier(explore_place place) {
    if (is_left_out(place, "barrier")) return;
    if (shared.threads[running].stores) pause_for(IS_READY, NULL, true);
    tell(place, "barrier", 0);
}

void explore_lock(explore_place place, void *mutex) {
    pause_for(IS_LOCKING, mutex, false);
    tell(place, "locks", 0);
    write_memory(mutex, sizeof(uint32_t), 1);
}

/* Nobody can tell an unlock with nothing before it in the buffer from one that has left it. */
void explore_unlock(explore_place place, void *mutex) {
    if (!shared.threads[running].stores) {
        write_memory(mutex, sizeof(uint32_t), 0);
        return;
    }
    explore_store(place, mutex, sizeof(uint32_t), 0, memory_order_release);
}

/* The kernel makes a barrier before it compares. */
void explore_word_wait(explore_place place, void *word, bool expires) {
    thread_state *self = pause_for(IS_READY, NULL, true);
    const bool has_moved = self->moved & bit_of(word);
    tell(place, has_moved ? "does not sleep on" : "sleeps on", 0);
    if (!has_moved || is_left_out(place, "look")) {
        self->expires = expires;
        self->is_woken = false;
        self = pause_for(IS_ASLEEP, word, false);
        tell(place, self->is_woken ? "is woken on" : "its time is up on", 0);
        self->expires = self->is_woken = false;
    }
    self->watched &= ~bit_of(word);
    self->moved &= ~bit_of(word);
}

static void wake_sleepers(const void *word) {
    for (int i = 0; i < thread_count; i++)
        if (shared.threads[i].status == IS_ASLEEP && shared.threads[i].awaited == word)
            shared.threads[i].is_woken = true;
}

void explore_word_wake(explore_place place, void *word) {
    if (is_left_out(place, "wake")) return;
    pause_for(IS_READY, NULL, true);
    tell(place, "wakes", 0);
    wake_sleepers(word);
}

/* Its value does not matter, but whether it is what somebody read. */
void explore_word_advance(explore_place place, void *word) {
    if (is_left_out(place, "advance")) return;
    pause_for(IS_READY, NULL, true);
    tell(place, "advances", 0);
    for (int i = 0; i < thread_count; i++) shared.threads[i].moved |= shared.threads[i].watched & bit_of(word);
    explore_word_wake(place, word);
}

void explore_start(int thread, void (*body)(void *argument), void *argument) {
    shared.threads[thread].body = body;
    shared.threads[thread].argument = argument;
    shared.threads[thread].status = IS_READY;
}

void explore_join(explore_place place, int thread) {
    shared.threads[running].joined = thread;
    pause_for(IS_JOINING, NULL, true);
    tell(place, "joins", 0);
}

void explore_pause(explore_place place) {
    pause_for(IS_READY, NULL, false);
    tell(place, "is in", 0);
}

void explore_claim(bool holds, const char *text) {
    if (!holds && !broken_claim) broken_claim = text;
}

static bool may_run(const thread_state *thread) {
    if (thread->needs_drained && thread->stores) return false;
    switch (thread->status) {
    case IS_DORMANT:
    case HAS_ENDED: return false;
    case IS_LOCKING: return !has_store_at(thread, thread->awaited) && !read_memory(thread->awaited, sizeof(uint32_t));
    case IS_ASLEEP: return thread->is_woken || thread->expires;
    case IS_JOINING:
        return shared.threads[thread->joined].status == HAS_ENDED && !shared.threads[thread->joined].stores;
    case IS_READY:
        return !thread->awaited || (!has_store_at(thread, thread->awaited) && !is_being_changed(thread->awaited));
    }
    return false;
}

/* --- for scenes ------------------------------------------------------------------------------------------------------- */

void *explore_alloc(size_t bytes) {
    arena_used = (arena_used + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    void *memory = shared.arena + arena_used;
    arena_used += bytes;
    if (arena_used > ARENA_BYTES) abort();
    return memory;
}

void explore_mark(const void *at, explore_kind kind) {
    if (place_count == MOST_PLACES) abort();
    places[place_count].at = at;
    places[place_count++].kind = kind;
}

int explore_dormant_thread(const char *name) {
    return make_thread(name);
}

void explore_thread(const char *name, void (*body)(void *argument), void *argument) {
    explore_start(make_thread(name), body, argument);
}

bool explore_has_ended(int thread) {
    return shared.threads[thread].status == HAS_ENDED && !shared.threads[thread].stores;
}

uint64_t explore_peek(const void *at, size_t bytes) {
    return read_memory(at, bytes);
}

/* --- pieces: each different one is kept once ---------------------------------------------------------------------------- */

typedef struct table {
    uint32_t *slots; /* number + 1; 0: free */
    size_t slot_count, count;
} table;

typedef struct piece {
    size_t bytes;
    unsigned char *content;
} piece;

#define MOST_PARTS (MOST_BLOCKS + MOST_BLOCKS + MOST_THREADS)

static piece *pieces;
static size_t piece_room;
static uint32_t *states; /* tuples of pieces */
static size_t state_room, origin_room, part_count, block_count;
static table piece_table, state_table;
static uint32_t current[MOST_PARTS]; /* pieces that stand in memory now */

typedef struct origin {
    uint32_t from;
    int32_t choice;
} origin;

static origin *origins; /* of each state: how it was reached first */
static uint32_t (*edges)[2];
static size_t edge_count, edge_room;

static void *grow(void *memory, size_t *room, size_t count, size_t bytes) {
    if (count < *room) return memory;
    *room = *room ? 2 * *room : 4096;
    void *larger = realloc(memory, *room * bytes);
    if (!larger) abort();
    return larger;
}

static uint64_t hash_of(const void *data, size_t bytes) {
    uint64_t hash = bytes * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t word;
        memcpy(&word, (const char *)data + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    return hash;
}

typedef uint64_t hash_at(size_t number);

static void make_room(table *t, hash_at *hash) {
    if (2 * t->count < t->slot_count) return;
    free(t->slots);
    t->slot_count = t->slot_count ? 2 * t->slot_count : 1 << 16;
    if (!(t->slots = calloc(t->slot_count, sizeof *t->slots))) abort();
    for (size_t i = 0; i < t->count; i++) {
        size_t slot = hash(i) & (t->slot_count - 1);
        while (t->slots[slot]) slot = (slot + 1) & (t->slot_count - 1);
        t->slots[slot] = (uint32_t)i + 1;
    }
}

static uint64_t hash_of_piece(size_t number) {
    return hash_of(pieces[number].content, pieces[number].bytes);
}

static uint32_t *state_at(size_t number) {
    return states + number * part_count;
}

static uint64_t hash_of_state(size_t number) {
    return hash_of(state_at(number), part_count * sizeof(uint32_t));
}

static uint32_t keep_piece(const void *content, size_t bytes) {
    make_room(&piece_table, hash_of_piece);
    size_t slot = hash_of(content, bytes) & (piece_table.slot_count - 1);
    for (; piece_table.slots[slot]; slot = (slot + 1) & (piece_table.slot_count - 1)) {
        const piece *there = &pieces[piece_table.slots[slot] - 1];
        if (there->bytes == bytes && memcmp(there->content, content, bytes) == 0) return piece_table.slots[slot] - 1;
    }
    pieces = grow(pieces, &piece_room, piece_table.count, sizeof *pieces);
    piece *made = &pieces[piece_table.count];
    made->bytes = bytes;
    if (!(made->content = malloc(bytes))) abort();
    memcpy(made->content, content, bytes);
    piece_table.slots[slot] = (uint32_t)++piece_table.count;
    return piece_table.slots[slot] - 1;
}

/* The state that stands in `current`, new or known. */
static uint32_t keep_state(uint32_t from, int choice) {
    make_room(&state_table, hash_of_state);
    const size_t bytes = part_count * sizeof(uint32_t);
    size_t slot = hash_of(current, bytes) & (state_table.slot_count - 1);
    for (; state_table.slots[slot]; slot = (slot + 1) & (state_table.slot_count - 1))
        if (memcmp(state_at(state_table.slots[slot] - 1), current, bytes) == 0) return state_table.slots[slot] - 1;
    states = grow(states, &state_room, state_table.count, bytes);
    origins = grow(origins, &origin_room, state_table.count, sizeof *origins);
    memcpy(state_at(state_table.count), current, bytes);
    origins[state_table.count] = (origin){.from = from, .choice = choice};
    state_table.slots[slot] = (uint32_t)++state_table.count;
    return state_table.slots[slot] - 1;
}

/* --- saving and restoring --------------------------------------------------------------------------------------------- */

static unsigned char *block_at(size_t i) {
    return (unsigned char *)&shared + i * BLOCK_BYTES;
}

static void save_blocks(bool all) {
    for (size_t i = 0; i < block_count; i++)
        if (all || memcmp(pieces[current[i]].content, block_at(i), BLOCK_BYTES) != 0)
            current[i] = keep_piece(block_at(i), BLOCK_BYTES);
}

static void save_thread(int thread) {
    static unsigned char packed[sizeof(own_part) + STACK_BYTES];
    const own_part *own = &coroutines[thread].own;
    memcpy(packed, own, sizeof *own);
    memcpy(packed + sizeof *own, coroutines[thread].stack + STACK_BYTES - own->stack_bytes, own->stack_bytes);
    current[block_count + (size_t)thread] = keep_piece(packed, sizeof *own + own->stack_bytes);
}

/* `thread` negative: its memory alone. */
static void restore(uint32_t state, int thread) {
    const uint32_t *parts = state_at(state);
    for (size_t i = 0; i < block_count; i++)
        if (current[i] != parts[i]) memcpy(block_at(i), pieces[parts[i]].content, BLOCK_BYTES);
    if (thread >= 0) {
        own_part *own = &coroutines[thread].own;
        const unsigned char *packed = pieces[parts[block_count + (size_t)thread]].content;
        memcpy(own, packed, sizeof *own);
        unsigned char *live = coroutines[thread].stack + STACK_BYTES - own->stack_bytes;
        memcpy(live, packed + sizeof *own, own->stack_bytes);
        /* What calls left below would make states differ that are alike. */
        memset(coroutines[thread].stack, 0, (size_t)(live - coroutines[thread].stack));
    }
    memcpy(current, parts, part_count * sizeof(uint32_t));
}

/* --- exploring -------------------------------------------------------------------------------------------------------- */

/* A choice is a thread that goes on (thread) or a store that leaves (thread + MOST_THREADS * (1 + index)). */
static bool is_possible(int choice) {
    const thread_state *thread = &shared.threads[choice % MOST_THREADS];
    if (choice % MOST_THREADS >= thread_count) return false;
    if (choice < MOST_THREADS) return may_run(thread);
    const int index = choice / MOST_THREADS - 1;
    return index < thread->stores && may_leave(thread, index);
}

static void take(uint32_t state, int choice) {
    restore(state, choice < MOST_THREADS ? choice : -1);
    if (choice < MOST_THREADS) {
        resume(choice);
        save_thread(choice);
    } else {
        running = choice % MOST_THREADS;
        const int index = choice / MOST_THREADS - 1;
        if (is_telling)
            snprintf(last_step, sizeof last_step, "%s: a store of %llu leaves its buffer", coroutines[running].name,
                     (unsigned long long)shared.threads[running].buffer[index].value);
        let_leave(&shared.threads[running], index);
    }
    save_blocks(false);
}

#define MOST_CHOICES (MOST_THREADS * (1 + MOST_STORES))

/* The steps from the beginning to `state`, and one more. */
static void tell_way(uint32_t state, int choice, explore_result *result) {
    static uint32_t way[100000];
    size_t length = 0, used = strlen(result->text);
    for (uint32_t at = state; at != 0 && length < 100000; at = origins[at].from) way[length++] = at;
    is_telling = true;
    while (used + sizeof last_step + 2 < sizeof result->text) {
        const bool is_last = length == 0;
        if (is_last && choice < 0) break;
        last_step[0] = '\0';
        take(is_last ? state : origins[way[length - 1]].from, is_last ? choice : origins[way[length - 1]].choice);
        used += (size_t)snprintf(result->text + used, sizeof result->text - used, "\n  %s", last_step);
        if (is_last) break;
        length--;
    }
    is_telling = false;
}

static void add_edge(uint32_t from, uint32_t to) {
    edges = grow(edges, &edge_room, edge_count, sizeof *edges);
    edges[edge_count][0] = from;
    edges[edge_count++][1] = to;
}

/* The first state from which no way leads to an end; the number of states when there is none. */
static size_t find_hopeless(bool *is_hopeful) {
    const size_t count = state_table.count;
    uint32_t *begin = calloc(count + 2, sizeof *begin), *sources = calloc(edge_count + 1, sizeof *sources);
    uint32_t *queue = calloc(count + 1, sizeof *queue);
    size_t queued = 0;
    if (!begin || !sources || !queue) abort();
    for (size_t i = 0; i < edge_count; i++) begin[edges[i][1] + 2]++;
    for (size_t i = 2; i < count + 2; i++) begin[i] += begin[i - 1];
    for (size_t i = 0; i < edge_count; i++) sources[begin[edges[i][1] + 1]++] = edges[i][0];
    for (size_t i = 0; i < count; i++)
        /* Set for all when they were visited. NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch) */
        if (is_hopeful[i]) queue[queued++] = (uint32_t)i;
    for (size_t next = 0; next < queued; next++)
        for (uint32_t i = begin[queue[next]]; i < begin[queue[next] + 1]; i++)
            if (!is_hopeful[sources[i]]) {
                is_hopeful[sources[i]] = true;
                queue[queued++] = sources[i];
            }
    size_t first = 0;
    while (first < count && is_hopeful[first]) first++;
    free(begin);
    free(sources);
    free(queue);
    return first;
}

static void describe_threads(explore_result *result) {
    static const char *const words[] = {"not started", "ready", "waits for a lock", "asleep", "joins", "ended"};
    for (int i = 0; i < thread_count; i++) {
        const size_t used = strlen(result->text);
        snprintf(result->text + used, sizeof result->text - used, "%s %s is %s", i ? "," : ":", coroutines[i].name,
                 words[shared.threads[i].status]);
    }
}

static void visit_all(const explore_scene *scene, explore_result *result, bool **is_hopeful) {
    size_t room = 0;
    for (uint32_t state = 0; state < state_table.count && !result->is_violated; state++) {
        *is_hopeful = grow(*is_hopeful, &room, state, sizeof(bool));
        restore(state, -1);
        (*is_hopeful)[state] = scene->is_end();
        bool has_choice = false;
        for (int choice = 0; choice < MOST_CHOICES && !result->is_violated; choice++) {
            restore(state, -1);
            if (!is_possible(choice)) continue;
            has_choice = true;
            result->steps++;
            take(state, choice);
            if (broken_claim) {
                result->is_violated = true;
                snprintf(result->text, sizeof result->text, "%s:", broken_claim);
                tell_way(state, choice, result);
                return;
            }
            add_edge(state, keep_state(state, choice));
        }
        if (!has_choice && !(*is_hopeful)[state]) {
            result->is_violated = true;
            snprintf(result->text, sizeof result->text, "nobody can go on");
            describe_threads(result);
            tell_way(state, -1, result);
            return;
        }
        if (state_table.count > scene->most_states) {
            result->is_violated = true;
            snprintf(result->text, sizeof result->text, "more than %zu states", scene->most_states);
            return;
        }
    }
}

static void forget(void) {
    for (size_t i = 0; i < piece_table.count; i++) free(pieces[i].content);
    free(piece_table.slots);
    free(state_table.slots);
    piece_table = state_table = (table){0};
    edge_count = 0;
    thread_count = place_count = 0;
    arena_used = 0;
    memset(&shared, 0, sizeof shared);
    memset(&coroutines, 0, sizeof coroutines);
    state_room = origin_room = 0;
    free(states);
    free(origins);
    states = NULL;
    origins = NULL;
    broken_claim = NULL;
}

void explore(const explore_scene *scene, const explore_mutation *mutation, explore_result *result) {
    bool *is_hopeful = NULL;
    memset(result, 0, sizeof *result);
    forget();
    left_out = mutation;
    was_met = false;
    scene->begin();
    block_count = (offsetof(__typeof__(shared), arena) + arena_used + BLOCK_BYTES - 1) / BLOCK_BYTES;
    part_count = block_count + (size_t)thread_count;
    save_blocks(true);
    for (int i = 0; i < thread_count; i++) save_thread(i);
    keep_state(0, 0);
    visit_all(scene, result, &is_hopeful);
    result->states = state_table.count;
    if (!result->is_violated) {
        const size_t hopeless = find_hopeless(is_hopeful);
        if (hopeless < state_table.count) {
            result->is_violated = true;
            snprintf(result->text, sizeof result->text, "from here no end is reached");
            restore((uint32_t)hopeless, -1);
            describe_threads(result);
            tell_way((uint32_t)hopeless, -1, result);
        }
    }
    free(is_hopeful);
}

bool explore_was_met(void) {
    return was_met;
}
