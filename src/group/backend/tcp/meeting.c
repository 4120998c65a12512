/* meeting.c: the ranks of a group meet: they exchange cards, listen, and connect each with each, higher ranks to
 * lower ones. All connections of a rank go on in one loop, accepting and connecting, so that no order of ranks can
 * lock up and no stranger delays anybody.
 *
 * Ranks that share a host reach each other over loopback. Only where there are several hosts does anybody listen at
 * other addresses, and there a secret is wanted. */
#include "group/backend/tcp/meeting.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "store/interfaces.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD_VERSION 3
#define MOMENT_NS LS_NS_PER_S

/* --- secrets ------------------------------------------------------------------------------------------------------ */

/* A rank proves to be of this job, this group, and to have found the rank that it looked for. */
ls_status tcp_credentials_bind(store_credentials *credentials, const char *prefix, int rank) {
    char text[STORE_JOB_BYTES + LS_STORE_KEY_BYTES + 64];
    unsigned char digest[EVP_MAX_MD_SIZE];
    const int length = snprintf(text, sizeof text, "lockstep tcp\n%s\n%s\n%d", credentials->job, prefix, rank);
    if (!EVP_Digest(text, (size_t)length, digest, NULL, EVP_sha256(), NULL))
        return ls_fail(LS_ERR_INTERNAL, "libcrypto refuses to compute a SHA-256");
    for (size_t i = 0; i < 32; i++) snprintf(credentials->job + 2 * i, 3, "%02x", digest[i]);
    return LS_OK;
}

static void key_of_secret(const backend_place *place, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/secret", place->prefix);
}

/* In slices: between them we hear whether a rank has failed, for instance rank 0, which makes the secret. */
static ls_status fetch_credentials(tcp_meeting *meeting) {
    const backend_place *place = meeting->place;
    char key[LS_STORE_KEY_BYTES];
    key_of_secret(place, key);
    for (int64_t slice_ms = 0;;) {
        slice_ms = tcp_cards_slice_ms(place, slice_ms);
        const ls_status status = store_job_credentials(place->store, key, place->rank, slice_ms, &meeting->credentials);
        if (status == LS_OK) break;
        if (status != LS_ERR_TIMEOUT) return ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
        LS_TRY(tcp_cards_look_around(place));
        if (ls_now_ns() < place->deadline_ns) continue;
        char first[32];
        snprintf(first, sizeof first, "rank %d", rank_name(place->names, 0));
        return tcp_cards_time_is_up(place, first);
    }
    if (meeting->tcp->tls && meeting->credentials.secret_bytes == 0)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "rank %d: " TCP_ENV_TLS "=1, but the job has no secret to make keys of: give all ranks the same "
                       "file by LOCKSTEP_SECRET_FILE",
                       rank_name(place->names, place->rank));
    meeting->own = meeting->credentials;
    return tcp_credentials_bind(&meeting->own, place->prefix, place->rank);
}

/* --- listening ---------------------------------------------------------------------------------------------------- */

static ls_status listen_on(tcp_meeting *meeting, store_address *address, tcp_card *card) {
    tcp_group *tcp = meeting->tcp;
    store_address_set_port(address, 0);
    ls_live_lock();
    const ls_status status = store_address_listen(address, &tcp->listeners[tcp->listener_count]);
    if (status == LS_OK) tcp->listener_count++;
    ls_live_unlock();
    if (status == LS_OK) tcp_place_pack(address, &card->places[card->place_count++]);
    return status;
}

static ls_status listen_on_loopback(tcp_meeting *meeting, tcp_card *card) {
    store_address narrow = {.bytes = sizeof(struct sockaddr_in)}, wide = {.bytes = sizeof(struct sockaddr_in6)};
    *(struct sockaddr_in *)&narrow.socket =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *(struct sockaddr_in6 *)&wide.socket =
        (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    ls_status status = listen_on(meeting, &narrow, card);
    if (status == LS_END) status = listen_on(meeting, &wide, card);
    if (status == LS_END) status = ls_fail(LS_ERR_IO, "this host has no loopback address; bring its interface lo up");
    return status;
}

static ls_status listen_far(tcp_meeting *meeting, tcp_card *card) {
    store_interfaces found;
    bool may_be_unauthenticated = false;
    LS_TRY(store_may_be_unauthenticated(&may_be_unauthenticated));
    if (meeting->credentials.secret_bytes == 0 && !may_be_unauthenticated)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "the ranks are on several hosts and have no secret: give all of them the same file by "
                       "LOCKSTEP_SECRET_FILE, or, in a network where every host is trusted, set "
                       "LOCKSTEP_ALLOW_UNAUTHENTICATED=1");
    LS_TRY(store_interfaces_find(false, &found));
    for (int i = 0; i < found.count && card->place_count < TCP_MOST_PLACES; i++) {
        const ls_status status = listen_on(meeting, &found.list[i].address, card);
        if (status != LS_OK && status != LS_END) return status;
    }
    return card->place_count > 0 ? LS_OK : ls_fail(LS_ERR_IO, "cannot listen at any address of this host");
}

