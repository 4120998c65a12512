/* explore_states.c: states are kept as tuples of pieces (blocks of the shared memory, threads), each different piece once: a
 * step changes few of them, so that a million states fit. States are compared in full. */
#include "models/explore_inside.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS 384
#define MOST_PARTS (MOST_BLOCKS + MOST_THREADS)

/* A hash table of things that are numbered as they come. */
typedef struct table {
    uint32_t *slots; /* number + 1; 0: free */
    size_t slot_count, count;
} table;

typedef struct piece {
    size_t bytes;
    unsigned char *content;
} piece;

typedef struct origin {
    uint32_t from;
    int32_t choice;
} origin;

static unsigned char *blocks[MOST_BLOCKS];
static size_t block_count, part_count;

static piece *pieces;
static uint32_t *states; /* tuples of pieces, part_count each */
static origin *origins;  /* of each state: how it was first come to */
static size_t piece_room, state_room, origin_room;
static table piece_table, state_table;
static uint32_t current[MOST_PARTS]; /* pieces that stand in memory now */

void *grow(void *memory, size_t *room, size_t count, size_t bytes) {
    if (count < *room) return memory;
    *room = *room ? 2 * *room : 4096;
    void *larger = realloc(memory, *room * bytes);
    if (!larger) abort();
    return larger;
}

/* --- each different one is kept once ------------------------------------------------------------------------------------ */

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

/* Half of the slots stay free. */
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

uint32_t states_keep(uint32_t from, int choice) {
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

size_t states_count(void) {
    return state_table.count;
}

uint32_t states_origin(uint32_t state, int *choice) {
    *choice = origins[state].choice;
    return origins[state].from;
}

/* --- saving and restoring --------------------------------------------------------------------------------------------- */

void states_add_memory(void *at, size_t bytes) {
    if ((uintptr_t)at % BLOCK_BYTES != 0) abort();
    for (size_t done = 0; done < bytes; done += BLOCK_BYTES) {
        if (block_count == MOST_BLOCKS) abort();
        blocks[block_count++] = (unsigned char *)at + done;
    }
}

void states_save_memory(void) {
    for (size_t i = 0; i < block_count; i++)
        if (memcmp(pieces[current[i]].content, blocks[i], BLOCK_BYTES) != 0)
            current[i] = keep_piece(blocks[i], BLOCK_BYTES);
}

void states_save_thread(int thread) {
    static unsigned char packed[sizeof(own_part) + STACK_BYTES];
    const own_part *own = &coroutines[thread].own;
    memcpy(packed, own, sizeof *own);
    memcpy(packed + sizeof *own, coroutines[thread].stack + STACK_BYTES - own->stack_bytes, own->stack_bytes);
    current[block_count + (size_t)thread] = keep_piece(packed, sizeof *own + own->stack_bytes);
}

void states_begin(void) {
    part_count = block_count + (size_t)thread_count;
    for (size_t i = 0; i < block_count; i++) current[i] = keep_piece(blocks[i], BLOCK_BYTES);
    for (int i = 0; i < thread_count; i++) states_save_thread(i);
    states_keep(0, 0);
}

static void restore_thread(int thread, const piece *kept) {
    own_part *own = &coroutines[thread].own;
    memcpy(own, kept->content, sizeof *own);
    unsigned char *live = coroutines[thread].stack + STACK_BYTES - own->stack_bytes;
    memcpy(live, kept->content + sizeof *own, own->stack_bytes);
    /* What calls left below would make states differ that are alike. */
    memset(coroutines[thread].stack, 0, (size_t)(live - coroutines[thread].stack));
}

void states_restore(uint32_t state, int thread) {
    const uint32_t *parts = state_at(state);
    for (size_t i = 0; i < block_count; i++)
        if (current[i] != parts[i]) memcpy(blocks[i], pieces[parts[i]].content, BLOCK_BYTES);
    if (thread >= 0) restore_thread(thread, &pieces[parts[block_count + (size_t)thread]]);
    memcpy(current, parts, part_count * sizeof(uint32_t));
}

void states_forget(void) {
    for (size_t i = 0; i < piece_table.count; i++) free(pieces[i].content);
    free(piece_table.slots);
    free(state_table.slots);
    free(states);
    free(origins);
    piece_table = state_table = (table){0};
    states = NULL;
    origins = NULL;
    state_room = origin_room = block_count = 0;
}
