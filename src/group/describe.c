/* describe.c: operations in words. */
#include "group/describe.h"

#include <inttypes.h>
#include <stdio.h>

const char *ls_op_name(ls_op op) {
    static const char *const names[LS_OP_COUNT] = {
        [LS_SUM] = "sum",
        [LS_MAX] = "max",
        [LS_BITWISE_OR] = "bitwise or",
        [LS_MIN] = "min",
        [LS_PRODUCT] = "product",
        [LS_AVERAGE] = "average",
        [LS_BITWISE_AND] = "bitwise and",
        [LS_BITWISE_XOR] = "bitwise xor",
    };
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

static const char *kind_name(group_kind kind) {
    static const char *const names[GROUP_KIND_COUNT] = {
        [GROUP_ALL_REDUCE] = "all-reduce",
        [GROUP_BROADCAST] = "broadcast",
        [GROUP_ALL_GATHER] = "all-gather",
        [GROUP_BARRIER] = "barrier",
        [GROUP_ALLOCATE] = "allocation",
        [GROUP_DUPLICATE] = "duplicate",
        [GROUP_SUBGROUP] = "subgroup",
        [GROUP_REDUCE] = "reduce",
        [GROUP_GATHER] = "gather",
        [GROUP_SCATTER] = "scatter",
        [GROUP_ALL_TO_ALL] = "all-to-all",
        [GROUP_ALL_TO_ALL_UNEVEN] = "uneven all-to-all",
        [GROUP_REDUCE_SCATTER] = "reduce-scatter",
        [GROUP_SEND] = "send",
        [GROUP_RECEIVE] = "receive",
    };
    const char *name = (unsigned)kind < GROUP_KIND_COUNT ? names[kind] : NULL;
    return name ? name : "unknown operation";
}

static const char *describe_message(const group_call *call, char text[CALL_TEXT_BYTES]) {
    char peer[32] = "any rank";
    if (call->root != LS_ANY_RANK) snprintf(peer, sizeof peer, "rank %d", call->root);
    snprintf(text, CALL_TEXT_BYTES, "%s of %zu %s %s %s with tag %" PRId32, kind_name(call->kind), call->count,
             ls_dtype_name(call->dtype), call->kind == GROUP_SEND ? "to" : "from", peer, (int32_t)(uint32_t)call->tag);
    return text;
}

const char *op_describe(const backend_op *op, char text[CALL_TEXT_BYTES + 32]) {
    char call[CALL_TEXT_BYTES];
    op = op_posted(op);
    call_describe(&op->call, call);
    if (op->number)
        snprintf(text, CALL_TEXT_BYTES + 32, "operation %" PRIu64 ", %s", op->number, call);
    else
        snprintf(text, CALL_TEXT_BYTES + 32, "%s", call);
    return text;
}

const char *call_describe(const group_call *call, char text[CALL_TEXT_BYTES]) {
    char tag[80];
    const char *dtype = ls_dtype_name(call->dtype), *name = kind_name(call->kind);
    describe_tag(call, tag, sizeof tag);
    if (kind_is_message(call->kind)) return describe_message(call, text);
    switch ((int)call->kind) {
    case GROUP_ALL_REDUCE:
    case GROUP_REDUCE_SCATTER:
        snprintf(text, CALL_TEXT_BYTES, "%s of %zu %s %s%s", name, call->count, dtype, ls_op_name(call->op), tag);
        break;
    case GROUP_REDUCE:
        snprintf(text, CALL_TEXT_BYTES, "%s of %zu %s %s to rank %d%s", name, call->count, dtype, ls_op_name(call->op),
                 call->root, tag);
        break;
    case GROUP_BROADCAST:
    case GROUP_SCATTER:
        snprintf(text, CALL_TEXT_BYTES, "%s of %zu %s from rank %d%s", name, call->count, dtype, call->root, tag);
        break;
    case GROUP_GATHER:
        snprintf(text, CALL_TEXT_BYTES, "%s of %zu %s to rank %d%s", name, call->count, dtype, call->root, tag);
        break;
    case GROUP_ALL_GATHER:
    case GROUP_ALL_TO_ALL: snprintf(text, CALL_TEXT_BYTES, "%s of %zu %s%s", name, call->count, dtype, tag); break;
    case GROUP_ALL_TO_ALL_UNEVEN: snprintf(text, CALL_TEXT_BYTES, "%s of %s%s", name, dtype, tag); break;
    case GROUP_ALLOCATE: snprintf(text, CALL_TEXT_BYTES, "%s of %zu bytes", name, call->count); break;
    case GROUP_DUPLICATE: snprintf(text, CALL_TEXT_BYTES, "%s of the group", name); break;
    case GROUP_SUBGROUP: snprintf(text, CALL_TEXT_BYTES, "%s of the ranks with digest %zx", name, call->count); break;
    default: snprintf(text, CALL_TEXT_BYTES, "%s%s", name, tag); break;
    }
    return text;
}
