/* describe.h: operations in words, for messages. */
#ifndef LS_GROUP_DESCRIBE_H
#define LS_GROUP_DESCRIBE_H

#include "group/backend.h"

#define CALL_TEXT_BYTES 160

/* "all-reduce of 10 f32 sum", "broadcast of 3 u8 from rank 1 (\"parameters\", tag 0x102)", "barrier". Returns `text`. */
const char *call_describe(const group_call *call, char text[CALL_TEXT_BYTES]);

/* "operation 7, barrier"; of a message the call alone. Returns `text`. */
const char *op_describe(const backend_op *op, char text[CALL_TEXT_BYTES + 32]);

/* What a rank called as its group's operation `number`. */
typedef struct rank_call {
    int rank;
    uint64_t number;
    group_call call;
} rank_call;

/* Fails: two ranks called different things. Both calls are named, the lower rank's first, so that all ranks say the same. */
ls_status calls_differ(const rank_call *one, const rank_call *other);

#endif
