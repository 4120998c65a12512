/* describe.c: operations in words. */
#include "group/describe.h"

#include <inttypes.h>
#include <stdio.h>

const char *ls_op_name(ls_op op) {
    static const char *const names[LS_OP_COUNT] = {[LS_SUM] = "sum", [LS_MAX] = "max", [LS_BITWISE_OR] = "bitwise or"};
    return (unsigned)op < LS_OP_COUNT ? names[op] : "unknown op";
}

/* A tag of 0 is a user's call; those above us mark theirs. */
static void describe_tag(const group_call *call, char *text, size_t bytes) {
    text[0] = '\0';
    if (call->tag && call->name && *call->name)
        snprintf(text, bytes, " (\"%.40s\", tag 0x%" PRIx64 ")", call->name, call->tag);
    else if (call->tag)
        snprintf(text, bytes, " (tag 0x%" PRIx64 ")", call->tag);
}

const char *call_describe(const group_call *call, char text[CALL_TEXT_BYTES]) {
    char tag[80];
    const char *dtype = ls_dtype_name(call->dtype);
    describe_tag(call, tag, sizeof tag);
    switch ((int)call->kind) {
    case GROUP_ALL_REDUCE:
        snprintf(text, CALL_TEXT_BYTES, "all-reduce of %zu %s %s%s", call->count, dtype, ls_op_name(call->op), tag);
        break;
    case GROUP_BROADCAST:
        snprintf(text, CALL_TEXT_BYTES, "broadcast of %zu %s from rank %d%s", call->count, dtype, call->root, tag);
        break;
    case GROUP_ALL_GATHER: snprintf(text, CALL_TEXT_BYTES, "all-gather of %zu %s%s", call->count, dtype, tag); break;
    case GROUP_BARRIER: snprintf(text, CALL_TEXT_BYTES, "barrier%s", tag); break;
    case GROUP_ALLOCATE: snprintf(text, CALL_TEXT_BYTES, "allocation of %zu bytes", call->count); break;
    case GROUP_DUPLICATE: snprintf(text, CALL_TEXT_BYTES, "duplicate of the group"); break;
    default: snprintf(text, CALL_TEXT_BYTES, "unknown operation %d", (int)call->kind); break;
    }
    return text;
}
