/* visits.c: we connect to lower ranks. Their addresses are tried in turn, each for a short time, round after round: an address may
 * lead nowhere, or to another host that has the same one (bridges of containers), whose rank cannot prove to be the one
 * that we look for. The control connection finds the address, the others of a pair follow to it.
 *
 *   resting --------> connecting --------> proving --------> securing (with TLS) --------> arrived
 *      ^___ failed, or took too long: the next address ____/________/                                                          */
#include "group/backend/tcp/meeting.h"

#include "base/clock.h"
#include "base/fault.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_NS (3 * LS_NS_PER_S)
#define PROVE_NS (10 * LS_NS_PER_S)
/* Between two rounds over all addresses. */
#define PAUSE_NS (50 * LS_NS_PER_MS)

static const tcp_card *card_of(const tcp_meeting *meeting, int rank) {
    const tcp_group *tcp = meeting->tcp;
    return meeting->far_cards && tcp->host_of[rank] != tcp->host_of[tcp->rank] ? &meeting->far_cards[rank]
                                                                               : &meeting->cards[rank];
}

/* The address was none, or took too long: the next, after a pause when all were tried. */
static void fail(tcp_meeting *meeting, tcp_visit *visit, const char *why, int64_t now_ns) {
    store_address address;
    char text[STORE_ADDRESS_TEXT_BYTES];
    tcp_place_unpack(&card_of(meeting, visit->rank)->places[visit->place], &address);
    store_address_describe(&address, text);
    snprintf(meeting->last_failure, sizeof meeting->last_failure, "rank %d at %s: %s",
             rank_name(meeting->tcp->names, visit->rank), text, why);
    tcp_tls_end(&visit->tls);
    ls_live_lock();
    close(visit->socket);
    visit->socket = -1;
    ls_live_unlock();
    visit->phase = TCP_RESTING;
    /* Connections behind the first keep to its address. */
    if (visit->channel == TCP_CONTROL) visit->place = (visit->place + 1) % card_of(meeting, visit->rank)->place_count;
    visit->deadline_ns = visit->place == 0 || visit->channel != TCP_CONTROL ? now_ns + PAUSE_NS : now_ns;
}

