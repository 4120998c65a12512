/* compare.h: calls as ranks compare them, and the sentences when they differ: the same over every backend. */
#ifndef LS_GROUP_COMPARE_H
#define LS_GROUP_COMPARE_H

#include "group/backend.h"

/* What a rank called as its group's operation `number`. */
typedef struct rank_call {
    int rank;
    uint64_t number;
    group_call call;
} rank_call;

/* Fails: two ranks called different things. Both calls are named, the lower rank's first, so that all ranks say the same. */
ls_status calls_differ(const rank_call *one, const rank_call *other);

/* Fails: of an uneven all-to-all one rank sends another more or fewer elements than that expects. */
ls_status counts_differ(int from, uint64_t sent, int to, uint64_t expected, uint64_t number);

/* Whether calls of all ranks are compared before anything moves: LOCKSTEP_DEBUG=detail; "off", or unset: not. */
ls_status read_compares_all_calls(bool *compares);

/* Fails: rank `comparing` compares all calls, rank `other` does not. */
ls_status checks_differ(int comparing, int other);

/* A call as bytes, where ranks gather those of all: it has no padding. */
typedef struct call_record {
    uint64_t tag, count;
    int32_t kind, dtype, op, root;
} call_record;

static inline call_record call_record_of(const group_call *call) {
    return (call_record){.tag = call->tag,
                         .count = call->count,
                         .kind = (int32_t)call->kind,
                         .dtype = (int32_t)call->dtype,
                         .op = (int32_t)call->op,
                         .root = call->root};
}

/* Fails with the first rank whose record differs from rank 0's, on all ranks alike. */
ls_status compare_records(const call_record *records, int world_size, uint64_t number);
/* Fails with the first rank that `sent` this one, of operation `op`, another count than it expects. Who sees a difference says
 * so; the others hear of it as of any loss. */
ls_status compare_counts(const size_t *sent, int rank, int world_size, const backend_op *op);

#endif
