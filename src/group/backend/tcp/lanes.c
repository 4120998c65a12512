/* lanes.c: the transport of collectives: messages in chunks, each behind a head, over several connections.
 *
 * What a rank sends to a peer in an operation is one stream of chunks, numbered from 0; chunk c goes on lane c modulo
 * TCP_LANES. Both sides know from the call which messages there are, so a head says no more than which operation and call its
 * sender is in: by it, ranks that call different things are found before a byte is taken. A chunk goes straight to where its
 * message wants it. The chunk of an operation that we have not come to stays in the socket.                           */
#include "group/backend/tcp/tcp.h"

#include "base/fault.h"
#include "group/compare.h"

#include <inttypes.h>
#include <string.h>

/* What a poll moves at most in each direction: some 100 us. */
#define BUDGET_BYTES ((size_t)1 << 19)

static tcp_link *lane_link(tcp_peer *peer, int lane) {
    return &peer->links[TCP_FIRST_LANE + lane];
}

/* --- flows ------------------------------------------------------------------------------------------------------------- */

static void restart(tcp_flow *flow) {
    flow->posted = flow->finished = flow->chunks = 0;
}

void tcp_lanes_pass(tcp_group *tcp, const backend_op *op) {
    tcp->operation = op->number;
    tcp->call = tcp_call_pack(op);
    tcp->past[op->number % TCP_PAST_CALLS] = tcp->call;
    tcp->has_moved = true;
}

void tcp_lanes_begin(tcp_group *tcp, const backend_op *op) {
    tcp_lanes_pass(tcp, op);
    tcp->unsent = tcp->unreceived = 0;
    for (int rank = 0; rank < tcp->world_size; rank++) {
        tcp_peer *peer = &tcp->peers[rank];
        restart(&peer->to);
        restart(&peer->from);
        for (uint64_t lane = 0; lane < TCP_LANES; lane++) peer->senders[lane].next = peer->receivers[lane].next = lane;
    }
}

static void post(tcp_flow *flow, tcp_piece piece) {
    assert(flow->posted - flow->finished < TRANSPORT_WINDOW && piece.bytes > 0);
    piece.first = flow->chunks;
    piece.chunks = (piece.bytes + TCP_CHUNK_BYTES - 1) / TCP_CHUNK_BYTES;
    flow->pieces[flow->posted++ % TRANSPORT_WINDOW] = piece;
    flow->chunks += piece.chunks;
}

/* The message that has the chunk; NULL: it is not posted yet. */
static tcp_piece *find(tcp_flow *flow, uint64_t chunk) {
    for (uint64_t number = flow->finished; number < flow->posted; number++) {
        tcp_piece *piece = &flow->pieces[number % TRANSPORT_WINDOW];
        if (chunk - piece->first < piece->chunks) return piece;
    }
    return NULL;
}

static size_t chunk_bytes(const tcp_piece *piece, uint64_t chunk) {
    const size_t left = piece->bytes - (size_t)(chunk - piece->first) * TCP_CHUNK_BYTES;
    return left < TCP_CHUNK_BYTES ? left : TCP_CHUNK_BYTES;
}

static size_t chunk_offset(const tcp_piece *piece, uint64_t chunk) {
    return (size_t)(chunk - piece->first) * TCP_CHUNK_BYTES;
}

/* A chunk of `piece` is through. Returns how many messages are, in their order. */
static uint64_t finish_chunk(tcp_flow *flow, tcp_piece *piece) {
    const uint64_t before = flow->finished;
    piece->done++;
    while (flow->finished < flow->posted) {
        const tcp_piece *first = &flow->pieces[flow->finished % TRANSPORT_WINDOW];
        if (first->done < first->chunks) break;
        flow->finished++;
    }
    return flow->finished - before;
}

/* --- sending ----------------------------------------------------------------------------------------------------------- */

static bool has_chunk(tcp_group *tcp, int rank, tcp_sender *sender) {
    if (sender->piece) return true;
    tcp_piece *piece = find(&tcp->peers[rank].to, sender->next);
    if (!piece) return false;
    sender->piece = piece;
    sender->left = chunk_bytes(piece, sender->next);
    sender->at = piece->from + chunk_offset(piece, sender->next);
    sender->head = tcp_head_make(tcp->operation, sender->next, sender->left, &tcp->call);
    sender->head_left = sizeof sender->head;
    return true;
}

/* Sends what the socket takes of the chunk under way. */
static size_t send_part(tcp_link *link, tcp_sender *sender) {
    const char *head = (const char *)&sender->head + (sizeof sender->head - sender->head_left);
    const struct iovec parts[2] = {{.iov_base = (void *)head, .iov_len = sender->head_left},
                                   {.iov_base = (void *)sender->at, .iov_len = sender->left}};
    const size_t sent = sender->head_left ? tcp_link_send(link, parts, 2) : tcp_link_send(link, parts + 1, 1);
    const size_t of_head = sent < sender->head_left ? sent : sender->head_left;
    sender->head_left -= of_head;
    sender->left -= sent - of_head;
    sender->at += sent - of_head;
    return sent;
}

