/* op.c: an operation, from its start to its end; who is there and who has gone; sleeping.
 *
 *     start                     all ranks' calls are there, alike           nothing is left to do              all is sent
 *   ---------> calling -----------------------------------------> moving ----------------------> sending ------------> done
 *       \__________________ calls are not said beforehand ________/
 *
 * With LOCKSTEP_DEBUG=detail all ranks say their calls before anything moves. Otherwise the head of each chunk tells its sender's
 * call, and a difference is found by who receives it, which may be an operation later.
 *
 * A peer is judged by its control connection: it says that it leaves, or why it holds the group for lost, or it ends without a
 * word. What a rank sent before counts: its data may still be on the way, so whoever has left is missed only when the
 * connections on which we wait for it have ended too.                                                                */
#include "group/backend/tcp/tcp.h"

#include "base/clock.h"
#include "base/fault.h"
#include "group/describe.h"
#include "group/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

typedef enum tcp_phase { TCP_CALLING, TCP_MOVING, TCP_SENDING } tcp_phase;

/* An operation's scratch. */
typedef struct tcp_op {
    tcp_phase phase;
    int peer; /* calling: ranks before it have called */
} tcp_op;

_Static_assert(sizeof(tcp_op) <= sizeof((backend_op *)0)->scratch, "an operation's scratch is too small");

static tcp_op *tcp_op_of(backend_op *op) {
    return (tcp_op *)(void *)op->scratch;
}

const char *tcp_who(const tcp_group *tcp, int rank, char text[TCP_WHO_BYTES]) {
    const tcp_peer *peer = &tcp->peers[rank];
    snprintf(text, TCP_WHO_BYTES, "rank %d (%s, process %" PRId64 ")", rank_name(tcp->names, rank), peer->host,
             peer->process);
    return text;
}

/* --- events ------------------------------------------------------------------------------------------------------------ */

#define EVENTS_AT_ONCE 64

static void hear(tcp_group *tcp, int rank, int channel, uint32_t events) {
    tcp_peer *peer = &tcp->peers[rank];
    if (channel != TCP_CONTROL) {
        tcp_link_note(&peer->links[channel], events);
        return;
    }
    ls_mutex_lock(&tcp->lock);
    tcp_link_note(&peer->links[channel], events);
    ls_mutex_unlock(&tcp->lock);
    tcp_control_flush(tcp, rank);
    tcp_control_read(tcp, rank);
}

/* What has happened on all connections; waits for something until the deadline (0: not at all). */
static void take_events(tcp_group *tcp, int64_t deadline_ns) {
    struct epoll_event events[EVENTS_AT_ONCE];
    const int count = ls_events_wait(tcp->events, events, EVENTS_AT_ONCE, deadline_ns);
    for (int i = 0; i < count; i++)
        if (events[i].data.u64 != TCP_ALARM)
            hear(tcp, (int)(events[i].data.u64 >> 8), (int)(events[i].data.u64 & 0xff), events[i].events);
}

/* --- calling ----------------------------------------------------------------------------------------------------------- */

static void say_call(tcp_group *tcp, const backend_op *op, int rank) {
    tcp_note note = tcp_note_make(TCP_CALLS, op->number);
    note.call = tcp->call;
    tcp_control_say(tcp, rank, &note, NULL);
}

static void say_calls(tcp_group *tcp, const backend_op *op) {
    for (int rank = 0; rank < tcp->world_size; rank++)
        if (rank != tcp->rank) say_call(tcp, op, rank);
    ls_point("tcp.calls.said");
}

static const tcp_call *call_of(const tcp_group *tcp, int rank) {
    return rank == tcp->rank ? &tcp->call : &tcp->peers[rank].calls[tcp->operation % 2];
}

/* All ranks say the same sentence: the first rank whose call differs from rank 0's. */
static ls_status compare(const tcp_group *tcp) {
    for (int rank = 1; rank < tcp->world_size; rank++)
        if (!tcp_calls_are_alike(call_of(tcp, 0), call_of(tcp, rank)))
            return tcp_calls_differ(tcp, 0, call_of(tcp, 0), rank, call_of(tcp, rank));
    return LS_OK;
}