/* --- cards -------------------------------------------------------------------------------------------------------- */

static ls_status fill_card(const tcp_meeting *meeting, tcp_card *card) {
    struct stat space;
    *card = (tcp_card){.version = CARD_VERSION,
                       .relaxed_order = meeting->place->relaxed_order,
                       .wants_tls = meeting->tcp->tls != NULL,
                       .checks_calls = meeting->tcp->checks_calls,
                       .process = getpid()};
    if (stat("/proc/self/ns/pid", &space) == 0) card->process_space = space.st_ino;
    hosts_read_own(card->host_id);
    if (gethostname(card->host, sizeof card->host - 1) != 0) snprintf(card->host, sizeof card->host, "a host");
    const int failure = LS_SYSCALL(EPERM, sched_getaffinity(0, sizeof card->processors, &card->processors));
    return failure ? ls_fail_errno(LS_ERR_IO, errno, "cannot ask which processors this rank may use") : LS_OK;
}

/* Who everyone is. Ranks may be bound to a processor each, so only all masks of a host together tell whether there
 * are enough. */
static int read_cards(tcp_meeting *meeting) {
    tcp_group *tcp = meeting->tcp;
    cpu_set_t together;
    int hosts = 0, neighbours = 0;
    CPU_ZERO(&together);
    for (int rank = 0; rank < tcp->world_size; rank++) {
        const tcp_card *card = &meeting->cards[rank];
        int before = 0;
        while (before < rank && strcmp(meeting->cards[before].host_id, card->host_id) != 0) before++;
        tcp->host_of[rank] = before < rank ? tcp->host_of[before] : hosts++;
        snprintf(tcp->peers[rank].host, sizeof tcp->peers[rank].host, "%s", card->host);
        tcp->peers[rank].process = card->process;
    }
    for (int rank = 0; rank < tcp->world_size; rank++) {
        if (tcp->host_of[rank] != tcp->host_of[tcp->rank]) continue;
        CPU_OR(&together, &together, &meeting->cards[rank].processors);
        neighbours++;
    }
    tcp->spare_processors = CPU_COUNT(&together) - neighbours;
    return hosts;
}

/* The others hear it too, of this rank's host. */
static ls_status within_rank(const tcp_meeting *meeting, ls_status status) {
    const backend_place *place = meeting->place;
    return status == LS_OK ? LS_OK : ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
}

/* Listens, and learns where the others do. */
static ls_status exchange(tcp_meeting *meeting) {
    const backend_place *place = meeting->place;
    const size_t world_size = (size_t)place->world_size;
    tcp_card card;
    LS_TRY(within_rank(meeting, fill_card(meeting, &card)));
    LS_TRY(within_rank(meeting, listen_on_loopback(meeting, &card)));
    if (!(meeting->cards = ls_alloc_array(world_size, sizeof *meeting->cards)))
        return within_rank(meeting, LS_ERR_MEMORY);
    LS_TRY(tcp_cards_exchange(place, 0, &card, meeting->cards));
    if (read_cards(meeting) == 1) return LS_OK;
    if (!(meeting->far_cards = ls_alloc_array(world_size, sizeof *meeting->far_cards)))
        return within_rank(meeting, LS_ERR_MEMORY);
    card.place_count = 0;
    LS_TRY(within_rank(meeting, listen_far(meeting, &card)));
    return tcp_cards_exchange(place, 1, &card, meeting->far_cards);
}

/* --- connecting --------------------------------------------------------------------------------------------------- */

/* A host that vanishes without a word is noticed within some 15 s, by the control connection alone: on the others a
 * peer that is stopped may leave data lying for as long as it likes. */
