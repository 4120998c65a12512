/* samples.h: which samples the thread's current batch holds, for draws that must not depend on the number of ranks. */
#ifndef LS_AUTOGRAD_SAMPLES_H
#define LS_AUTOGRAD_SAMPLES_H

#include <stdint.h>

/* Borrows `indices` [count] until the next call; NULL forgets them. Called by the loader on the consumer's thread. */
void autograd_samples_set(const int64_t *indices, int64_t count);

#endif
