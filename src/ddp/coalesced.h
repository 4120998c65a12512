/* coalesced.h: many pieces of memory from rank 0 in few large messages. */
#ifndef LS_DDP_COALESCED_H
#define LS_DDP_COALESCED_H

#include "ddp/agreement.h"

typedef struct memory_piece {
    void *data;
    size_t bytes;
} memory_piece;

/* Collective, blocking: every piece's content becomes rank 0's. Sizes are the same on all ranks (verified). */
ls_status coalesced_broadcast(ls_agreement *agreement, const memory_piece *pieces, int count, uint64_t step);

#endif
