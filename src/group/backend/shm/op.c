/* op.c: an operation, from its start to its end.
 *
 *     start           all ranks' calls seen, alike
 *   ---------> meeting --------------------------> done (small: the data came with the calls)
 *                 |  large, in memory of the group
 *                 |--------> combining or copying ----> finishing ---- all ranks have finished ----> done
 *                 |  large, anything else
 *                 `--------> staging ---- last chunk taken ----> done
 *
 * Every operation begins with the meeting, which is also what makes two slots enough (board.h) and what finds ranks that
 * called different things: before a byte of theirs is touched.                                                       */
#include "group/backend/shm/flow.h"
#include "group/backend/shm/messages.h"

#include "base/fault.h"
#include "group/compare.h"
#include "group/describe.h"

#include <stdio.h>
#include <string.h>

/* Whether the data may travel with the call, or only where it lies. In memory of the group a second meeting soon costs less
 * than everyone reading everything; ordinary memory would have to be staged. Measured, for two ranks (bench all-reduce);
 * what everyone reads grows with the number of ranks. Where ranks share processors, a second meeting costs everyone's turns. */
#define SMALL_IN_GROUP_BYTES 1024
#define SMALL_IN_GROUP_SHARED_BYTES 4096

static bool fits(const shm_group *shm, const backend_op *op) {
    const size_t sent = shm_sent_bytes(shm, op, shm->rank), head = shm_head_bytes(shm, op);
    /* What everyone reads: of a sum all data of all. */
    if (op->call.kind == GROUP_ALL_REDUCE) return sent * (size_t)shm->world_size <= 2 * (size_t)SHM_SLOT_PAYLOAD_BYTES;
    /* Who sends nothing decides like the root, who sends. */
    const size_t roots = shm_has_slices(op) ? op->bytes * (size_t)shm->world_size : op->bytes;
    return head + (sent > roots ? sent : roots) <= SHM_SLOT_PAYLOAD_BYTES;
}

static bool is_better_in_place(const shm_group *shm, const backend_op *op) {
    if (op->call.kind != GROUP_ALL_REDUCE) return false;
    const size_t small = shm->spare_processors < 0 ? SMALL_IN_GROUP_SHARED_BYTES : SMALL_IN_GROUP_BYTES;
    return op->bytes * (size_t)shm->world_size > 2 * small;
}

/* Beside kind, dtype and op in `what`: the payload is the data, not its place; and the end of the number under which the call
 * was posted, by which the call of a rank that is ahead differs. */
#define WITH_DATA (UINT32_C(1) << 24)
#define NUMBER_SHIFT 25

static uint32_t pack(const backend_op *posted) {
    const group_call *call = &posted->call;
    return (uint32_t)call->kind | (uint32_t)call->dtype << 8 | (uint32_t)call->op << 16 |
           (uint32_t)posted->number << NUMBER_SHIFT;
}

bool shm_slot_has_place(const shm_slot *slot) {
    shm_place place;
    memcpy(&place, slot->payload, sizeof place);
    return !(slot->what & WITH_DATA) && place.memory != 0;
}

static rank_call unpack(const shm_group *shm, int rank, const backend_op *op) {
    const shm_board *board = shm->boards[rank];
    const shm_slot *slot = shm_slot_of(shm, rank, op->number);
    return (rank_call){.rank = rank_name(shm->names, rank),
                       .number = board->posted[op->number % 2],
                       .call = {.kind = (group_kind)(slot->what & 0xff),
                                .dtype = (ls_dtype)(slot->what >> 8 & 0xff),
                                .op = (ls_op)(slot->what >> 16 & 0xff),
                                .root = (int)slot->root,
                                .count = slot->count,
                                .tag = slot->tag,
                                .name = board->names[op->number % 2]}};
}

static void publish_counts(const shm_group *shm, const backend_op *op, unsigned char *payload) {
    if (op->call.kind != GROUP_ALL_TO_ALL_UNEVEN || shm_head_bytes(shm, op) > SHM_SLOT_PAYLOAD_BYTES) return;
    const size_t row_bytes = (size_t)shm->world_size * sizeof(uint64_t);
    memcpy(payload, op->call.send_counts, row_bytes);
    memcpy(payload + row_bytes, op->call.receive_counts, row_bytes);
}

