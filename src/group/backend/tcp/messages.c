/* messages.c: send and receive. A message is offered and granted by notes, and then sent on a connection that carries nothing but
 * granted messages: so it never fills a socket that something else needs, and may be received in any order of tags.
 *
 *   sender                             receiver
 *   offers: id, tag, count, type ----> takes note of it, whatever it does
 *                                 <--- sees: so many offers               at most TCP_MOST_OFFERS are on their way unseen
 *                                 <--- grants: id                         once it is received, and nothing else is under way
 *   a head and the data -------------> the message is complete
 *
 * So at most TCP_MOST_OFFERS offers, as many answers to them, a grant, a call and a leave are on their way at a time.     */
#include "group/backend/tcp/tcp.h"

#include "base/fault.h"
#include "base/memory.h"
#include "group/describe.h"

#include <string.h>

#define MOST_NOTES (2 * TCP_MOST_OFFERS + 3)
_Static_assert(MOST_NOTES * sizeof(tcp_note) + LS_ERROR_TEXT_BYTES <= TCP_OUTBOX_BYTES, "an outbox holds all notes");

typedef enum message_phase { NOT_OFFERED, OFFERED, WRITING, UNMATCHED, MATCHED, READING } message_phase;

/* A message's scratch. */
typedef struct message {
    message_phase phase;
    int peer; /* negative: any, so far */
    uint64_t id;
    size_t done; /* bytes, of head and data */
} message;

_Static_assert(sizeof(message) <= sizeof((backend_op *)0)->scratch, "a message's scratch is too small");

static message *message_of(backend_op *op) {
    return (message *)(void *)op->scratch;
}

void tcp_mail_init(tcp_group *tcp) {
    for (int rank = 0; rank < tcp->world_size; rank++) tcp->peers[rank].mail.offers_end = &tcp->peers[rank].mail.offers;
}

void tcp_mail_free(tcp_group *tcp) {
    for (int rank = 0; rank < tcp->world_size; rank++)
        for (tcp_offer *offer = tcp->peers[rank].mail.offers, *next = NULL; offer; offer = next) {
            next = offer->next;
            ls_free(offer);
        }
}

/* --- notes ------------------------------------------------------------------------------------------------------------- */

static bool take_offer(tcp_group *tcp, int rank, const tcp_note *note) {
    tcp_mail *mail = &tcp->peers[rank].mail;
    const group_call call = tcp_call_unpack(&note->call);
    if (note->number != mail->heard || (unsigned)call.dtype >= LS_DTYPE_COUNT) return false;
    tcp_offer *offer = ls_alloc(sizeof *offer);
    if (!offer) return false;
    *offer = (tcp_offer){.id = note->number, .tag = call.tag, .count = call.count, .dtype = call.dtype};
    *mail->offers_end = offer;
    mail->offers_end = &offer->next;
    mail->heard++;
    const tcp_note seen = tcp_note_make(TCP_SEES, mail->heard);
    tcp_control_say(tcp, rank, &seen, NULL);
    return true;
}

bool tcp_mail_take(tcp_group *tcp, int rank, const tcp_note *note) {
    tcp_mail *mail = &tcp->peers[rank].mail;
    if (note->kind == TCP_OFFERS) return take_offer(tcp, rank, note);
    if (note->kind == TCP_SEES) {
        if (note->number < mail->seen || note->number > mail->offered) return false;
        mail->seen = note->number;
        return true;
    }
    if (mail->has_grant || note->number >= mail->offered) return false;
    mail->granted = note->number;
    mail->has_grant = true;
    return true;
}

/* --- sending ----------------------------------------------------------------------------------------------------------- */

/* In the order of their numbers, so that messages with one tag arrive in order. */
static backend_progress offer_message(tcp_group *tcp, const backend_op *op, message *m) {
    tcp_mail *mail = &tcp->peers[m->peer].mail;
    if (mail->offered != m->id || mail->offered - mail->seen >= TCP_MOST_OFFERS) return BACKEND_PENDING;
    tcp_note note = tcp_note_make(TCP_OFFERS, m->id);
    note.call = tcp_call_pack(op);
    note.call.name[0] = '\0';
    tcp_control_say(tcp, m->peer, &note, NULL);
    mail->offered++;
    m->phase = OFFERED;
    ls_point("tcp.message.offered");
    return BACKEND_MOVED;
}

static backend_progress await_grant(const tcp_group *tcp, message *m) {
    const tcp_mail *mail = &tcp->peers[m->peer].mail;
    if (!mail->has_grant || mail->granted != m->id) return BACKEND_PENDING;
    m->phase = WRITING;
    return BACKEND_MOVED;
}

static backend_progress write_part(tcp_group *tcp, const backend_op *op, message *m) {
    tcp_peer *peer = &tcp->peers[m->peer];
    const tcp_letter head = tcp_letter_make(m->id, op->bytes);
    const size_t of_head = m->done < sizeof head ? m->done : sizeof head, of_data = m->done - of_head;
    size_t left = op->bytes - of_data;
    if (left > TCP_CHUNK_BYTES) left = TCP_CHUNK_BYTES; /* a poll is short */
    const struct iovec parts[2] = {{.iov_base = (char *)&head + of_head, .iov_len = sizeof head - of_head},
                                   {.iov_base = (char *)op->call.send + of_data, .iov_len = left}};
    const size_t sent = tcp_link_send(&peer->links[TCP_LETTERS], parts, 2);
    m->done += sent;
    if (sent) ls_point("tcp.message.written");
    if (m->done < sizeof head + op->bytes) return sent ? BACKEND_MOVED : BACKEND_PENDING;
    peer->mail.has_grant = false;
    return BACKEND_DONE;
}

