/* collective.h: collectives over a transport: which algorithm carries a call, and its state machine. Neither waits nor
 * allocates once it is created; knows no backend, no thread, no clock. */
#ifndef LS_GROUP_COLLECTIVE_H
#define LS_GROUP_COLLECTIVE_H

#include "group/algorithms/transport.h"
#include "group/post.h"

#include <lockstep/base.h>
#include <stdbool.h>

/* One rank's end of the collectives of a group: one at a time. */
typedef struct collective collective;

/* `network` is borrowed. `relaxed_order` allows algorithms that add in another order than that of the ranks: replicas
 * are still equal, reruns too, but other sizes and splits give other bits. Errors: LS_ERR_MEMORY; LS_ERR_UNSUPPORTED
 * past COLLECTIVE_MOST_RANKS. */
ls_status collective_create(collective **created, const transport *network, bool relaxed_order);
void collective_close(collective **closed);

/* Begins `call` (copied; not the arrays of counts), any kind but messages; small messages are sent at once. All ranks
 * begin the same. `number` is the operation's, for sentences. */
void collective_start(collective *c, const group_call *call, uint64_t number);

typedef enum collective_progress {
    COLLECTIVE_PENDING, /* nothing could be done */
    COLLECTIVE_MOVED,
    COLLECTIVE_DONE,
    COLLECTIVE_FAILED /* LS_ERR_MISMATCH, this thread's last error: counts of an uneven all-to-all differ */
} collective_progress;

/* Goes on as far as what arrived and was sent allows, for some 100 us at most. */
collective_progress collective_poll(collective *c);

#endif