static ls_status begin(tcp_meeting *meeting, tcp_visit *visit, int64_t now_ns) {
    store_address address;
    tcp_place_unpack(&card_of(meeting, visit->rank)->places[visit->place], &address);
    ls_live_lock();
    visit->socket = LS_SYSCALL(EMFILE, socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ls_live_unlock();
    if (visit->socket < 0)
        return ls_fail_errno(LS_ERR_IO, errno, "rank %d: cannot make a socket to connect to rank %d",
                             rank_name(meeting->tcp->names, meeting->tcp->rank),
                             rank_name(meeting->tcp->names, visit->rank));
    store_socket_prepare(visit->socket);
    visit->phase = TCP_CONNECTING;
    visit->deadline_ns = now_ns + CONNECT_NS;
    if (connect(visit->socket, (const struct sockaddr *)&address.socket, address.bytes) == 0 || errno == EINPROGRESS)
        return LS_OK;
    /* A sandbox may have one that is down: it listens, and leads nowhere. */
    if (errno == ENETUNREACH && store_address_is_loopback(&address))
        return ls_fail_errno(
            LS_ERR_IO, errno, "rank %d: cannot reach rank %d over loopback; bring this host's interface lo up",
            rank_name(meeting->tcp->names, meeting->tcp->rank), rank_name(meeting->tcp->names, visit->rank));
    fail(meeting, visit, strerror(errno), now_ns);
    return LS_OK;
}

static void connected(tcp_meeting *meeting, tcp_visit *visit, int64_t now_ns) {
    int failure = 0;
    socklen_t bytes = sizeof failure;
    if (getsockopt(visit->socket, SOL_SOCKET, SO_ERROR, &failure, &bytes) != 0) failure = errno;
    if (failure) {
        fail(meeting, visit, strerror(failure), now_ns);
        return;
    }
    visit->phase = TCP_PROVING;
    visit->deadline_ns = now_ns + PROVE_NS;
    visit->prover = (store_prover){.got = 0};
}

/* The connection is the group's from now on. */
static void arrive(tcp_meeting *meeting, tcp_visit *visit) {
    ls_live_lock();
    tcp_meeting_take(meeting, visit->rank, visit->channel, visit->socket, visit->tls);
    visit->socket = -1;
    visit->tls = NULL;
    visit->phase = TCP_ARRIVED;
    ls_live_unlock();
    ls_point("tcp.meeting.connected");
}

static ls_status go_on_proving(const tcp_meeting *meeting, tcp_visit *visit) {
    const tcp_group *tcp = meeting->tcp;
    store_credentials credentials = meeting->credentials;
    ls_status status = tcp_credentials_bind(&credentials, meeting->place->prefix, visit->rank);
    if (status == LS_OK)
        status = store_prover_step(&visit->prover, visit->socket, &credentials, tcp->rank, visit->channel);
    if (status == LS_OK && tcp->tls) {
        status = tcp_tls_begin(&visit->tls, tcp->tls, visit->socket, false, &credentials, &visit->prover.greeting,
                               &visit->prover.hello);
        visit->phase = TCP_SECURING;
    }
    explicit_bzero(&credentials, sizeof credentials);
    return status;
}

static void prove(tcp_meeting *meeting, tcp_visit *visit, int64_t now_ns) {
    ls_status status = visit->phase == TCP_PROVING ? go_on_proving(meeting, visit) : LS_OK;
    /* The first step of TLS is ours. */
    if (status == LS_OK && visit->tls) status = tcp_tls_step(visit->tls);
    if (status == LS_OK) arrive(meeting, visit);
    if (status < 0) fail(meeting, visit, ls_last_error(), now_ns);
}

/* The control connection of the same pair. */
static const tcp_visit *first_of_pair(const tcp_meeting *meeting, const tcp_visit *visit) {
    return &meeting->visits[visit->rank * TCP_CHANNELS + TCP_CONTROL];
}

int tcp_visits_poll(const tcp_meeting *meeting, struct pollfd *polled, int64_t *wake_ns) {
    for (int i = 0; i < meeting->visit_count; i++) {
        const tcp_visit *visit = &meeting->visits[i];
        const bool waits = visit->phase != TCP_ARRIVED &&
                           (visit->channel == TCP_CONTROL || first_of_pair(meeting, visit)->phase == TCP_ARRIVED);
        polled[i] = (struct pollfd){.fd = visit->socket, /* -1: none */
                                    .events = visit->phase == TCP_CONNECTING ? POLLOUT : POLLIN};
        if (waits && visit->deadline_ns < *wake_ns) *wake_ns = visit->deadline_ns;
    }
    return meeting->visit_count;
}

static ls_status go_on(tcp_meeting *meeting, tcp_visit *visit, bool is_ready, int64_t now_ns) {
    if (visit->phase == TCP_RESTING) {
        const tcp_visit *first = first_of_pair(meeting, visit);
        if (now_ns < visit->deadline_ns) return LS_OK;
        if (visit != first) {
            if (first->phase != TCP_ARRIVED) return LS_OK;
            visit->place = first->place;
        }
        return begin(meeting, visit, now_ns);
    }
    if (is_ready && visit->phase == TCP_CONNECTING) connected(meeting, visit, now_ns);
    /* What is there may have come with the connection. */
    if (is_ready && (visit->phase == TCP_PROVING || visit->phase == TCP_SECURING)) prove(meeting, visit, now_ns);
    const bool is_under_way = visit->phase != TCP_RESTING && visit->phase != TCP_ARRIVED;
    if (is_under_way && now_ns >= visit->deadline_ns) fail(meeting, visit, "it does not answer", now_ns);
    return LS_OK;
}

ls_status tcp_visits_go_on(tcp_meeting *meeting, const struct pollfd *polled, int64_t now_ns) {
    for (int i = 0; i < meeting->visit_count; i++)
        LS_TRY(go_on(meeting, &meeting->visits[i], polled[i].revents != 0, now_ns));
    return LS_OK;
}
