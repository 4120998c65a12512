/* compare.c: calls are compared. */
#include "group/compare.h"

#include "base/environment.h"
#include "group/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

ls_status calls_differ(const rank_call *one, const rank_call *other) {
    const bool is_in_order = one->rank <= other->rank;
    const rank_call *first = is_in_order ? one : other, *second = is_in_order ? other : one;
    char first_text[CALL_TEXT_BYTES], second_text[CALL_TEXT_BYTES], first_number[40] = "";
    if (first->number != second->number)
        snprintf(first_number, sizeof first_number, ", operation %" PRIu64, first->number);
    return ls_fail(LS_ERR_MISMATCH,
                   "rank %d called %s%s, rank %d %s, operation %" PRIu64
                   "; all ranks have to call alike, in the same order",
                   first->rank, call_describe(&first->call, first_text), first_number, second->rank,
                   call_describe(&second->call, second_text), second->number);
}

ls_status counts_differ(int from, uint64_t sent, int to, uint64_t expected, uint64_t number) {
    return ls_fail(LS_ERR_MISMATCH,
                   "rank %d sends %" PRIu64 " elements to rank %d, which expects %" PRIu64 " of it, operation %" PRIu64
                   ", uneven all-to-all; send_counts of one have to equal receive_counts of the other",
                   from, sent, to, expected, number);
}

/* In any case, as PyTorch takes its TORCH_DISTRIBUTED_DEBUG; a slip of the pen must not go without the checks. */
ls_status read_compares_all_calls(bool *compares) {
    const char *debug = ls_env_text("LOCKSTEP_DEBUG");
    *compares = debug && strcasecmp(debug, "detail") == 0;
    if (!debug || *compares || strcasecmp(debug, "off") == 0) return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "LOCKSTEP_DEBUG is \"%s\": expected \"detail\" or \"off\"; set it so or unset it", debug);
}

ls_status checks_differ(int comparing, int other) {
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "rank %d compares all calls, rank %d does not: LOCKSTEP_DEBUG has to be the same", comparing, other);
}

static rank_call called_by(const call_record *records, int rank, uint64_t number) {
    const call_record *record = &records[rank];
    return (rank_call){.rank = rank,
                       .number = number,
                       .call = {.kind = (group_kind)record->kind,
                                .dtype = (ls_dtype)record->dtype,
                                .op = (ls_op)record->op,
                                .root = record->root,
                                .count = record->count,
                                .tag = record->tag}};
}

ls_status compare_records(const call_record *records, int world_size, uint64_t number) {
    for (int rank = 1; rank < world_size; rank++) {
        if (memcmp(&records[0], &records[rank], sizeof records[0]) == 0) continue;
        const rank_call first = called_by(records, 0, number), other = called_by(records, rank, number);
        return calls_differ(&first, &other);
    }
    return LS_OK;
}

ls_status compare_counts(const size_t *sent, int rank, int world_size, const backend_op *op) {
    const size_t *expected = op->call.receive_counts;
    for (int from = 0; from < world_size; from++)
        if (sent[from] != expected[from]) return counts_differ(from, sent[from], rank, expected[from], op->number);
    return LS_OK;
}
