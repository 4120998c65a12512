/* ways_in.c: how connections come to the server.
 *
 *   a door        a socket that a worker inherited: ends of fresh socket pairs come through it
 *   a name        an abstract Unix socket, for processes of our own user (the kernel tells who they are)
 *   a TCP socket  for whoever can reach it
 *
 * Where the server has credentials, who comes over the last two proves to know them before a frame is read. Who
 * cannot is turned away, said once in the log, and the others are served on. A connection that says nothing is
 * closed after a while, so that strangers do not use up descriptors. */
#include "store/address.h"
#include "store/connection.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A thousand clients that come at once are taken in batches, so that those who are in are answered in between. */
enum { SWEEP_MS = 1000, SILENCE_MS = 20000, ACCEPTS_AT_ONCE = 64, MANY_DESCRIPTORS = 65536 };

/* --- the door ----------------------------------------------------------------------------------------------------- */

static void door_ready(uv_poll_t *poll, int failure, int events) {
    (void)events;
    peer *door = poll->data;
    char byte, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr header = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    const ssize_t received = failure ? 0 : recvmsg(door->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    /* An orderly end says nothing of the streams that came through it. */
    if (received <= 0) {
        peer_close(door); /* the worker and all that share its socket are gone */
        return;
    }
    /* Padding may let a second descriptor through: whatever comes has to be seen. */
    const struct cmsghdr *item = CMSG_FIRSTHDR(&header);
    if (!item || item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) return;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
        int descriptor = -1, type = 0;
        socklen_t bytes = sizeof type;
        memcpy(&descriptor, CMSG_DATA(item) + i * sizeof(int), sizeof descriptor);
        /* Anything may come through a door that children inherit: what is no stream is not read. */
        const bool is_stream = getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
        if (is_stream) /* On a failure the descriptor is closed: the worker finds its stream at an end. */
            (void)peer_watch(door->server, descriptor, connection_ready, NULL);
        else
            close(descriptor);
    }
}

ls_status store_server_add_door(store_server *server, int *worker_end) {
    int ends[2];
    const int failed = LS_SYSCALL(EMFILE, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the socket that a worker inherits");
    const ls_status status = peer_watch(server, ends[0], door_ready, NULL);
    if (status != LS_OK)
        close(ends[1]);
    else
        *worker_end = ends[1];
    return status;
}

ls_status store_server_add_connection(store_server *server, int socket) {
    return peer_watch(server, socket, connection_ready, NULL);
}

/* --- proofs ------------------------------------------------------------------------------------------------------- */

static void describe(const peer *from, char *text, size_t bytes) {
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN + 32], port[16];
    const bool is_known = getpeername(from->socket, (struct sockaddr *)&address, &length) == 0 &&
                          address.ss_family != AF_UNIX &&
                          getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                                      NI_NUMERICHOST | NI_NUMERICSERV) == 0;
    snprintf(text, bytes, "%s%s%s", is_known ? host : "a process of this host", is_known ? " port " : "",
             is_known ? port : "");
}

/* Once: a port scanner must not fill the log. */
static void turn_away(peer *from, const char *why) {
    store_server *server = from->server;
    if (!server->has_turned_away) {
        char who[128];
        describe(from, who, sizeof who);
        ls_log(LS_LOG_WARNING, "store: %s was turned away: %s; others like it will be too, without a word", who, why);
    }
    server->has_turned_away = true;
    peer_close(from);
}

/* Reads the hello and not a byte more. */
static void unproved_ready(uv_poll_t *poll, int failure, int events) {
    (void)events;
    peer *from = poll->data;
    store_server *server = from->server;
    const ls_status status =
        failure ? LS_ERR_PEER_LOST : store_verifier_step(&from->proof, from->socket, &server->credentials);
    if (status == LS_END) return;
    /* Who goes again is no stranger to be told of: port scanners do, and so do ranks that give up. */
    if (status == LS_ERR_PEER_LOST || status == LS_ERR_IO) {
        peer_close(from);
        return;
    }
    if (status != LS_OK) {
        turn_away(from, ls_last_error());
        return;
    }
    /* A member from here on: its silence is no fault, and its end is a death. */
    from->is_unproved = false;
    server_welcome(server, &from->proof.hello);
    if (store_verifier_admit(&from->proof, from->socket) == LS_OK)
        /* What came behind the hello is in the socket still: from here on frames are read. */
        uv_poll_start(&from->poll, UV_READABLE, connection_ready);
    else
        peer_close(from);
}

static void welcome(store_server *server, int socket) {
    peer *made = NULL;
    if (!server->asks_for_proof) {
        (void)peer_watch(server, socket, connection_ready, NULL);
        return;
    }
    if (peer_watch(server, socket, unproved_ready, &made) != LS_OK) return;
    made->is_unproved = true;
    if (store_verifier_begin(&made->proof, socket) != LS_OK) peer_close(made);
}

/* --- listening ---------------------------------------------------------------------------------------------------- */