static bool has_called(const tcp_group *tcp, const backend_op *op, int rank) {
    return tcp->peers[rank].called[op->number % 2] == op->number;
}

/* LS_END: a rank's call is still awaited. */
static ls_status meet(tcp_group *tcp, backend_op *op) {
    tcp_op *s = tcp_op_of(op);
    for (; s->peer < tcp->world_size; s->peer++)
        if (s->peer != tcp->rank && !has_called(tcp, op, s->peer)) return LS_END;
    return compare(tcp);
}

/* --- moving ------------------------------------------------------------------------------------------------------------ */

static void begin_moving(tcp_group *tcp, backend_op *op) {
    bool moved = false;
    tcp_op_of(op)->phase = TCP_MOVING;
    collective_start(tcp->collective, &op->call, op->number);
    tcp_lanes_send(tcp, &moved);
}

void tcp_start(void *state, backend_op *op) {
    tcp_group *tcp = state;
    if (kind_is_message(op->call.kind)) {
        tcp_message_start(tcp, op);
        return;
    }
    *tcp_op_of(op) = (tcp_op){.phase = TCP_CALLING};
    tcp_lanes_begin(tcp, op);
    if (tcp->checks_calls)
        say_calls(tcp, op);
    else
        begin_moving(tcp, op);
}

static backend_progress fail(backend_op *op, ls_status status) {
    op->status = status;
    return BACKEND_FAILED;
}

static backend_progress call(tcp_group *tcp, backend_op *op) {
    const ls_status status = meet(tcp, op);
    if (status == LS_END) return BACKEND_PENDING;
    if (status != LS_OK) return fail(op, status);
    begin_moving(tcp, op);
    return BACKEND_MOVED;
}

static backend_progress move(tcp_group *tcp, backend_op *op) {
    tcp_op *s = tcp_op_of(op);
    bool moved = false;
    const ls_status status = tcp_lanes_receive(tcp, &moved);
    if (status != LS_OK) return fail(op, status);
    if (s->phase == TCP_MOVING) {
        const collective_progress progress = collective_poll(tcp->collective);
        if (progress == COLLECTIVE_FAILED) return fail(op, LS_ERR_MISMATCH);
        if (progress == COLLECTIVE_DONE) s->phase = TCP_SENDING;
        moved = moved || progress != COLLECTIVE_PENDING;
    }
    tcp_lanes_send(tcp, &moved);
    if (s->phase == TCP_SENDING && tcp->unsent == 0) return BACKEND_DONE;
    return moved ? BACKEND_MOVED : BACKEND_PENDING;
}

/* A peer that left or lost the group after it was through with this operation has done all that we need of it. */
static bool was_through(const tcp_peer *peer, const backend_op *op) {
    return op->number > 0 && peer->done >= op->number;
}

/* Who came to this operation and then lost patience, with this rank or another: it fails for all. */
static ls_status find_who_gave_up(const tcp_group *tcp, const backend_op *op) {
    for (int rank = 0; rank < tcp->world_size && tcp->has_lost_peer; rank++)
        if (tcp->peers[rank].standing == TCP_HAS_LOST && !was_through(&tcp->peers[rank], op))
            return ls_error_raise(&tcp->peers[rank].why);
    return LS_OK;
}

backend_progress tcp_poll(void *state, backend_op *op) {
    tcp_group *tcp = state;
    const bool is_message = kind_is_message(op->call.kind);
    if (!is_message || mail_begins_with(tcp->group, op)) take_events(tcp, 0);
    if (is_message) return tcp_message_poll(tcp, op);
    const backend_progress progress = tcp_op_of(op)->phase == TCP_CALLING ? call(tcp, op) : move(tcp, op);
    if (progress == BACKEND_MOVED) tcp->has_moved = true;
    if (progress != BACKEND_DONE) return progress;
    const ls_status status = find_who_gave_up(tcp, op);
    if (status != LS_OK) return fail(op, status);
    /* Relaxed: it is said when we leave, by whichever thread. */
    atomic_store_explicit(&tcp->done, op->number, memory_order_relaxed);
    ls_point("tcp.operation.done");
    return BACKEND_DONE;
}

