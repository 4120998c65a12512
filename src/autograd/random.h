/* random.h: numbers drawn from the thread's seed, by counters alone: no draw depends on how many were made
 * elsewhere. */
#ifndef LS_AUTOGRAD_RANDOM_H
#define LS_AUTOGRAD_RANDOM_H

#include <stdint.h>

/* The next number of the thread's stream for initialisations, uniform in [0, 1). ls_seed_set starts the stream anew. */
double random_next_uniform(void);

/* The key of one dropout layer in the step under way. */
uint64_t random_dropout_key(uint32_t layer);

/* The global index of sample `position` of `count`: the batch's, where it has as many samples; else position + rank
 * 2^32. */
int64_t random_sample_index(int64_t position, int64_t count);

#endif