void shm_start(void *state, backend_op *op) {
    shm_group *shm = state;
    if (kind_is_message(op->call.kind)) {
        shm_message_start(shm, op);
        return;
    }
    shm_op *s = shm_op_of(op);
    shm_slot *slot = shm_slot_of(shm, shm->rank, op->number);
    s->phase = SHM_MEETING;
    s->peer = 0;
    const backend_op *posted = op_posted(op);
    slot->tag = posted->call.tag;
    slot->count = posted->call.count;
    slot->what = pack(posted);
    slot->root = (uint32_t)posted->call.root;
    shm_own_board(shm)->posted[op->number % 2] = posted->number;
    if (posted->call.tag) {
        char *name = shm_own_board(shm)->names[op->number % 2];
        snprintf(name, SHM_NAME_BYTES, "%s", posted->call.name ? posted->call.name : "");
    }
    s->memory = NULL;
    if (!fits(shm, op) || is_better_in_place(shm, op)) {
        /* Who sends nothing says where it receives: in the same memory, so that it has mapped the root's. */
        const size_t sent = shm_sent_bytes(shm, op, shm->rank);
        s->memory = sent ? shm_memory_find(shm, shm_sent(op), sent, &s->offset)
                         : shm_memory_find(shm, op->call.data, op->bytes, &s->offset);
    }
    publish_counts(shm, op, slot->payload + sizeof(shm_place));
    if (fits(shm, op) && !s->memory) {
        slot->what |= WITH_DATA;
        shm_small_publish(shm, op, slot->payload);
    } else {
        const shm_place place = {.memory = s->memory ? s->memory->number : 0, .offset = s->offset};
        memcpy(slot->payload, &place, sizeof place);
    }
    atomic_store_explicit(&slot->number, op->number, memory_order_release);
    ls_point("shm.meeting.published");
}

static bool are_alike(const shm_slot *a, const shm_slot *b) {
    const uint32_t what = (a->what ^ b->what) & ~WITH_DATA;
    return ((a->tag ^ b->tag) | (a->count ^ b->count) | what | (a->root ^ b->root)) == 0;
}

/* All ranks say the same sentence: the first rank whose call differs from rank 0's, and both calls. */
static backend_progress mismatch(const shm_group *shm, backend_op *op) {
    const shm_slot *first = shm_slot_of(shm, 0, op->number);
    int other = 1;
    while (other < shm->world_size - 1 && are_alike(first, shm_slot_of(shm, other, op->number))) other++;
    const rank_call called = unpack(shm, 0, op), other_called = unpack(shm, other, op);
    op->status = calls_differ(&called, &other_called);
    return BACKEND_FAILED;
}

/* Of the counts of an uneven all-to-all: the first two ranks that differ. All say the same sentence. */
static backend_progress check_counts(const shm_group *shm, backend_op *op) {
    if (op->call.kind != GROUP_ALL_TO_ALL_UNEVEN) return BACKEND_DONE;
    for (int from = 0; from < shm->world_size; from++)
        for (int to = 0; to < shm->world_size; to++) {
            const uint64_t sent = shm_count_for(shm, op, from, to), expected = shm_count_from(shm, op, to, from);
            if (sent == expected) continue;
            op->status = counts_differ(from, sent, to, expected, op->number);
            return BACKEND_FAILED;
        }
    return BACKEND_DONE;
}

/* Every rank's slice needs a cache line of a chunk. */
static backend_progress check_ranks(const shm_group *shm, backend_op *op) {
    if (shm->world_size <= SHM_MOST_SLICES || !shm_has_slices(op)) return BACKEND_DONE;
    char call[CALL_TEXT_BYTES];
    op->status = ls_fail(LS_ERR_UNSUPPORTED, "%s among %d ranks: shared memory carries it among %d at most",
                         call_describe(&op->call, call), shm->world_size, SHM_MOST_SLICES);
    return BACKEND_FAILED;
}

