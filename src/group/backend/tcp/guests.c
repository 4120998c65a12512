/* guests.c: who connects to us, and proves that it is a higher rank of this group; or does not, and is turned away.
 * A guest that says nothing costs nobody time: all are served as their bytes come. */
#include "group/backend/tcp/meeting.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS (10 * LS_NS_PER_S)
/* When the room is full, who has said nothing for so long makes way: strangers, then, since all of ours fit in. One
 * of ours that is slower comes again. */
#define SHORT_PATIENCE_NS (LS_NS_PER_S / 10)
#define ACCEPTS_AT_ONCE 32

/* Once: a port scanner must not fill the log. Who hangs up again may be one of ours that has given up. */
static void turn_away(tcp_meeting *meeting, const tcp_guest *guest, ls_log_level level, const char *why) {
    if (meeting->has_turned_away) return;
    meeting->has_turned_away = level == LS_LOG_WARNING;
    store_address address = {.bytes = sizeof address.socket};
    char who[STORE_ADDRESS_TEXT_BYTES] = "someone";
    if (getpeername(guest->socket, (struct sockaddr *)&address.socket, &address.bytes) == 0)
        store_address_describe(&address, who);
    ls_log(level, "%s connected and was turned away: %s; others like it will be too, without a word", who, why);
}

static void forget(tcp_meeting *meeting, int which) {
    meeting->guest_count--;
    memmove(&meeting->guests[which], &meeting->guests[which + 1],
            (size_t)(meeting->guest_count - which) * sizeof *meeting->guests);
}

static void dismiss(tcp_meeting *meeting, int which) {
    tcp_tls_end(&meeting->guests[which].tls);
    ls_live_lock();
    close(meeting->guests[which].socket);
    forget(meeting, which);
    ls_live_unlock();
}

/* Whether the proved guest is one that we wait for. */
static ls_status find_fault(const tcp_meeting *meeting, const store_hello *hello) {
    if (hello->rank <= meeting->tcp->rank || hello->rank >= meeting->tcp->world_size)
        return ls_fail(LS_ERR_FORMAT, "it is no rank that connects to this one");
    if (hello->channel < 0 || hello->channel >= TCP_CHANNELS)
        return ls_fail(LS_ERR_FORMAT, "it asks for a connection that there is not");
    return LS_OK;
}

/* The guest is a rank that we wait for: its connection is the group's. */
static void seat(tcp_meeting *meeting, int which) {
    const tcp_guest guest = meeting->guests[which];
    ls_live_lock();
    forget(meeting, which);
    tcp_meeting_take(meeting, guest.verifier.hello.rank, guest.verifier.hello.channel, guest.socket, guest.tls);
    ls_live_unlock();
    ls_point("tcp.meeting.connected");
}

static ls_status begin_tls(tcp_meeting *meeting, tcp_guest *guest) {
    if (!meeting->tcp->tls) return LS_OK;
    LS_TRY(tcp_tls_begin(&guest->tls, meeting->tcp->tls, guest->socket, true, &meeting->own, &guest->verifier.greeting,
                         &guest->verifier.hello));
    return LS_END;
}

/* Hears who it is. LS_OK: it is to be seated; LS_END: something is still to come. */
static ls_status go_on(tcp_meeting *meeting, tcp_guest *guest) {
    if (guest->tls) return tcp_tls_step(guest->tls);
    LS_TRY(store_verifier_step(&guest->verifier, guest->socket, &meeting->own));
    LS_TRY(find_fault(meeting, &guest->verifier.hello));
    LS_TRY(store_verifier_admit(&guest->verifier, guest->socket));
    return begin_tls(meeting, guest);
}

/* Returns whether the guest is one still. */
static bool receive(tcp_meeting *meeting, int which) {
    tcp_guest *guest = &meeting->guests[which];
    const ls_status status = go_on(meeting, guest);
    if (status == LS_END) return true;
    if (status == LS_OK) {
        seat(meeting, which);
    } else {
        turn_away(meeting, guest, status == LS_ERR_PEER_LOST ? LS_LOG_INFO : LS_LOG_WARNING, ls_last_error());
        dismiss(meeting, which);
    }
    return false;
}

static ls_status welcome(tcp_meeting *meeting, int listener, int64_t now_ns) {
    for (int i = 0; i < ACCEPTS_AT_ONCE && meeting->guest_count < meeting->most_guests; i++) {
        tcp_guest *guest = &meeting->guests[meeting->guest_count];
        ls_live_lock();
        const int made = LS_SYSCALL(EMFILE, accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (made >= 0) {
            *guest = (tcp_guest){.socket = made, .since_ns = now_ns};
            meeting->guest_count++;
        }
        ls_live_unlock();
        /* Where no descriptor is left, a guest that goes gives one back; without guests nobody will. */
        if (made < 0 && errno == EMFILE && meeting->guest_count == 0)
            return ls_fail_errno(LS_ERR_IO, errno, "rank %d: cannot accept another connection",
                                 rank_name(meeting->tcp->names, meeting->tcp->rank));
        if (made < 0) return LS_OK; /* nobody is there, or the next turn tries again */
        store_socket_prepare(made);
        if (store_verifier_begin(&guest->verifier, made) != LS_OK) dismiss(meeting, meeting->guest_count - 1);
    }
    return LS_OK;
}

/* How long a guest may say nothing. */
static int64_t patience_ns(const tcp_meeting *meeting, int guests) {
    return guests < meeting->most_guests ? PATIENCE_NS : SHORT_PATIENCE_NS;
}

int tcp_guests_poll(const tcp_meeting *meeting, struct pollfd *polled, int64_t *wake_ns) {
    int count = 0;
    if (meeting->guest_count > 0) {
        /* The oldest comes first. */
        const int64_t over_ns = meeting->guests[0].since_ns + patience_ns(meeting, meeting->guest_count);
        if (over_ns < *wake_ns) *wake_ns = over_ns;
    }
    for (int i = 0; i < meeting->tcp->listener_count; i++)
        polled[count++] = (struct pollfd){
            .fd = meeting->guest_count < meeting->most_guests ? meeting->tcp->listeners[i] : -1, .events = POLLIN};
    for (int i = 0; i < meeting->guest_count; i++)
        polled[count++] = (struct pollfd){.fd = meeting->guests[i].socket, .events = POLLIN};
    return count;
}

ls_status tcp_guests_go_on(tcp_meeting *meeting, const struct pollfd *polled, int64_t now_ns) {
    const int listeners = meeting->tcp->listener_count, guests = meeting->guest_count;
    /* From the last one on, since whoever goes closes the gap. */
    for (int i = guests - 1; i >= 0; i--) {
        if (polled[listeners + i].revents && !receive(meeting, i)) continue;
        if (now_ns - meeting->guests[i].since_ns < patience_ns(meeting, guests)) continue;
        turn_away(meeting, &meeting->guests[i], LS_LOG_WARNING, "it said nothing");
        dismiss(meeting, i);
    }
    for (int i = 0; i < listeners; i++)
        if (polled[i].revents) LS_TRY(welcome(meeting, meeting->tcp->listeners[i], now_ns));
    return LS_OK;
}
