/* describe.h: operations in words, for messages. */
#ifndef LS_GROUP_DESCRIBE_H
#define LS_GROUP_DESCRIBE_H

#include "group/backend.h"

#define CALL_TEXT_BYTES 160

/* "all-reduce of 10 f32 sum", "broadcast of 3 u8 from rank 1 (\"parameters\", tag 0x102)", "barrier". Returns `text`. */
const char *call_describe(const group_call *call, char text[CALL_TEXT_BYTES]);

/* "operation 7, barrier"; of a message the call alone. Returns `text`. */
const char *op_describe(const backend_op *op, char text[CALL_TEXT_BYTES + 32]);

#endif