/* --- peers ------------------------------------------------------------------------------------------------------------- */

static bool waits_for(const tcp_group *tcp, const backend_op *op, int peer) {
    if (peer == tcp->rank) return false;
    if (kind_is_message(op->call.kind)) return tcp_message_waits_for(tcp, op, peer);
    const tcp_op *s = (const tcp_op *)(const void *)op->scratch;
    if (s->phase == TCP_CALLING) return !has_called(tcp, op, peer);
    return tcp_lanes_wait_for(tcp, peer);
}

/* Whether a peer that has left or died cannot do its part any more. */
static bool has_ended(const tcp_group *tcp, const backend_op *op, int peer) {
    if (kind_is_message(op->call.kind)) return tcp_message_has_ended(tcp, op, peer);
    const tcp_op *s = (const tcp_op *)(const void *)op->scratch;
    return s->phase == TCP_CALLING || tcp_lanes_have_ended(tcp, peer);
}

/* `before` says what of the operation it cannot have done. */
static ls_status lost(const tcp_group *tcp, const backend_op *op, int rank, const char *before) {
    const tcp_peer *peer = &tcp->peers[rank];
    char who[TCP_WHO_BYTES], call[CALL_TEXT_BYTES + 32], cause[128] = "died";
    if (peer->standing == TCP_HAS_LEFT)
        snprintf(cause, sizeof cause, "left the group");
    else if (peer->links[TCP_CONTROL].failure)
        snprintf(cause, sizeof cause, "cannot be reached any more (%s)", strerror(peer->links[TCP_CONTROL].failure));
    return ls_fail(LS_ERR_PEER_LOST, "%s %s before %s %s; close the group", tcp_who(tcp, rank, who), cause, before,
                   op_describe(op, call));
}

/* Those that we wait for. */
static ls_status examine_awaited(const tcp_group *tcp, const backend_op *op) {
    int awaited = 0, gone = 0, last = 0;
    for (int rank = 0; rank < tcp->world_size; rank++) {
        const tcp_peer *peer = &tcp->peers[rank];
        if (!waits_for(tcp, op, rank)) continue;
        awaited++;
        if (peer->standing == TCP_IS_THERE || !peer->links[TCP_CONTROL].has_ended || !has_ended(tcp, op, rank))
            continue;
        /* A message from any rank may come from those who have not left. */
        if (op->call.kind != GROUP_RECEIVE || op->call.root != LS_ANY_RANK || peer->standing != TCP_HAS_LEFT)
            return lost(tcp, op, rank, "it had done its part of");
        gone++;
        last = rank;
    }
    return gone && gone == awaited ? lost(tcp, op, last, "it had done its part of") : LS_OK;
}

void tcp_describe_missing(void *state, const backend_op *op, char *text, size_t bytes) {
    const tcp_group *tcp = state;
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < tcp->world_size && used + 1 < bytes; rank++) {
        if (!waits_for(tcp, op, rank)) continue;
        const tcp_peer *peer = &tcp->peers[rank];
        used += (size_t)snprintf(text + used, bytes - used,
                                 "%srank %d (%s, process %" PRId64 ", last heard of in operation %" PRIu64 ")",
                                 used ? ", " : "", rank_name(tcp->names, rank), peer->host, peer->process, peer->heard);
    }
}

/* --- standing still ---------------------------------------------------------------------------------------------------- */

/* What can go on by itself has moved by then. */
#define STANDSTILL_NS LS_NS_PER_S

static bool stands_still(tcp_group *tcp) {
    const int64_t now_ns = ls_now_ns();
    if (tcp->has_moved) tcp->still_since_ns = now_ns;
    tcp->has_moved = false;
    return now_ns - tcp->still_since_ns >= STANDSTILL_NS;
}

/* Ranks that call different things may wait for each other for ever and receive nothing that shows it. So each tells the next
 * one its call: where not all are alike, two neighbours are not. Never behind notes that are not read, which would add up. */
