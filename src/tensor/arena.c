/* arena.c: free lists by size class, owned by a thread.
 *
 * A training step asks for the same sizes in every iteration, so a list a size class, never trimmed while anything is
 * in use, makes the second iteration free of malloc. Classes are eight to a doubling: at most an eighth of a block lies
 * idle, and in large blocks that tail is never touched.
 *
 *     block in use --- give, by the owner ----> free list of its class --- take --> in use
 *          |                                          ^
 *          +--- give, by another thread --> returned --+ (the owner collects it at its next call)
 *
 * When the last block of an arena comes back, all memory goes to the system: a program that closed everything keeps
 * nothing. When a thread ends, its arena goes as soon as the last block that still lives elsewhere comes back.       */
#include "tensor/arena.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <string.h>

/* Classes 0 to 7 are the multiples of 64 up to 512 bytes, then eight a doubling up to 2^48. */
#define SMALL_STEP_LOG2 6
#define STEPS_LOG2 3
#define LARGEST_LOG2 48
#define CLASS_COUNT ((LARGEST_LOG2 - SMALL_STEP_LOG2 - STEPS_LOG2 + 1) << STEPS_LOG2)

/* Stands before the memory that is handed out and keeps it aligned. */
typedef struct block {
    _Alignas(LS_ALIGNMENT) struct arena *owner; /* fixed when the block is made */
    struct block *next;                         /* in a free list or in `returned` */
    int size_class;
} block;

/* The thread that owns an arena uses it without a lock, except:
 *   lock       guards returned and is_orphan, and `live` once the arena is an orphan
 *   live       blocks in use, those in `returned` included                        */
typedef struct arena {
    ls_mutex lock;
    block *returned;
    _Atomic bool has_returned; /* spares the owner the lock; relaxed, since the lock orders what matters */
    bool is_orphan;            /* the thread has ended */
    size_t live;
    block *free[CLASS_COUNT];
} arena;

static _Thread_local arena *here;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t end_key; /* only for its destructor: runs when a thread that has an arena ends */
static bool has_key;

static int class_of(size_t bytes) {
    /* Of the last byte rather than the count: a power of two then falls into the class that it fills. */
    const size_t last = bytes > 0 ? bytes - 1 : 0;
    if (last < (size_t)1 << (SMALL_STEP_LOG2 + STEPS_LOG2)) return (int)(last >> SMALL_STEP_LOG2);
    const int top = 63 - __builtin_clzll(last);                                   /* the doubling, */
    const int step = (int)(last >> (top - STEPS_LOG2)) & ((1 << STEPS_LOG2) - 1); /* and the eighth in it */
    return ((top - SMALL_STEP_LOG2 - STEPS_LOG2 + 1) << STEPS_LOG2) + step;
}

/* The largest size that falls into the class. */
static size_t class_bytes(int size_class) {
    const int doubling = size_class >> STEPS_LOG2, step = size_class & ((1 << STEPS_LOG2) - 1);
    if (doubling == 0) return (size_t)(step + 1) << SMALL_STEP_LOG2;
    return (((size_t)1 << STEPS_LOG2) + (size_t)step + 1) << (doubling - 1 + SMALL_STEP_LOG2);
}

static void push(block *item, block **list) {
    /* Last in, first out: what was given back last is in the cache still. */
    item->next = *list;
    *list = item;
}

/* Under the lock. */
static void collect_returned(arena *own) {
    for (block *item = own->returned, *next; item; item = next) {
        next = item->next;
        push(item, &own->free[item->size_class]);
        own->live--;
    }
    own->returned = NULL;
    atomic_store_explicit(&own->has_returned, false, memory_order_relaxed);
}

static void collect_if_any(arena *own) {
    /* A block that comes back this moment is found at the next call. */
    if (!atomic_load_explicit(&own->has_returned, memory_order_relaxed)) return;
    ls_mutex_lock(&own->lock);
    collect_returned(own);
    ls_mutex_unlock(&own->lock);
}