static size_t send_on_lane(tcp_group *tcp, int rank, int lane, size_t budget) {
    tcp_peer *peer = &tcp->peers[rank];
    tcp_sender *sender = &peer->senders[lane];
    size_t together = 0;
    while (together < budget && has_chunk(tcp, rank, sender)) {
        const size_t sent = send_part(lane_link(peer, lane), sender);
        if (sent == 0) break;
        together += sent;
        if (sender->head_left || sender->left) continue;
        tcp->unsent -= finish_chunk(&peer->to, sender->piece);
        sender->piece = NULL;
        sender->next += TCP_LANES;
        ls_point("tcp.chunk.sent");
    }
    return together;
}

void tcp_lanes_send(tcp_group *tcp, bool *moved) {
    size_t together = 0;
    /* Behind us first: no two ranks begin with the same peer. */
    for (int i = 1; i < tcp->world_size && tcp->unsent && together < BUDGET_BYTES; i++) {
        const int rank = (tcp->rank + i) % tcp->world_size;
        const tcp_flow *to = &tcp->peers[rank].to;
        for (int lane = 0; lane < TCP_LANES && to->finished < to->posted; lane++)
            together += send_on_lane(tcp, rank, lane, BUDGET_BYTES / 2);
    }
    *moved = *moved || together > 0;
}

/* --- judging ----------------------------------------------------------------------------------------------------------- */

ls_status tcp_calls_differ(const tcp_group *tcp, int rank, const tcp_call *call, int other_rank,
                           const tcp_call *other) {
    const rank_call one = {rank_name(tcp->names, rank), call->number, tcp_call_unpack(call)};
    const rank_call another = {rank_name(tcp->names, other_rank), other->number, tcp_call_unpack(other)};
    return calls_differ(&one, &another);
}

/* A chunk of an operation that is complete here: the peer sent what our call had no use for. */
static ls_status stale(const tcp_group *tcp, int rank, const tcp_head *head) {
    char who[TCP_WHO_BYTES];
    const tcp_call *ours = &tcp->past[head->operation % TCP_PAST_CALLS];
    if (tcp->operation - head->operation < TCP_PAST_CALLS && !tcp_calls_are_alike(ours, &head->call))
        return tcp_calls_differ(tcp, tcp->rank, ours, rank, &head->call);
    return ls_fail(LS_ERR_FORMAT,
                   "rank %d: %s sent data of operation %" PRIu64 ", of which there is nothing left to receive; do all "
                   "ranks run the same version of Lockstep?",
                   rank_name(tcp->names, tcp->rank), tcp_who(tcp, rank, who), head->call.number);
}

static ls_status unsound(const tcp_group *tcp, int rank, const char *what) {
    char who[TCP_WHO_BYTES];
    return ls_fail(LS_ERR_FORMAT, "rank %d: %s sent %s; do all ranks run the same version of Lockstep?",
                   rank_name(tcp->names, tcp->rank), tcp_who(tcp, rank, who), what);
}

/* Whose chunk comes next; NULL: not yet ours to take. */
static ls_status judge(tcp_group *tcp, int rank, const tcp_receiver *receiver, const tcp_head *head,
                       tcp_piece **piece) {
    tcp_peer *peer = &tcp->peers[rank];
    *piece = NULL;
    if (!tcp_head_is_sound(head)) return unsound(tcp, rank, "what is no data of a collective");
    if (head->call.number > peer->heard) peer->heard = head->call.number;
    if (head->operation > tcp->operation) return LS_OK;
    if (head->operation < tcp->operation) return stale(tcp, rank, head);
    if (!tcp_calls_are_alike(&tcp->call, &head->call))
        return tcp_calls_differ(tcp, tcp->rank, &tcp->call, rank, &head->call);
    if (head->chunk != receiver->next) return unsound(tcp, rank, "data out of order");
    *piece = find(&peer->from, head->chunk);
    if (*piece && head->bytes != chunk_bytes(*piece, head->chunk))
        return unsound(tcp, rank, "more or less data than its call has");
    return LS_OK;
}

/* --- receiving --------------------------------------------------------------------------------------------------------- */

/* Reads ahead until there is a head. */
static bool has_head(tcp_link *link, tcp_receiver *receiver, tcp_head *head) {
    while (receiver->end - receiver->start < sizeof *head) {
        memmove(receiver->ahead, receiver->ahead + receiver->start, receiver->end - receiver->start);
        receiver->end -= receiver->start;
        receiver->start = 0;
        const size_t received =
            tcp_link_receive(link, receiver->ahead + receiver->end, sizeof receiver->ahead - receiver->end);
        if (received == 0) return false;
        receiver->end += received;
    }
    memcpy(head, receiver->ahead + receiver->start, sizeof *head);
    return true;
}

