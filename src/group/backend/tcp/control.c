/* control.c: notes between two ranks. They are few and small: all that may be on their way at a time fit into an outbox, and
 * together with it into a socket's buffer; a peer that does not read for so long that they do not fit loses us instead. */
#include "group/backend/tcp/tcp.h"

#include "base/fault.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* --- saying ------------------------------------------------------------------------------------------------------------ */

static void flush(tcp_group *tcp, tcp_peer *peer) {
    (void)tcp; /* of which builds without assertions read nothing */
    LS_ASSERT_HELD(&tcp->lock);
    while (peer->outbox_bytes > 0) {
        const struct iovec part = {.iov_base = peer->outbox, .iov_len = peer->outbox_bytes};
        const size_t sent = tcp_link_send(&peer->links[TCP_CONTROL], &part, 1);
        if (sent == 0) return;
        peer->outbox_bytes -= sent;
        memmove(peer->outbox, peer->outbox + sent, peer->outbox_bytes);
    }
}

/* Whoever leaves may be no driver, so nothing but the sockets is touched. */
static void hang_up(const tcp_peer *peer) {
    for (int channel = 0; channel < TCP_CHANNELS; channel++)
        if (peer->links[channel].socket >= 0) shutdown(peer->links[channel].socket, SHUT_RDWR);
}

void tcp_control_say(tcp_group *tcp, int rank, const tcp_note *note, const char *text) {
    tcp_peer *peer = &tcp->peers[rank];
    tcp_note whole = *note;
    const size_t length = text ? strnlen(text, LS_ERROR_TEXT_BYTES - 1) : 0;
    whole.text_bytes = (uint16_t)length;
    ls_mutex_lock(&tcp->lock);
    if (peer->outbox_bytes + sizeof whole + length <= sizeof peer->outbox) {
        memcpy(peer->outbox + peer->outbox_bytes, &whole, sizeof whole);
        if (length) memcpy(peer->outbox + peer->outbox_bytes + sizeof whole, text, length);
        peer->outbox_bytes += sizeof whole + length;
        flush(tcp, peer);
    } else {
        hang_up(peer);
    }
    ls_mutex_unlock(&tcp->lock);
}

void tcp_control_flush(tcp_group *tcp, int rank) {
    ls_mutex_lock(&tcp->lock);
    flush(tcp, &tcp->peers[rank]);
    ls_mutex_unlock(&tcp->lock);
}

void tcp_leave(void *state, const ls_error *why) {
    tcp_group *tcp = state;
    if (atomic_exchange(&tcp->has_said, true)) return;
    tcp_note note = tcp_note_make(TCP_LEAVES, atomic_load_explicit(&tcp->done, memory_order_relaxed));
    note.status = why->status;
    for (int rank = 0; rank < tcp->world_size; rank++)
        if (rank != tcp->rank) tcp_control_say(tcp, rank, &note, why->status == LS_OK ? NULL : why->text);
    ls_point("tcp.leaving.said");
}

/* --- hearing ----------------------------------------------------------------------------------------------------------- */

static void leaves(tcp_group *tcp, tcp_peer *peer, const tcp_note *note, const char *text) {
    if (peer->standing != TCP_IS_THERE) return;
    tcp->has_moved = true;
    peer->done = note->number;
    peer->standing = note->status == LS_OK ? TCP_HAS_LEFT : TCP_HAS_LOST;
    if (note->status != LS_OK) tcp->has_lost_peer = true;
    peer->why.status = note->status < 0 ? (ls_status)note->status : LS_ERR_ABORTED;
    memcpy(peer->why.text, text, strlen(text) + 1);
}

/* What it says makes no sense: it is no peer any more. */
static void distrust(tcp_group *tcp, int rank) {
    tcp_peer *peer = &tcp->peers[rank];
    char who[TCP_WHO_BYTES];
    ls_fail(LS_ERR_FORMAT,
            "rank %d: %s sent a note that makes no sense; do all ranks run the same version of Lockstep?",
            rank_name(tcp->names, tcp->rank), tcp_who(tcp, rank, who));
    ls_error_capture(&peer->why, LS_ERR_FORMAT);
    peer->standing = TCP_HAS_LOST;
    tcp->has_lost_peer = true;
    peer->done = 0;
    ls_mutex_lock(&tcp->lock);
    tcp_link_shut(&peer->links[TCP_CONTROL]);
    ls_mutex_unlock(&tcp->lock);
}

/* False: it makes no sense. */
static bool take(tcp_group *tcp, int rank, const tcp_note *note, const char *text) {
    tcp_peer *peer = &tcp->peers[rank];
    switch ((tcp_note_kind)note->kind) {
    case TCP_LEAVES: leaves(tcp, peer, note, text); return true;
    case TCP_CALLS:
        peer->called[note->number % 2] = note->number;
        peer->calls[note->number % 2] = note->call;
        if (note->call.number > peer->heard) peer->heard = note->call.number;
        return true;
    case TCP_OFFERS:
    case TCP_SEES:
    case TCP_GRANTS: return tcp_mail_take(tcp, rank, note);
    }
    return false;
}

static void take_all(tcp_group *tcp, int rank) {
    tcp_peer *peer = &tcp->peers[rank];
    size_t used = 0;
    for (;;) {
        tcp_note note;
        char text[LS_ERROR_TEXT_BYTES];
        const long length = tcp_note_read(peer->inbox + used, peer->inbox_bytes - used, &note, text);
        if (length == 0) break;
        if (length < 0 || !take(tcp, rank, &note, text)) {
            peer->inbox_bytes = 0;
            distrust(tcp, rank);
            return;
        }
        used += (size_t)length;
    }
    peer->inbox_bytes -= used;
    memmove(peer->inbox, peer->inbox + used, peer->inbox_bytes);
}

/* The network, not the peer, has ended the connection: then its others have no end of their own. */
static bool is_cut(int failure) {
    return failure == ETIMEDOUT || failure == EHOSTUNREACH || failure == ENETUNREACH || failure == ENETDOWN ||
           failure == EHOSTDOWN;
}

static void ends(tcp_group *tcp, tcp_peer *peer) {
    if (peer->standing == TCP_IS_THERE) {
        peer->standing = TCP_IS_GONE;
        tcp->has_moved = true;
    }
    if (!is_cut(peer->links[TCP_CONTROL].failure)) return;
    for (int channel = TCP_CONTROL + 1; channel < TCP_CHANNELS; channel++) tcp_link_shut(&peer->links[channel]);
}

void tcp_control_read(tcp_group *tcp, int rank) {
    tcp_peer *peer = &tcp->peers[rank];
    tcp_link *link = &peer->links[TCP_CONTROL];
    size_t received = 0;
    do {
        ls_mutex_lock(&tcp->lock);
        received = tcp_link_receive(link, peer->inbox + peer->inbox_bytes, sizeof peer->inbox - peer->inbox_bytes);
        ls_mutex_unlock(&tcp->lock);
        peer->inbox_bytes += received;
        if (received) take_all(tcp, rank);
    } while (received > 0);
    if (link->has_ended) ends(tcp, peer);
}
