/* peers.c: who is there, who has gone; sleeping until a peer moves, and waking those who sleep.
 *
 * A death is seen by the descriptor of the process (pidfd): it tells of the process itself, whoever else may hold its
 * sockets open. What a rank wrote before it left or died counts: whoever judges it has to poll once more first.      */
#include "group/backend/shm/shm.h"

#include "base/clock.h"
#include "base/fault.h"
#include "group/describe.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

bool shm_is_dead(const shm_group *shm, int peer) {
    struct pollfd process = {.fd = shm->processes[peer], .events = POLLIN};
    return process.fd >= 0 && poll(&process, 1, 0) == 1;
}

/* `doing` completes "rank 1 (host, process 7) ...": "died", "left the group". */
static ls_status lost(const shm_group *shm, const backend_op *op, int peer, const char *doing) {
    const shm_board *board = shm->boards[peer];
    if (!op)
        return ls_fail(LS_ERR_PEER_LOST, "rank %d (%s, process %" PRId64 ") %s; close the group",
                       rank_name(shm->names, peer), board->host, board->process, doing);
    char call[CALL_TEXT_BYTES + 32];
    return ls_fail(LS_ERR_PEER_LOST,
                   "rank %d (%s, process %" PRId64 ") %s before it had done its part of %s; close the group",
                   rank_name(shm->names, peer), board->host, board->process, doing, op_describe(op, call));
}

/* One call for all: a call a rank, by each of many ranks that wait, would keep those they wait for from the processors. */
static bool some_are_dead(const shm_group *shm) {
    for (int rank = 0; rank < shm->world_size; rank++)
        shm->polled[rank] = (struct pollfd){.fd = shm->processes[rank], .events = POLLIN};
    return poll(shm->polled, (nfds_t)shm->world_size, 0) > 0;
}

static ls_status examine_peer(const shm_group *shm, const backend_op *op, int peer, bool may_be_dead) {
    const shm_board *board = shm->boards[peer];
    switch (atomic_load_explicit(&board->standing, memory_order_acquire)) {
    case SHM_HAS_LOST: return ls_error_raise(&board->why);
    case SHM_HAS_LEFT: return lost(shm, op, peer, "left the group");
    default: return may_be_dead && shm_is_dead(shm, peer) ? lost(shm, op, peer, "died") : LS_OK;
    }
}

static bool has_left(const shm_group *shm, int peer) {
    return atomic_load_explicit(&shm->boards[peer]->standing, memory_order_acquire) == SHM_HAS_LEFT;
}

ls_status shm_examine(void *state, backend_op *op) {
    const shm_group *shm = state;
    const bool may_be_dead = some_are_dead(shm);
    int awaited = 0, gone = 0;
    for (int peer = 0; peer < shm->world_size; peer++) {
        if (peer == shm->rank) continue;
        if (shm_has_given_up(shm, op, peer)) return ls_error_raise(&shm->boards[peer]->why);
        if (!shm_waits_for(shm, op, peer)) continue;
        awaited++;
        /* A message from any rank may come from those who have not left. */
        if (op->call.kind == GROUP_RECEIVE && op->call.root == LS_ANY_RANK && has_left(shm, peer))
            gone++;
        else
            LS_TRY(examine_peer(shm, op, peer, may_be_dead));
    }
    return gone && gone == awaited ? lost(shm, op, (shm->rank + 1) % shm->world_size, "left the group") : LS_OK;
}

ls_status shm_examine_all(void *state) {
    const shm_group *shm = state;
    for (int peer = 0; peer < shm->world_size; peer++)
        if (peer != shm->rank && shm->boards[peer]) LS_TRY(examine_peer(shm, NULL, peer, true));
    return LS_OK;
}

void shm_describe_missing(void *state, const backend_op *op, char *text, size_t bytes) {
    const shm_group *shm = state;
    size_t used = 0;
    text[0] = '\0';
    for (int peer = 0; peer < shm->world_size && used + 1 < bytes; peer++) {
        if (!shm_waits_for(shm, op, peer)) continue;
        const shm_board *board = shm->boards[peer];
        used += (size_t)snprintf(text + used, bytes - used,
                                 "%srank %d (%s, process %" PRId64 ", last done operation %" PRIu64 ")",
                                 used ? ", " : "", rank_name(shm->names, peer), board->host, board->process,
                                 atomic_load_explicit(&board->done.value, memory_order_relaxed));
    }
}

uint32_t shm_bell(void *state) {
    return atomic_load_explicit(&shm_own_board(state)->bell, memory_order_acquire);
}

/* We say that we sleep, then poll once more. A peer publishes, then looks whether we sleep. Each makes a full barrier in
 * between, so either we see what it published, or it sees that we sleep. */
backend_progress shm_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    shm_board *own = shm_own_board(state);
    atomic_store_explicit(&own->sleeping, 1, memory_order_relaxed);
    ls_full_barrier();
    const backend_progress progress = shm_poll(state, op);
    if (progress == BACKEND_PENDING) ls_word_wait(&own->bell, bell, deadline_ns);
    atomic_store_explicit(&own->sleeping, 0, memory_order_relaxed);
    return progress;
}

void shm_wake(void *state) {
    ls_word_advance(&shm_own_board(state)->bell);
}

void shm_nudge(void *state) {
    const shm_group *shm = state;
    for (int peer = 0; peer < shm->world_size; peer++) {
        if (peer == shm->rank) continue;
        shm_board *board = shm->boards[peer];
        if (atomic_load_explicit(&board->sleeping, memory_order_relaxed)) ls_word_advance(&board->bell);
    }
}

void shm_leave(void *state, const ls_error *why) {
    const shm_group *shm = state;
    shm_board *own = shm_own_board(shm);
    uint32_t before = SHM_IS_THERE;
    if (!atomic_compare_exchange_strong(&own->standing, &before, SHM_IS_WRITING)) return;
    own->why = *why;
    const uint32_t standing = why->status == LS_OK ? SHM_HAS_LEFT : SHM_HAS_LOST;
    atomic_store_explicit(&own->standing, standing, memory_order_release);
    ls_point("shm.leaving.said");
    for (int peer = 0; peer < shm->world_size; peer++)
        if (peer != shm->rank) ls_word_advance(&shm->boards[peer]->bell);
}