/* Whether a member of our own user (or root) is at the other end. */
static bool is_own_user(int socket) {
    struct ucred user = {0};
    socklen_t bytes = sizeof user;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) == 0 && (user.uid == geteuid() || user.uid == 0))
        return true;
    ls_log(LS_LOG_WARNING, "store: process %d of user %u knocked and was turned away: this job is of user %u",
           (int)user.pid, (unsigned)user.uid, (unsigned)geteuid());
    return false;
}

/* Thousands of clients need as many descriptors: the soft limit goes up when it is met, as far as the hard one lets
 * it. */
static bool raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    limit.rlim_cur =
        limit.rlim_max < MANY_DESCRIPTORS || limit.rlim_cur >= MANY_DESCRIPTORS ? limit.rlim_max : MANY_DESCRIPTORS;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* The next who knocks; -1 for none. Out of descriptors the listener rests until the sweep. */
static int accept_next(peer *listener) {
    int socket;
    do socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (socket < 0 && (errno == EINTR || (errno == EMFILE && raise_descriptor_limit())));
    if (socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        ls_log(LS_LOG_WARNING, "store: no descriptor is left for another client; raise the limit (ulimit -n)");
        if (listener->server->has_sweep) uv_poll_stop(&listener->poll);
    }
    return socket;
}

static void name_ready(uv_poll_t *poll, int failure, int events) {
    (void)failure;
    (void)events;
    peer *listener = poll->data;
    const int socket = accept_next(listener);
    if (socket < 0) return;
    /* The kernel tells who is at the other end; what is said there need not be read. */
    if (is_own_user(socket))
        welcome(listener->server, socket);
    else
        close(socket);
}

static void listener_ready(uv_poll_t *poll, int failure, int events) {
    (void)failure;
    (void)events;
    peer *listener = poll->data;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        const int socket = accept_next(listener);
        if (socket < 0) return;
        store_socket_prepare(socket);
        welcome(listener->server, socket);
    }
}

/* Now and then: closes who has said nothing for long, and lets listeners that rest try again. */
static void sweep(uv_timer_t *timer) {
    store_server *server = timer->data;
    const uint64_t now_ms = uv_now(server->loop);
    for (peer *each = server->peers; each;) {
        peer *following = each->next;
        if (each->is_unproved && now_ms - each->since_ms > SILENCE_MS)
            peer_close(each); /* others stay where they are: a loss is noted for proved ones alone */
        else if (each->poll.poll_cb == listener_ready || each->poll.poll_cb == name_ready)
            uv_poll_start(&each->poll, UV_READABLE, each->poll.poll_cb);
        each = following;
    }
}

static void start_sweep(store_server *server) {
    if (server->has_sweep) return;
    server->has_sweep = true;
    server->handles++;
    uv_timer_init(server->loop, &server->sweep);
    server->sweep.data = server;
    uv_timer_start(&server->sweep, sweep, SWEEP_MS, SWEEP_MS);
    /* It alone does not keep the loop running. */
    uv_unref((uv_handle_t *)&server->sweep);
}

ls_status store_server_listen_on(store_server *server, int listener) {
    start_sweep(server);
    return peer_watch(server, listener, listener_ready, NULL);
}

/* 128 random bits, so that it cannot be guessed, nor meet another job's: the abstract namespace is the whole host's.
 * */
static ls_status draw_name(char *name) {
    unsigned char random[16];
    const ssize_t drawn = LS_SYSCALL(EAGAIN, getrandom(random, sizeof random, 0));
    if (drawn != (ssize_t)sizeof random) return ls_fail_errno(LS_ERR_IO, errno, "cannot draw random bytes");
    size_t used = (size_t)snprintf(name, STORE_NAME_BYTES, "lockstep-");
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)snprintf(name + used, STORE_NAME_BYTES - used, "%02x", random[i]);
    return LS_OK;
}

ls_status store_server_listen_on_name(store_server *server) {
    LS_TRY(draw_name(server->name));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(server->name);
    /* Behind a zero byte: no file, so nothing can be left over. */
    memcpy(address.sun_path + 1, server->name, length);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    const int listener = LS_SYSCALL(EMFILE, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (listener < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the store's socket");
    if ((ls_fault(LS_FAULT_SYSCALL) && (errno = EADDRINUSE)) ||
        bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, SOMAXCONN) != 0) {
        const int failure = errno;
        close(listener);
        return ls_fail_errno(LS_ERR_IO, failure, "cannot listen on the store's abstract socket");
    }
    if (server->asks_for_proof) start_sweep(server);
    return peer_watch(server, listener, name_ready, NULL);
}

const char *store_server_name(const store_server *server) {
    return server->name;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

ls_status store_server_open(store_server **opened, uv_loop_t *loop, const store_credentials *credentials) {
    *opened = NULL;
    store_server *server = ls_alloc(sizeof *server);
    if (!server) return LS_ERR_MEMORY;
    server->loop = loop;
    server->asks_for_proof = credentials != NULL;
    if (credentials) server->credentials = *credentials;
    server->table = store_table_create();
    if (!server->table) {
        store_server_close(&server);
        return LS_ERR_MEMORY;
    }
    *opened = server;
    return LS_OK;
}