static void watch_host(int socket) {
    const int idle_s = 5, interval_s = 2, count = 5;
    const unsigned limit_ms = 15000;
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

void tcp_meeting_take(tcp_meeting *meeting, int rank, int channel, int socket, tcp_tls *tls) {
    tcp_link *link = &meeting->tcp->peers[rank].links[channel];
    /* A peer that lost patience with a connection makes another. */
    if (link->socket >= 0)
        tcp_link_close(link);
    else
        meeting->missing--;
    *link = (tcp_link){.socket = socket, .tls = tls, .is_readable = true, .is_writable = true};
    if (channel == TCP_CONTROL) watch_host(socket);
}

static bool is_complete(const tcp_group *tcp, int rank) {
    for (int channel = 0; channel < TCP_CHANNELS; channel++)
        if (tcp->peers[rank].links[channel].socket < 0) return false;
    return true;
}

static ls_status time_is_up(const tcp_meeting *meeting) {
    const tcp_group *tcp = meeting->tcp;
    char missing[768];
    size_t used = 0;
    for (int rank = 0; rank < tcp->world_size && used + 1 < 512; rank++) {
        char who[TCP_WHO_BYTES];
        if (rank == tcp->rank || is_complete(tcp, rank)) continue;
        used += (size_t)snprintf(missing + used, 512 - used, "%s%s", used ? ", " : "", tcp_who(tcp, rank, who));
    }
    if (used > 511) used = 511;
    if (meeting->last_failure[0])
        snprintf(missing + used, sizeof missing - used, " (the last try, %s)", meeting->last_failure);
    return tcp_cards_time_is_up(meeting->place, missing);
}

/* Who closes its control connection, and does not have all of the others, has died or given up; or it is through
 * with this group already, and what it said on the others is there or on its way: so it is judged after a moment. */
static int poll_peers(const tcp_meeting *meeting, struct pollfd *polled) {
    const tcp_group *tcp = meeting->tcp;
    const bool is_looked_at = meeting->judge_ns == 0 || ls_now_ns() >= meeting->judge_ns;
    for (int rank = 0; rank < tcp->world_size; rank++)
        polled[rank] = (struct pollfd){.fd = !is_looked_at || rank == tcp->rank || is_complete(tcp, rank)
                                                 ? -1
                                                 : tcp->peers[rank].links[TCP_CONTROL].socket,
                                       .events = POLLRDHUP};
    return tcp->world_size;
}

static ls_status examine_peers(tcp_meeting *meeting, const struct pollfd *polled, int64_t now_ns) {
    const tcp_group *tcp = meeting->tcp;
    char who[TCP_WHO_BYTES];
    bool were_looked_at = false;
    for (int rank = 0; rank < tcp->world_size; rank++) {
        were_looked_at = were_looked_at || polled[rank].fd >= 0;
        if (!polled[rank].revents || is_complete(tcp, rank)) continue;
        if (meeting->judge_ns == 0) {
            meeting->judge_ns = now_ns + MOMENT_NS;
            return LS_OK;
        }
        LS_TRY(tcp_cards_hear_last_word(meeting->place));
        return ls_fail(LS_ERR_PEER_LOST, "%s died while the group was opened; start the job again",
                       tcp_who(tcp, rank, who));
    }
    if (were_looked_at) meeting->judge_ns = 0;
    return LS_OK;
}

static ls_status turn(tcp_meeting *meeting, int64_t look_ns) {
    int64_t wake_ns = look_ns;
    /* While it lies ahead: it is not reset before a peer is looked at. */
    if (meeting->judge_ns > ls_now_ns() && meeting->judge_ns < wake_ns) wake_ns = meeting->judge_ns;
    struct pollfd *guests = meeting->polled, *visits = guests + tcp_guests_poll(meeting, guests, &wake_ns);
    struct pollfd *peers = visits + tcp_visits_poll(meeting, visits, &wake_ns);
    const size_t count = (size_t)(peers - guests + poll_peers(meeting, peers));
    if (ls_descriptors_wait(guests, count, wake_ns) < 0)
        return ls_fail_errno(LS_ERR_IO, errno, "rank %d: cannot wait for the other ranks",
                             rank_name(meeting->tcp->names, meeting->tcp->rank));
    const int64_t now_ns = ls_now_ns();
    LS_TRY(tcp_visits_go_on(meeting, visits, now_ns));
    LS_TRY(tcp_guests_go_on(meeting, guests, now_ns));
    return examine_peers(meeting, peers, now_ns);
}

/* A rank whose control connection we have is watched through that. */
static ls_status look_around(const tcp_meeting *meeting) {
    const tcp_group *tcp = meeting->tcp;
    LS_TRY(tcp_cards_look_around(meeting->place));
    for (int rank = 0; rank < tcp->world_size; rank++)
        if (tcp->peers[rank].links[TCP_CONTROL].socket < 0)
            LS_TRY(tcp_cards_examine(meeting->place, &meeting->cards[tcp->rank], &meeting->cards[rank], rank));
    return ls_now_ns() >= meeting->place->deadline_ns ? time_is_up(meeting) : LS_OK;
}

static ls_status connect_all(tcp_meeting *meeting) {
    const tcp_group *tcp = meeting->tcp;
    meeting->missing = (tcp->world_size - 1) * TCP_CHANNELS;
    int64_t slice_ms = tcp_cards_slice_ms(meeting->place, 0), look_ns = ls_deadline_after_ms(slice_ms);
    while (meeting->missing > 0) {
        LS_TRY(turn(meeting, look_ns));
        if (ls_now_ns() < look_ns) continue;
        LS_TRY(look_around(meeting));
        slice_ms = tcp_cards_slice_ms(meeting->place, slice_ms);
        look_ns = ls_deadline_after_ms(slice_ms);
    }
    ls_point("tcp.meeting.met");
    return LS_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static ls_status prepare(tcp_meeting *meeting) {
    const int world_size = meeting->tcp->world_size;
    meeting->visit_count = meeting->tcp->rank * TCP_CHANNELS;
    const size_t visits = (size_t)meeting->visit_count;
    meeting->most_guests = world_size * TCP_CHANNELS + TCP_MOST_STRANGERS;
    const size_t guests = (size_t)meeting->most_guests;
    const size_t most = visits + (size_t)world_size + guests + sizeof meeting->tcp->listeners / sizeof(int);
    meeting->visits = ls_alloc_array(visits, sizeof *meeting->visits);
    meeting->guests = ls_alloc_array(guests, sizeof *meeting->guests);
    meeting->polled = ls_alloc_array(most, sizeof *meeting->polled);
    if (!meeting->visits || !meeting->guests || !meeting->polled) return LS_ERR_MEMORY;
    for (int i = 0; i < meeting->visit_count; i++)
        meeting->visits[i] = (tcp_visit){.rank = i / TCP_CHANNELS, .channel = i % TCP_CHANNELS, .socket = -1};
    return LS_OK;
}

static void close_listeners(tcp_group *tcp) {
    for (int i = 0; i < tcp->listener_count; i++) close(tcp->listeners[i]);
    tcp->listener_count = 0;
}

/* What is not the group's. In a forked child too: it only closes. */
static void close_sockets(const tcp_meeting *meeting) {
    for (int i = 0; meeting->visits && i < meeting->visit_count; i++)
        if (meeting->visits[i].socket >= 0) close(meeting->visits[i].socket);
    for (int i = 0; i < meeting->guest_count; i++) close(meeting->guests[i].socket);
}

static void end_tls(const tcp_meeting *meeting) {
    for (int i = 0; meeting->visits && i < meeting->visit_count; i++) tcp_tls_end(&meeting->visits[i].tls);
    for (int i = 0; i < meeting->guest_count; i++) tcp_tls_end(&meeting->guests[i].tls);
}

void tcp_meeting_forked(const tcp_meeting *meeting) {
    close_sockets(meeting);
}

static void dissolve(tcp_meeting *meeting) {
    ls_live_lock();
    meeting->tcp->meeting = NULL;
    close_sockets(meeting);
    close_listeners(meeting->tcp);
    ls_live_unlock();
    end_tls(meeting);
    explicit_bzero(&meeting->credentials, sizeof meeting->credentials);
    explicit_bzero(&meeting->own, sizeof meeting->own);
    ls_free(meeting->cards);
    ls_free(meeting->far_cards);
    ls_free(meeting->visits);
    ls_free(meeting->guests);
    ls_free(meeting->polled);
    ls_free(meeting);
}

/* When all ranks are connected to rank 0, all have read what it published; when it fails, who still looks finds why. */
static void sweep(const tcp_meeting *meeting) {
    char key[LS_STORE_KEY_BYTES];
    tcp_cards_sweep(meeting->place, meeting->far_cards ? 2 : 1);
    if (meeting->tcp->rank != 0) return;
    key_of_secret(meeting->place, key);
    ls_store_delete(meeting->place->store, key, NULL);
}

/* Each pair wants TCP_CHANNELS descriptors: the soft limit is raised as far as the hard one lets it. */
static void raise_descriptor_limit(const tcp_group *tcp) {
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)tcp->world_size * TCP_CHANNELS * 4 + 1024;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

ls_status tcp_meet(tcp_group *tcp, const backend_place *place) {
    tcp_meeting *meeting = ls_alloc(sizeof *meeting);
    if (!meeting) {
        ls_fail_within(LS_ERR_MEMORY, "rank %d", rank_name(place->names, place->rank));
        return tcp_cards_withdraw(place, LS_ERR_MEMORY);
    }
    meeting->tcp = tcp;
    meeting->place = place;
    raise_descriptor_limit(tcp);
    ls_status status = within_rank(meeting, prepare(meeting));
    ls_live_lock();
    tcp->meeting = meeting;
    ls_live_unlock();
    if (status == LS_OK) status = fetch_credentials(meeting);
    if (status == LS_OK) status = exchange(meeting);
    if (status == LS_OK) status = connect_all(meeting);
    ls_error outcome; /* what clean-up meets matters less */
    ls_error_capture(&outcome, status);
    if (status == LS_OK)
        tcp_cards_forget_failure(place);
    else
        tcp_cards_withdraw(place, status);
    sweep(meeting);
    dissolve(meeting);
    return ls_error_raise(&outcome);
}