/* Some bytes of the chunk under way: what was read ahead, else from the socket. */
static size_t receive_part(tcp_link *link, tcp_receiver *receiver) {
    size_t count = receiver->end - receiver->start;
    if (count > receiver->left) count = receiver->left;
    if (count > 0) {
        memcpy(receiver->at, receiver->ahead + receiver->start, count);
        receiver->start += count;
    } else {
        count = tcp_link_receive(link, receiver->at, receiver->left);
    }
    receiver->at += count;
    receiver->left -= count;
    return count;
}

/* Some `budget` bytes: the others' data has its turn too. */
static ls_status receive_on_lane(tcp_group *tcp, int rank, int lane, size_t budget, size_t *together) {
    tcp_peer *peer = &tcp->peers[rank];
    tcp_receiver *receiver = &peer->receivers[lane];
    tcp_link *link = lane_link(peer, lane);
    for (size_t got = 0; got < budget;) {
        if (!receiver->piece) {
            tcp_head head;
            if (!has_head(link, receiver, &head)) break;
            LS_TRY(judge(tcp, rank, receiver, &head, &receiver->piece));
            /* Its head stays, and is judged again once we have come to that operation. */
            if (!receiver->piece) break;
            receiver->start += sizeof head;
            receiver->left = head.bytes;
            receiver->at = receiver->piece->into + chunk_offset(receiver->piece, head.chunk);
        }
        const size_t count = receive_part(link, receiver);
        if (count == 0) break;
        got += count;
        *together += count;
        if (receiver->left) continue;
        tcp->unreceived -= finish_chunk(&peer->from, receiver->piece);
        receiver->piece = NULL;
        receiver->next += TCP_LANES;
        ls_point("tcp.chunk.received");
    }
    return LS_OK;
}

/* What nobody waits for is looked at as far as its head: it may show that its sender calls something else. */
static bool has_something(tcp_peer *peer, int lane) {
    const tcp_receiver *receiver = &peer->receivers[lane];
    if (peer->from.finished < peer->from.posted) return true;
    return lane_link(peer, lane)->is_readable && receiver->end - receiver->start < sizeof(tcp_head);
}

ls_status tcp_lanes_receive(tcp_group *tcp, bool *moved) {
    size_t together = 0;
    for (int i = 1; i < tcp->world_size && together < BUDGET_BYTES; i++) {
        const int rank = (tcp->rank + i) % tcp->world_size;
        for (int lane = 0; lane < TCP_LANES; lane++)
            if (has_something(&tcp->peers[rank], lane))
                LS_TRY(receive_on_lane(tcp, rank, lane, BUDGET_BYTES / 2, &together));
    }
    *moved = *moved || together > 0;
    return LS_OK;
}

bool tcp_lanes_wait_for(const tcp_group *tcp, int peer) {
    const tcp_flow *to = &tcp->peers[peer].to, *from = &tcp->peers[peer].from;
    return to->finished < to->posted || from->finished < from->posted;
}

bool tcp_lanes_have_ended(const tcp_group *tcp, int rank) {
    const tcp_peer *peer = &tcp->peers[rank];
    if (peer->to.finished < peer->to.posted) return true;
    for (int lane = 0; lane < TCP_LANES; lane++)
        if (peer->receivers[lane].next < peer->from.chunks && peer->links[TCP_FIRST_LANE + lane].has_ended) return true;
    return false;
}

/* --- the transport ----------------------------------------------------------------------------------------------------- */

static void transport_send(void *network, int peer, const void *data, size_t bytes) {
    tcp_group *tcp = network;
    post(&tcp->peers[peer].to, (tcp_piece){.from = data, .bytes = bytes});
    tcp->unsent++;
}

static void transport_receive(void *network, int peer, void *data, size_t bytes) {
    tcp_group *tcp = network;
    post(&tcp->peers[peer].from, (tcp_piece){.into = data, .bytes = bytes});
    tcp->unreceived++;
}

static uint64_t transport_sent(void *network, int peer) {
    return ((const tcp_group *)network)->peers[peer].to.finished;
}

static uint64_t transport_received(void *network, int peer) {
    return ((const tcp_group *)network)->peers[peer].from.finished;
}

void tcp_transport_init(tcp_group *tcp) {
    tcp->transport = (transport){.rank = tcp->rank,
                                 .world_size = tcp->world_size,
                                 .network = tcp,
                                 .send = transport_send,
                                 .receive = transport_receive,
                                 .sent = transport_sent,
                                 .received = transport_received};
}
