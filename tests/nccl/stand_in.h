/* stand_in.h: a library in place of NCCL and of CUDA's driver, for tests of the nccl backend on machines without a GPU.
 *
 * Ranks are threads of one process, each with a GPU of its own. A GPU's memory is memory that the host cannot touch: it is
 * mapped twice, and the address that is handed out has no access. Streams are threads that run in order what is put on them;
 * a collective really carries the data between the ranks. Every call's arguments are checked, and NCCL's rules on the order
 * of calls; what is wrong is printed and counted. What differs from the real ones: sums are formed in rank order, and ranks
 * that call different things wait until they are aborted.                                                            */
#ifndef LS_TEST_NCCL_STAND_IN_H
#define LS_TEST_NCCL_STAND_IN_H

#include <stdbool.h>
#include <stddef.h>

#include "group/backend/nccl/declared.h"

#define STAND_IN_RANKS 8
#define STAND_IN_CALLS_BEFORE_NCCL_IS_READY 2

/* As at the start: as many GPUs as there may be ranks, nothing fails. Calls and what was wrong are counted from here. */
void stand_in_reset(void);

void stand_in_set_devices(int count);
void stand_in_set_version(int code);

/* The `nth` call of `function` from now on, of all threads, fails with `result`. One at a time. */
void stand_in_fail(const char *function, int nth, unsigned result);
bool stand_in_has_failed(void);

/* NCCL tells it to `rank` whenever asked; 0: no more. */
void stand_in_set_async_error(int rank, nccl_result result);

/* While held, no communicator is connected; what is put on the default stream does not end; finalizing does not end. */
void stand_in_hold_connections(bool is_held);
void stand_in_hold_default_stream(bool is_held);
void stand_in_hold_endings(bool is_held);

/* Calls that broke a rule; calls of a function; objects that are not given back. */
int stand_in_wrong(void);
int stand_in_calls(const char *function);
int stand_in_live(void);

/* Memory of a GPU's, and the host's way to it. */
void *stand_in_allocate(int device, size_t bytes);
void stand_in_free(void *memory);
void stand_in_write(void *to, const void *from, size_t bytes);
void stand_in_read(void *to, const void *from, size_t bytes);

/* How many contexts this thread has pushed and not popped. */
int stand_in_contexts(void);

#endif