static void destroy(arena *own) {
    ls_mutex_destroy(&own->lock);
    ls_free(own);
}

/* The thread ends, or nothing of the arena is in use: keeps no free block. Blocks that other threads hold find an
 * orphan. */
static void retire(void *argument) {
    arena *own = argument;
    /* Destructors of other thread-specific data may still give blocks: they count as given from abroad. */
    here = NULL;
    ls_mutex_lock(&own->lock);
    collect_returned(own);
    for (int i = 0; i < CLASS_COUNT; i++) {
        for (block *item = own->free[i], *next; item; item = next) {
            next = item->next;
            ls_free(item);
        }
    }
    own->is_orphan = true;
    /* Decided under the lock: of this thread and those that hold blocks, exactly one sees the last. */
    const bool is_last = own->live == 0;
    ls_mutex_unlock(&own->lock);
    if (is_last) destroy(own);
}

static void retire_if_idle(arena *own) {
    collect_if_any(own);
    if (own->live > 0) return;
    /* The arena goes now: its thread's end must not find it. */
    pthread_setspecific(end_key, NULL);
    retire(own);
}

static void make_key(void) {
    has_key = pthread_key_create(&end_key, retire) == 0;
}

static arena *open_here(void) {
    pthread_once(&key_once, make_key);
    arena *made = ls_alloc(sizeof *made);
    if (!made) return NULL;
    /* Without the key the memory of a thread that ends would be lost. */
    if (!has_key || pthread_setspecific(end_key, made) != 0) {
        ls_free(made);
        ls_fail(LS_ERR_MEMORY, "cannot open the thread's arena: no thread-specific key is left");
        return NULL;
    }
    ls_mutex_init(&made->lock);
    return here = made;
}

/* A block of the class: a kept one or a new one. */
static block *take_block(arena *own, int size_class) {
    block *item = own->free[size_class];
    if (item) {
        /* Tests refuse a kept block like any other. */
        if (ls_fault(LS_FAULT_MEMORY)) {
            ls_fail(LS_ERR_MEMORY, "cannot allocate %zu bytes: memory was refused", class_bytes(size_class));
            return NULL;
        }
        own->free[size_class] = item->next;
        return item;
    }
    /* Of the whole class, so that any later request of the class fits into it. */
    item = ls_alloc_raw(sizeof *item + class_bytes(size_class));
    if (item) *item = (block){.owner = own, .size_class = size_class};
    return item;
}

void *arena_take(size_t bytes) {
    if (bytes > (size_t)1 << LARGEST_LOG2) {
        ls_fail(LS_ERR_MEMORY, "cannot allocate %zu bytes: more than a machine has", bytes);
        return NULL;
    }
    arena *own = here ? here : open_here();
    if (!own) return NULL;
    collect_if_any(own);
    block *item = take_block(own, class_of(bytes));
    if (!item) {
        /* An arena that was opened for this request alone would be kept for nothing. */
        retire_if_idle(own);
        return NULL;
    }
    own->live++;
    return item + 1;
}

void *arena_take_zeroed(size_t bytes) {
    void *memory = arena_take(bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

/* A block of another thread's arena. */
static void give_abroad(block *item) {
    arena *owner = item->owner;
    bool is_last = false;
    ls_mutex_lock(&owner->lock);
    if (owner->is_orphan) {
        /* Its arena's lists go with no thread any more. */
        ls_free(item);
        is_last = --owner->live == 0;
    } else {
        push(item, &owner->returned);
        atomic_store_explicit(&owner->has_returned, true, memory_order_relaxed);
    }
    ls_mutex_unlock(&owner->lock);
    if (is_last) destroy(owner);
}

void arena_give(void *memory) {
    if (!memory) return;
    block *item = (block *)memory - 1;
    arena *own = item->owner;
    if (own != here) {
        give_abroad(item);
        return;
    }
    push(item, &own->free[item->size_class]);
    own->live--;
    retire_if_idle(own);
}