/* --- receiving --------------------------------------------------------------------------------------------------------- */

static backend_progress differ(const tcp_group *tcp, backend_op *op, int rank, const tcp_offer *offered) {
    char ours[CALL_TEXT_BYTES], theirs[CALL_TEXT_BYTES];
    const group_call call = {
        .kind = GROUP_SEND, .dtype = offered->dtype, .count = offered->count, .root = tcp->rank, .tag = offered->tag};
    op->status = ls_fail(LS_ERR_MISMATCH, "rank %d called %s, rank %d %s; both have to have the same count and type",
                         rank, call_describe(&call, theirs), tcp->rank, call_describe(&op->call, ours));
    return BACKEND_FAILED;
}

/* The first offer of `rank` with our tag. */
static backend_progress match(tcp_group *tcp, backend_op *op, message *m, int rank) {
    tcp_mail *mail = &tcp->peers[rank].mail;
    tcp_offer **link = &mail->offers;
    while (*link && (*link)->tag != op->call.tag) link = &(*link)->next;
    tcp_offer *found = *link;
    if (!found) return BACKEND_PENDING;
    *link = found->next;
    if (!*link) mail->offers_end = link;
    const tcp_offer offered = *found;
    ls_free(found);
    if (offered.count != op->call.count || offered.dtype != op->call.dtype) return differ(tcp, op, rank, &offered);
    m->id = offered.id;
    m->peer = rank;
    m->phase = MATCHED;
    return BACKEND_MOVED;
}

static backend_progress match_any(tcp_group *tcp, backend_op *op, message *m) {
    if (op->call.root >= 0) return match(tcp, op, m, op->call.root);
    for (int rank = 0; rank < tcp->world_size; rank++) {
        const backend_progress progress = rank == tcp->rank ? BACKEND_PENDING : match(tcp, op, m, rank);
        if (progress != BACKEND_PENDING) return progress;
    }
    return BACKEND_PENDING;
}

static backend_progress grant(tcp_group *tcp, message *m) {
    tcp_mail *mail = &tcp->peers[m->peer].mail;
    if (mail->is_receiving) return BACKEND_PENDING;
    mail->is_receiving = true;
    mail->got = 0;
    const tcp_note note = tcp_note_make(TCP_GRANTS, m->id);
    tcp_control_say(tcp, m->peer, &note, NULL);
    m->phase = READING;
    ls_point("tcp.message.granted");
    return BACKEND_MOVED;
}

static backend_progress unsound(const tcp_group *tcp, backend_op *op, int rank) {
    char who[TCP_WHO_BYTES];
    op->status = ls_fail(LS_ERR_FORMAT,
                         "rank %d: %s sent another message than it was asked for; do all ranks run the same version of "
                         "Lockstep?",
                         tcp->rank, tcp_who(tcp, rank, who));
    return BACKEND_FAILED;
}

static backend_progress read_part(tcp_group *tcp, backend_op *op, message *m) {
    tcp_peer *peer = &tcp->peers[m->peer];
    tcp_mail *mail = &peer->mail;
    tcp_link *link = &peer->links[TCP_LETTERS];
    size_t got = 0;
    if (mail->got < sizeof mail->letter) {
        got = tcp_link_receive(link, (char *)&mail->letter + mail->got, sizeof mail->letter - mail->got);
        mail->got += got;
        if (mail->got < sizeof mail->letter) return got ? BACKEND_MOVED : BACKEND_PENDING;
        if (!tcp_letter_is_sound(&mail->letter) || mail->letter.id != m->id || mail->letter.bytes != op->bytes)
            return unsound(tcp, op, m->peer);
    }
    size_t left = op->bytes - m->done;
    if (left > TCP_CHUNK_BYTES) left = TCP_CHUNK_BYTES;
    const size_t received = left ? tcp_link_receive(link, (char *)op->call.data + m->done, left) : 0;
    m->done += received;
    if (received) ls_point("tcp.message.read");
    if (m->done < op->bytes) return got + received ? BACKEND_MOVED : BACKEND_PENDING;
    mail->is_receiving = false;
    if (op->call.source) *op->call.source = m->peer;
    return BACKEND_DONE;
}

/* --- both -------------------------------------------------------------------------------------------------------------- */

void tcp_message_start(tcp_group *tcp, backend_op *op) {
    message *m = message_of(op);
    *m = (message){.phase = UNMATCHED, .peer = op->call.root};
    if (op->call.kind != GROUP_SEND) return;
    m->phase = NOT_OFFERED;
    m->id = tcp->peers[m->peer].mail.next_id++;
}

backend_progress tcp_message_poll(tcp_group *tcp, backend_op *op) {
    message *m = message_of(op);
    switch (m->phase) {
    case NOT_OFFERED: return offer_message(tcp, op, m);
    case OFFERED: return await_grant(tcp, m);
    case WRITING: return write_part(tcp, op, m);
    case UNMATCHED: return match_any(tcp, op, m);
    case MATCHED: return grant(tcp, m);
    case READING: return read_part(tcp, op, m);
    }
    op->status = ls_fail(LS_ERR_INTERNAL, "a message is in no phase");
    return BACKEND_FAILED;
}

bool tcp_message_waits_for(const tcp_group *tcp, const backend_op *op, int peer) {
    const message *m = (const message *)(const void *)op->scratch;
    return peer != tcp->rank && (m->peer < 0 || m->peer == peer);
}

/* What is granted may still be on its way from a rank that sent it and left. */
bool tcp_message_has_ended(const tcp_group *tcp, const backend_op *op, int peer) {
    const message *m = (const message *)(const void *)op->scratch;
    return m->phase != READING || tcp->peers[peer].links[TCP_LETTERS].has_ended;
}
