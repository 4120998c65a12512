/* explore_memory.c: memory that reorders stores. A store goes into its thread's buffer, and leaves it whenever the explorer
 * chooses, as far as its order allows (explore.h); loads look into the own buffer first. */
#include "models/explore_inside.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES 32768
#define MOST_PLACES 256
#define MOST_REGIONS 64

static _Alignas(4096) unsigned char arena[ARENA_BYTES];
static size_t arena_used;

/* What explore_alloc gave; whether it was freed is part of the state. */
static struct {
    const unsigned char *at;
    size_t bytes;
} regions[MOST_REGIONS];
static int region_count;
static _Alignas(BLOCK_BYTES) bool is_freed[BLOCK_BYTES];

static struct {
    const void *at;
    explore_kind kind;
} places[MOST_PLACES];
static int place_count;

/* --- places ------------------------------------------------------------------------------------------------------------- */

void *explore_alloc(size_t bytes) {
    arena_used = (arena_used + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    if (arena_used + bytes > ARENA_BYTES || region_count == MOST_REGIONS) abort();
    unsigned char *memory = arena + arena_used;
    regions[region_count].at = memory;
    regions[region_count++].bytes = bytes;
    arena_used += bytes;
    return memory;
}

void explore_share(void *at, size_t bytes) {
    memset(at, 0, bytes);
    states_add_memory(at, bytes);
}

static int region_of(const void *at) {
    for (int i = 0; i < region_count; i++)
        if ((const unsigned char *)at >= regions[i].at && (const unsigned char *)at < regions[i].at + regions[i].bytes)
            return i;
    return -1;
}

void explore_free(const void *memory) {
    const int region = region_of(memory);
    if (region < 0) return;
    if (threads[running].stores) pause_for(IS_READY, NULL, true); /* whoever has it next sees ours first */
    explore_claim(!is_freed[region], "memory is freed twice");
    is_freed[region] = true;
}

void check_is_live(const void *at) {
    const int region = region_of(at);
    explore_claim(region < 0 || !is_freed[region], "memory is used after it was freed");
}

bool explore_is_freed(const void *memory) {
    return is_freed[region_of(memory)];
}

void explore_mark(const void *at, explore_kind kind) {
    if (place_count == MOST_PLACES) abort();
    places[place_count].at = at;
    places[place_count++].kind = kind;
}

static int place_of(const void *at) {
    for (int i = 0; i < place_count; i++)
        if (places[i].at == at) return i;
    return -1;
}

bool is_kind(const void *at, explore_kind kind) {
    const int place = place_of(at);
    return place >= 0 && places[place].kind == kind;
}

static bool is_quiet(const void *at) {
    return is_kind(at, EXPLORE_QUIET) || is_kind(at, EXPLORE_HINT);
}

uint32_t bit_of(const void *word) {
    uint32_t bit = 1;
    for (int i = 0; i < place_count; i++) {
        if (places[i].at == word) return bit;
        if (places[i].kind == EXPLORE_WORD) bit <<= 1;
    }
    abort(); /* a word that the scene has not marked */
}

/* --- buffers ------------------------------------------------------------------------------------------------------------ */

uint64_t read_memory(const void *at, size_t bytes) {
    uint64_t value = 0;
    memcpy(&value, at, bytes); /* little endian */
    return value;
}

void write_memory(void *at, size_t bytes, uint64_t value) {
    memcpy(at, &value, bytes);
}

uint64_t explore_peek(const void *at, size_t bytes) {
    return read_memory(at, bytes);
}

bool has_store_at(const thread_state *thread, const void *at) {
    for (int i = 0; i < thread->stores; i++)
        if (thread->buffer[i].at == at) return true;
    return false;
}

bool is_being_changed(const void *at) {
    for (int i = 0; i < thread_count; i++)
        for (int j = 0; j < threads[i].stores; j++)
            if (threads[i].buffer[j].at == at && threads[i].buffer[j].is_addition) return true;
    return false;
}

/* As the running thread sees it. */
static uint64_t read_own(const void *at, size_t bytes) {
    const thread_state *self = &threads[running];
    for (int i = self->stores - 1; i >= 0; i--)
        if (self->buffer[i].at == at) return self->buffer[i].value;
    return read_memory(at, bytes);
}

bool may_leave(const thread_state *thread, int index) {
    const buffered_store *store = &thread->buffer[index];
    if (store->is_release) return index == 0;
    for (int i = 0; i < index; i++)
        if (thread->buffer[i].at == store->at) return false;
    return true;
}

void let_leave(thread_state *thread, int index) {
    const buffered_store store = thread->buffer[index];
    thread->stores--;
    memmove(&thread->buffer[index], &thread->buffer[index + 1],
            (size_t)(thread->stores - index) * sizeof(buffered_store));
    memset(&thread->buffer[thread->stores], 0, sizeof(buffered_store));
    check_is_live(store.at);
    write_memory(store.at, store.bytes, store.value);
}

static bool is_release(int order) {
    return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

/* --- operations --------------------------------------------------------------------------------------------------------- */

const void *explore_load(explore_place place, const void *at, size_t bytes) {
    static uint64_t value;
    if (!is_quiet(at)) pause_for(IS_READY, NULL, false);
    check_is_live(at);
    value = is_left_out(place, "load") ? 0 : read_own(at, bytes);
    if (is_kind(at, EXPLORE_WORD)) {
        threads[running].watched |= bit_of(at);
        threads[running].moved &= ~bit_of(at);
    }
    tell(place, "loads", value);
    return &value;
}

/* No choice before it: others see it when it leaves the buffer. */
void explore_store(explore_place place, void *at, size_t bytes, uint64_t value, int order) {
    thread_state *self = &threads[running];
    if (is_left_out(place, "store")) return;
    if (bytes < 8) value &= (UINT64_C(1) << 8 * bytes) - 1;
    if (is_kind(at, EXPLORE_HINT)) return;
    if (is_quiet(at)) {
        check_is_live(at);
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
    check_is_live(at);
    const uint64_t before = read_memory(at, bytes);
    tell(place, "changes", before);
    if (is_left_out(place, "change")) return before;
    const uint64_t after = how == EXPLORE_ADD ? before + operand : how == EXPLORE_SUBTRACT ? before - operand : operand;
    explore_store(place, at, bytes, after, memory_order_release);
    if (!is_quiet(at)) threads[running].buffer[threads[running].stores - 1].is_addition = true;
    return before;
}

bool explore_compare_exchange(explore_place place, void *at, size_t bytes, void *expected, uint64_t desired,
                              int order) {
    if (!is_quiet(at)) pause_for(IS_READY, at, is_release(order));
    check_is_live(at);
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
    if (threads[running].stores) pause_for(IS_READY, NULL, true);
    tell(place, "barrier", 0);
}

/* --- a whole exploration ------------------------------------------------------------------------------------------------ */

void memory_begin(void) {
    states_add_memory(arena, arena_used);
    states_add_memory(is_freed, sizeof is_freed);
}

void memory_forget(void) {
    memset(arena, 0, sizeof arena);
    memset(is_freed, 0, sizeof is_freed);
    arena_used = 0;
    region_count = place_count = 0;
}
