/* fuzz_tcp.c: what a peer sends over tcp on its connections, in pieces of any length, while this rank reduces, sends and
 * receives.
 * covers: src/group/backend/tcp/frame.c src/group/backend/tcp/control.c src/group/backend/tcp/lanes.c
 *         src/group/backend/tcp/messages.c
 *
 * Input: a byte that says on which connection (modulo TCP_CHANNELS; from 128 on: it hangs up), a length, and that many
 * bytes. */
#include "group/backend/tcp/tcp.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COUNT = 1000 };

/* Rank 0 of two; ends[channel] is the peer's. */
static void open_pair(tcp_group *tcp, int ends[TCP_CHANNELS]) {
    *tcp = (tcp_group){.rank = 0, .world_size = 2, .events = -1, .alarm = -1};
    ls_mutex_init(&tcp->lock);
    tcp->peers = ls_alloc_array(2, sizeof *tcp->peers);
    if (!tcp->peers) abort();
    tcp_mail_init(tcp);
    for (int channel = 0; channel < TCP_CHANNELS; channel++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) abort();
        ends[channel] = pair[1];
        tcp->peers[1].links[channel] = (tcp_link){.socket = pair[0], .is_readable = true, .is_writable = true};
    }
    tcp_transport_init(tcp);
}

static void close_pair(tcp_group *tcp, const int ends[TCP_CHANNELS]) {
    for (int channel = 0; channel < TCP_CHANNELS; channel++) {
        tcp_link_close(&tcp->peers[1].links[channel]);
        if (ends[channel] >= 0) close(ends[channel]);
    }
    tcp_mail_free(tcp);
    ls_mutex_destroy(&tcp->lock);
    ls_free(tcp->peers);
}

/* As poll does, with events that say of everything that it may be ready. Returns whether the group goes on. */
static bool turn(tcp_group *tcp, backend_op *ops, bool *is_done) {
    bool moved = false;
    for (int channel = 0; channel < TCP_CHANNELS; channel++) {
        tcp->peers[1].links[channel].is_readable = tcp->peers[1].links[channel].is_writable = true;
    }
    tcp_control_flush(tcp, 1);
    tcp_control_read(tcp, 1);
    for (int i = 1; i < 3; i++) {
        const backend_progress progress = is_done[i] ? BACKEND_DONE : tcp_message_poll(tcp, &ops[i]);
        if (progress == BACKEND_FAILED) return false;
        is_done[i] = progress == BACKEND_DONE;
    }
    if (is_done[0]) return true;
    if (tcp_lanes_receive(tcp, &moved) != LS_OK) return false;
    const collective_progress progress = collective_poll(tcp->collective);
    tcp_lanes_send(tcp, &moved);
    is_done[0] = progress == COLLECTIVE_DONE && tcp->unsent == 0;
    return progress != COLLECTIVE_FAILED;
}

/* What has become of the peer follows from what it has sent, in bytes a channel. */
static void check(const tcp_group *tcp, const size_t *sent, const bool *is_done, const backend_op *ops) {
    const tcp_peer *peer = &tcp->peers[1];
    const tcp_mail *mail = &peer->mail;
    size_t on_lanes = 0;
    for (int lane = 0; lane < TCP_LANES; lane++) {
        const tcp_receiver *receiver = &peer->receivers[lane];
        const tcp_piece *piece = receiver->piece;
        on_lanes += sent[TCP_FIRST_LANE + lane];
        if (piece && receiver->left > (size_t)(piece->into + piece->bytes - receiver->at)) abort();
    }
    /* Nothing is judged before it is whole, nothing complete before it is there. */
    if (peer->standing == TCP_HAS_LOST && sent[TCP_CONTROL] < sizeof(tcp_note)) abort();
    if (is_done[0] && on_lanes < sizeof(tcp_head) + ops[0].bytes) abort();
    if (is_done[1] && sent[TCP_CONTROL] < sizeof(tcp_note)) abort();
    if (is_done[2] && sent[TCP_LETTERS] < sizeof(tcp_letter) + ops[2].bytes) abort();
    if (mail->seen > mail->offered || (mail->has_grant && mail->granted >= mail->offered)) abort();
    for (int i = 0; i < 2; i++)
        if (peer->calls[i].name[TCP_NAME_BYTES - 1] != '\0') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tcp_group tcp;
    static collective *sums; /* its scratch is large: made once, begun anew each time */
    int ends[TCP_CHANNELS];
    static float values[COUNT], sent[10], got[10];
    bool is_done[3] = {false};
    size_t together[TCP_CHANNELS] = {0};
    backend_op ops[3] = {
        {.call = {.kind = GROUP_ALL_REDUCE, .count = COUNT, .data = values}, .number = 2, .bytes = sizeof values},
        {.call = {.kind = GROUP_SEND, .count = 10, .send = sent, .root = 1, .tag = 1}, .bytes = sizeof sent},
        {.call = {.kind = GROUP_RECEIVE, .count = 10, .data = got, .root = 1, .tag = 1}, .bytes = sizeof got}};
    open_pair(&tcp, ends);
    if (!sums && collective_create(&sums, &tcp.transport, false) != LS_OK) abort();
    tcp.collective = sums;
    tcp_lanes_begin(&tcp, &ops[0]);
    collective_start(tcp.collective, &ops[0].call, ops[0].number);
    for (int i = 1; i < 3; i++) tcp_message_start(&tcp, &ops[i]);
    bool goes_on = turn(&tcp, ops, is_done);
    while (size >= 2 && goes_on) {
        const int channel = data[0] % TCP_CHANNELS;
        const size_t length = data[1] < size - 2 ? data[1] : size - 2;
        if (data[0] >= 128 && ends[channel] >= 0) {
            close(ends[channel]);
            ends[channel] = -1;
        }
        if (ends[channel] >= 0) (void)!send(ends[channel], data + 2, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        together[channel] += length;
        data += 2 + length;
        size -= 2 + length;
        for (int i = 0; i < 3 && goes_on; i++) goes_on = turn(&tcp, ops, is_done);
        check(&tcp, together, is_done, ops);
    }
    close_pair(&tcp, ends);
    return 0;
}