static void tell_next(tcp_group *tcp, const backend_op *op) {
    const int next = (tcp->rank + 1) % tcp->world_size;
    if (tcp->told == op->number) return;
    ls_mutex_lock(&tcp->lock);
    const bool is_free = tcp->peers[next].outbox_bytes == 0;
    ls_mutex_unlock(&tcp->lock);
    if (is_free) say_call(tcp, op, next);
    tcp->told = op->number;
}

/* What the rank before told us of operations that we have come to. */
static ls_status compare_with_former(const tcp_group *tcp) {
    const int former = (tcp->rank + tcp->world_size - 1) % tcp->world_size;
    const tcp_peer *peer = &tcp->peers[former];
    for (int i = 0; i < 2; i++) {
        const uint64_t number = peer->called[i];
        const tcp_call *ours = &tcp->past[number % TCP_PAST_CALLS];
        if (number == 0 || number > tcp->operation || tcp->operation - number >= TCP_PAST_CALLS) continue;
        if (!tcp_calls_are_alike(ours, &peer->calls[i]))
            return tcp_calls_differ(tcp, tcp->rank, ours, former, &peer->calls[i]);
    }
    return LS_OK;
}

/* A rank is gone, and perhaps nobody waits for it but ranks that are not here yet, nor can say whether it did its part. When
 * what is left does not end the operation in time, the rank is missed by all. */
static ls_status find_who_is_missed(const tcp_group *tcp, const backend_op *op) {
    for (int rank = 0; rank < tcp->world_size; rank++) {
        const tcp_peer *peer = &tcp->peers[rank];
        const bool is_gone = rank != tcp->rank && peer->standing != TCP_IS_THERE && !was_through(peer, op);
        /* From whom we wait for data, some may still be on its way. */
        if (is_gone && !tcp_lanes_wait_for(tcp, rank)) return lost(tcp, op, rank, "all ranks had done their parts of");
    }
    return LS_OK;
}

/* Why the operation may never end, though those that we wait for in it may be there. Where all calls are compared, all ranks
 * say the same sentence, which takes the calls of all. */
static ls_status look_around(tcp_group *tcp, const backend_op *op) {
    if (!tcp->checks_calls) LS_TRY(compare_with_former(tcp));
    if (!stands_still(tcp)) return LS_OK;
    if (!tcp->checks_calls) tell_next(tcp, op);
    return find_who_is_missed(tcp, op);
}

ls_status tcp_examine(void *state, backend_op *op) {
    LS_TRY(find_who_gave_up(state, op));
    LS_TRY(examine_awaited(state, op));
    return kind_is_message(op->call.kind) ? LS_OK : look_around(state, op);
}

ls_status tcp_heed(tcp_group *tcp, const backend_op *op) {
    take_events(tcp, 0);
    LS_TRY(find_who_gave_up(tcp, op));
    return look_around(tcp, op);
}

/* --- sleeping ---------------------------------------------------------------------------------------------------------- */

uint32_t tcp_bell(void *state) {
    return atomic_load_explicit(&((tcp_group *)state)->bell, memory_order_acquire);
}

/* We say that we sleep, then look at the bell; who rings advances it, then looks whether we sleep. Each makes a full barrier
 * in between. What peers send ends the wait by itself: an event that came since the poll is still to be taken. */
backend_progress tcp_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    tcp_group *tcp = state;
    const backend_progress progress = tcp_poll(tcp, op);
    if (progress != BACKEND_PENDING) return progress;
    atomic_store_explicit(&tcp->is_asleep, true, memory_order_relaxed);
    ls_full_barrier();
    if (tcp_bell(tcp) == bell) take_events(tcp, deadline_ns);
    atomic_store_explicit(&tcp->is_asleep, false, memory_order_relaxed);
    return BACKEND_PENDING;
}

void tcp_wake(void *state) {
    tcp_group *tcp = state;
    atomic_fetch_add_explicit(&tcp->bell, 1, memory_order_release);
    ls_full_barrier();
    if (!atomic_load_explicit(&tcp->is_asleep, memory_order_relaxed)) return;
    const uint64_t one = 1;
    (void)!write(tcp->alarm, &one, sizeof one);
}
