/* shared.h: gives the names by which our code reaches shared memory, locks and words to explore.h. Included after the headers
 * of base, whose own functions keep the true ones, and before the code under test. */
#ifndef LS_TEST_MODELS_SHARED_H
#define LS_TEST_MODELS_SHARED_H

#include "models/explore.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"

#include <stdatomic.h>

#define HERE(at) ((explore_place){__func__, at})

/* The type of `*at` without _Atomic. */
#define PLAIN(at) __typeof__((void)0, *(at))
#define BITS(value) ((uint64_t)(uintptr_t)(value))

#undef atomic_init
#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit

#define atomic_init(at, value) (*(PLAIN(at) *)(void *)(at) = (value))
#define atomic_load_explicit(at, order) (*(const PLAIN(at) *)explore_load(HERE(#at), (const void *)(at), sizeof *(at)))
#define atomic_load(at) atomic_load_explicit(at, memory_order_seq_cst)
#define atomic_store_explicit(at, value, order) explore_store(HERE(#at), (void *)(at), sizeof *(at), BITS(value), order)
#define READ_WRITE(at, how, value, order) \
    explore_read_write(HERE(#at), (void *)(at), sizeof *(at), how, BITS(value), order)
#define atomic_fetch_add_explicit(at, value, order) READ_WRITE(at, EXPLORE_ADD, value, order)
#define atomic_fetch_add(at, value) READ_WRITE(at, EXPLORE_ADD, value, memory_order_seq_cst)
#define atomic_fetch_sub_explicit(at, value, order) READ_WRITE(at, EXPLORE_SUBTRACT, value, order)
#define atomic_fetch_sub(at, value) READ_WRITE(at, EXPLORE_SUBTRACT, value, memory_order_seq_cst)
#define atomic_exchange_explicit(at, value, order) READ_WRITE(at, EXPLORE_EXCHANGE, value, order)
#define atomic_compare_exchange_strong_explicit(at, expected, value, order, other_order) \
    explore_compare_exchange(HERE(#at), (void *)(at), sizeof *(at), (void *)(expected), BITS(value), order)
#define atomic_compare_exchange_strong(at, expected, value) \
    atomic_compare_exchange_strong_explicit(at, expected, value, memory_order_seq_cst, memory_order_seq_cst)

#define ls_full_barrier() explore_barrier(HERE(""))
#define ls_mutex_lock(mutex) explore_lock(HERE(#mutex), mutex)
#define ls_mutex_unlock(mutex) explore_unlock(HERE(#mutex), mutex)
#define ls_word_advance(word) explore_word_advance(HERE(#word), (void *)(word))
#define ls_word_wake(word) explore_word_wake(HERE(#word), (void *)(word))

/* Time stands still, and is never zero: no limit is reached. */
#define ls_now_ns() INT64_C(1)

#endif