static bool have_all_sent_data(const shm_group *shm, const backend_op *op) {
    for (int rank = 0; rank < shm->world_size; rank++)
        if (!(shm_slot_of(shm, rank, op->number)->what & WITH_DATA)) return false;
    return true;
}

/* Who has published this operation is done with the one before, whose slot the next one takes. Its lines are still in the
 * peers' caches: asked for now, they are ours when the next call is published, which likely is as long as this one. So are
 * those of `finished`, by the time that this operation gets there. */
static void ask_for_lines(const shm_group *shm, const backend_op *op) {
    shm_slot *next = shm_slot_of(shm, shm->rank, op->number + 1);
    const bool with_data = shm_slot_of(shm, shm->rank, op->number)->what & WITH_DATA;
    const size_t payload = with_data ? shm_sent_bytes(shm, op, shm->rank) : sizeof(shm_place);
    fetch_for_writing(next, offsetof(shm_slot, payload) + payload);
    fetch_for_writing(&shm_own_board(shm)->finished, sizeof(uint64_t));
}

static backend_progress meet(shm_group *shm, backend_op *op) {
    shm_op *s = shm_op_of(op);
    /* Acquire: the calls and data that stand before the number. */
    for (; s->peer < shm->world_size; s->peer++)
        if (atomic_load_explicit(&shm_slot_of(shm, s->peer, op->number)->number, memory_order_acquire) != op->number)
            return BACKEND_PENDING;
    const shm_slot *own = shm_slot_of(shm, shm->rank, op->number);
    for (int rank = 0; rank < shm->world_size; rank++) {
        if (shm_has_given_up(shm, op, rank)) {
            op->status = ls_error_raise(&shm->boards[rank]->why);
            return BACKEND_FAILED;
        }
        if (!are_alike(own, shm_slot_of(shm, rank, op->number))) return mismatch(shm, op);
    }
    if (check_ranks(shm, op) == BACKEND_FAILED || check_counts(shm, op) == BACKEND_FAILED) return BACKEND_FAILED;
    ls_point("shm.meeting.met");
    ask_for_lines(shm, op);

    if (have_all_sent_data(shm, op)) {
        shm_small_finish(shm, op);
        return BACKEND_DONE;
    }
    s->peer = 0;
    if (shm_in_place_is_possible(shm, op))
        shm_in_place_start(shm, op);
    else
        shm_staged_start(shm, op);
    return BACKEND_MOVED;
}

static backend_progress go_on(shm_group *shm, backend_op *op) {
    switch (shm_op_of(op)->phase) {
    case SHM_MEETING: return meet(shm, op);
    case SHM_COMBINING: return shm_in_place_combine(shm, op);
    case SHM_COPYING: return shm_in_place_copy(shm, op);
    case SHM_FINISHING: return shm_in_place_finish(shm, op);
    case SHM_STAGING: return shm_staged_poll(shm, op);
    }
    op->status = ls_fail(LS_ERR_INTERNAL, "an operation is in no phase");
    return BACKEND_FAILED;
}

backend_progress shm_poll(void *state, backend_op *op) {
    shm_group *shm = state;
    if (kind_is_message(op->call.kind)) return shm_message_poll(shm, op);
    const backend_progress progress = go_on(shm, op);
    if (progress == BACKEND_DONE) {
        if (!op->whole) shm_say_done(shm, op->number);
        ls_point("shm.operation.done");
    }
    return progress;
}

bool shm_waits_for(const shm_group *shm, const backend_op *op, int peer) {
    if (peer == shm->rank) return false;
    if (kind_is_message(op->call.kind)) return shm_message_waits_for(shm, op, peer);
    const shm_op *s = (const shm_op *)(const void *)op->scratch;
    switch (s->phase) {
    case SHM_MEETING:
        return atomic_load_explicit(&shm_slot_of(shm, peer, op->number)->number, memory_order_acquire) != op->number;
    case SHM_FINISHING: return shm_in_place_waits_for(shm, op, peer);
    case SHM_STAGING: return shm_staged_waits_for(shm, op, peer);
    case SHM_COMBINING:
    case SHM_COPYING: return false;
    }
    return false;
}
