/* server.c: connections, the table of keys, and requests that wait for a key.
 *
 * The loop calls; nothing here blocks. Each frame is answered at once, or parked until its key is set. Bytes that are no
 * frame, or a client that lets answers pile up, end that connection and no other.
 *
 * Life: a connection is closed by connection_close and freed by the loop once its handle is closed; the server goes with
 * the last of its handles.                                                                                            */
#include "launch/server.h"

#include "store/table.h"
#include "store/wire.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Answers that wait for one client to read: more than any honest one leaves. */
enum { MOST_UNREAD_BYTES = 64 << 20 };

/* An answer under way. The value lies behind it; descriptors are its own. */
typedef struct answer_item {
    struct answer_item *next;
    store_message message;
    int descriptors[STORE_MAX_DESCRIPTORS];
} answer_item;

/* What is watched: the listening socket, a door, or a connection. */
typedef struct peer {
    uv_poll_t poll;
    struct launch_server *server;
    struct peer *next;
    int socket;
    bool is_closing;
    /* connections alone */
    store_inbox inbox;
    answer_item *first_answer, **last_answer;
    size_t unread_bytes;
} peer;

/* A request that waits for its key. The key lies behind it. */
typedef struct parked {
    struct parked *next;
    peer *from;
    uint32_t id;
    store_request request;
} parked;

struct launch_server {
    uv_loop_t *loop;
    store_table *table;
    parked *waiting;
    peer *peers;
    int handles; /* not closed yet */
    bool is_closing;
    char name[LAUNCH_NAME_BYTES];
};

/* --- life of handles ----------------------------------------------------------------------------------------------- */

static void free_if_done(launch_server *server) {
    if (!server->is_closing || server->handles > 0) return;
    store_table_close(&server->table);
    ls_free(server);
}

static void answer_free(answer_item *item) {
    for (int i = 0; i < item->message.head.descriptor_count; i++) close(item->descriptors[i]);
    ls_free(item);
}

static void drop_answer(peer *from) {
    answer_item *item = from->first_answer;
    from->first_answer = item->next;
    if (!from->first_answer) from->last_answer = &from->first_answer;
    from->unread_bytes -= item->message.head.value_bytes;
    answer_free(item);
}

static void when_closed(uv_handle_t *handle) {
    peer *closed = handle->data;
    launch_server *server = closed->server;
    close(closed->socket);
    ls_free(closed);
    server->handles--;
    free_if_done(server);
}

static void forget_parked(launch_server *server, const peer *from, const uint32_t *id) {
    for (parked **link = &server->waiting; *link;) {
        parked *each = *link;
        if (each->from != from || (id && each->id != *id)) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        ls_free(each);
    }
}

static void peer_close(peer *closing) {
    if (closing->is_closing) return;
    closing->is_closing = true;
    launch_server *server = closing->server;
    peer **link = &server->peers;
    while (*link != closing) link = &(*link)->next;
    *link = closing->next;
    forget_parked(server, closing, NULL);
    while (closing->first_answer) drop_answer(closing);
    store_inbox_close(&closing->inbox);
    uv_close((uv_handle_t *)&closing->poll, when_closed);
}

/* Watches `socket`, which is the server's from now on, also on an error. */
static ls_status watch(launch_server *server, int socket, uv_poll_cb ready) {
    peer *made = ls_alloc(sizeof *made);
    if (!made) {
        close(socket);
        return LS_ERR_MEMORY;
    }
    const int failure = ls_fault(LS_FAULT_SYSCALL) ? UV_ENOMEM : uv_poll_init(server->loop, &made->poll, socket);
    if (failure) {
        close(socket);
        ls_free(made);
        return ls_fail(LS_ERR_IO, "the launcher cannot watch a socket: %s", uv_strerror(failure));
    }
    made->poll.data = made;
    made->server = server;
    made->socket = socket;
    made->last_answer = &made->first_answer;
    made->next = server->peers;
    server->peers = made;
    server->handles++;
    uv_poll_start(&made->poll, UV_READABLE, ready);
    return LS_OK;
}

/* --- answering ----------------------------------------------------------------------------------------------------- */

static void connection_ready(uv_poll_t *poll, int failure, int events);

/* Sends what the socket takes now, and has the loop say when it takes more. */
static void flush(peer *to) {
    while (to->first_answer) {
        const ls_status status = store_message_send(&to->first_answer->message, to->socket);
        if (status == LS_END) break;
        if (status != LS_OK) {
            peer_close(to);
            return;
        }
        drop_answer(to);
    }
    uv_poll_start(&to->poll, UV_READABLE | (to->first_answer ? UV_WRITABLE : 0), connection_ready);
}

/* An answer ready to be sent, with copies of all that it carries; NULL when there is no room for it. */
static answer_item *answer_create(uint32_t id, ls_status status, const store_answer *answer) {
    answer_item *item = ls_alloc(sizeof *item + answer->bytes);
    if (!item) return NULL;
    item->message.head = (store_head){.magic = STORE_FRAME_MAGIC,
                                      .id = id,
                                      .code = status,
                                      .value_bytes = (uint32_t)answer->bytes,
                                      .number = answer->number};
    item->message.parts[2] = item + 1;
    item->message.descriptors = item->descriptors;
    if (answer->bytes > 0) memcpy(item + 1, answer->value, answer->bytes);
    for (int i = 0; i < answer->descriptor_count; i++) {
        const int copy =
            ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : fcntl(answer->descriptors[i], F_DUPFD_CLOEXEC, 3);
        if (copy < 0) {
            ls_fail_errno(LS_ERR_IO, errno, "the launcher cannot duplicate a descriptor");
            answer_free(item);
            return NULL;
        }
        item->descriptors[item->message.head.descriptor_count++] = copy;
    }
    return item;
}

static answer_item *sentence_create(uint32_t id, ls_status status) {
    return answer_create(id, status, &(store_answer){.value = ls_last_error(), .bytes = strlen(ls_last_error())});
}

/* Queues the answer to a request; with a failing status it is the thread's last sentence. */
static void respond(peer *to, uint32_t id, ls_status status, const store_answer *answer) {
    if (to->is_closing) return;
    answer_item *item = NULL;
    if (to->unread_bytes <= MOST_UNREAD_BYTES) {
        if (status == LS_OK) item = answer_create(id, status, answer);
        if (!item) item = sentence_create(id, status == LS_OK ? LS_ERR_IO : status);
    }
    if (!item) {
        /* Without its answer a client would wait for ever: it is told by the end of its connection. */
        ls_log(LS_LOG_WARNING, "store: a connection is closed, since its answers (%zu bytes) find no room",
               to->unread_bytes);
        peer_close(to);
        return;
    }
    *to->last_answer = item;
    to->last_answer = &item->next;
    to->unread_bytes += item->message.head.value_bytes;
    flush(to);
}

/* --- requests ------------------------------------------------------------------------------------------------------ */

static void park(peer *from, uint32_t id, const store_request *request) {
    const size_t key_bytes = strlen(request->key) + 1;
    parked *made = ls_alloc(sizeof *made + key_bytes);
    if (!made) {
        respond(from, id, LS_ERR_MEMORY, &(store_answer){0});
        return;
    }
    memcpy(made + 1, request->key, key_bytes);
    *made = (parked){.next = from->server->waiting, .from = from, .id = id, .request = *request};
    made->request.key = (const char *)(made + 1);
    from->server->waiting = made;
}

/* Answers those who wait for `key`. An answer may end a connection, and with it others that are parked: so start anew. */
static void wake(launch_server *server, const char *key) {
    for (parked **link = &server->waiting; *link;) {
        parked *each = *link;
        store_answer answer;
        if (strcmp(each->request.key, key) != 0) {
            link = &each->next;
            continue;
        }
        const ls_status status = store_table_apply(server->table, &each->request, &answer);
        if (status == LS_END) return;
        *link = each->next;
        respond(each->from, each->id, status, &answer);
        ls_free(each);
        link = &server->waiting;
    }
}

static void serve(peer *from, const store_frame *frame) {
    launch_server *server = from->server;
    store_request request;
    if (store_frame_request(frame, &request) != LS_OK) {
        for (int i = 0; i < frame->head.descriptor_count; i++) close(frame->descriptors[i]);
        peer_close(from);
        return;
    }
    if (frame->head.code == STORE_CANCEL) {
        forget_parked(server, from, &frame->head.id);
        return;
    }
    /* An answer may end this connection, and its bytes go with it. */
    char key[LS_STORE_KEY_BYTES];
    snprintf(key, sizeof key, "%s", request.key);
    store_answer answer;
    const ls_status status = store_table_apply(server->table, &request, &answer);
    if (status == LS_END) {
        park(from, frame->head.id, &request);
        return;
    }
    if (status != LS_OK)
        for (int i = 0; i < request.descriptor_count; i++) close(request.descriptors[i]);
    respond(from, frame->head.id, status, &answer);
    if (status == LS_OK && store_operation_sets(request.operation)) wake(server, key);
}

/* Reads once, then serves all whole frames: one busy client does not keep the loop from others. */
static void receive(peer *from) {
    ls_status status = store_inbox_receive(&from->inbox, from->socket);
    if (status == LS_END) return;
    store_frame frame;
    while (status == LS_OK && !from->is_closing && (status = store_inbox_next(&from->inbox, &frame)) == LS_OK)
        serve(from, &frame);
    if (from->is_closing) return;
    if (status == LS_ERR_FORMAT) ls_log(LS_LOG_WARNING, "store: a connection is closed: %s", ls_last_error());
    if (status != LS_END) peer_close(from);
}

static void connection_ready(uv_poll_t *poll, int failure, int events) {
    peer *ready = poll->data;
    if (failure) {
        peer_close(ready);
        return;
    }
    if (events & UV_WRITABLE) flush(ready);
    if ((events & UV_READABLE) && !ready->is_closing) receive(ready);
}

/* --- ways in ------------------------------------------------------------------------------------------------------- */

static void door_ready(uv_poll_t *poll, int failure, int events) {
    (void)events;
    peer *door = poll->data;
    char byte, control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr header = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    const ssize_t received = failure ? 0 : recvmsg(door->socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
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
        const bool is_stream = getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
        if (is_stream)
            (void)watch(door->server, descriptor, connection_ready);
        else
            close(descriptor);
    }
}

static void listener_ready(uv_poll_t *poll, int failure, int events) {
    (void)failure;
    (void)events;
    const peer *listener = poll->data;
    const int socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) return;
    struct ucred user = {0};
    socklen_t bytes = sizeof user;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0 || (user.uid != geteuid() && user.uid != 0)) {
        ls_log(LS_LOG_WARNING, "store: process %d of user %u knocked and was turned away: this job is of user %u",
               (int)user.pid, (unsigned)user.uid, (unsigned)geteuid());
        close(socket);
        return;
    }
    (void)watch(listener->server, socket, connection_ready);
}

static ls_status draw_name(char *name) {
    unsigned char random[16];
    const ssize_t drawn = ls_fault(LS_FAULT_SYSCALL) ? (errno = EAGAIN, -1) : getrandom(random, sizeof random, 0);
    if (drawn != (ssize_t)sizeof random) return ls_fail_errno(LS_ERR_IO, errno, "cannot draw random bytes");
    size_t used = (size_t)snprintf(name, LAUNCH_NAME_BYTES, "lockstep-");
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)snprintf(name + used, LAUNCH_NAME_BYTES - used, "%02x", random[i]);
    return LS_OK;
}

static ls_status listen_on_name(launch_server *server) {
    LS_TRY(draw_name(server->name));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(server->name);
    memcpy(address.sun_path + 1, server->name, length);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    const int listener = ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1)
                                                    : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the store's socket");
    if ((ls_fault(LS_FAULT_SYSCALL) && (errno = EADDRINUSE)) ||
        bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, SOMAXCONN) != 0) {
        const int failure = errno;
        close(listener);
        return ls_fail_errno(LS_ERR_IO, failure, "cannot listen on the store's abstract socket");
    }
    return watch(server, listener, listener_ready);
}

ls_status launch_server_open(launch_server **opened, uv_loop_t *loop) {
    *opened = NULL;
    launch_server *server = ls_alloc(sizeof *server);
    if (!server) return LS_ERR_MEMORY;
    server->loop = loop;
    server->table = store_table_create();
    const ls_status status = server->table ? listen_on_name(server) : LS_ERR_MEMORY;
    if (status != LS_OK)
        launch_server_close(&server);
    else
        *opened = server;
    return status;
}

const char *launch_server_name(const launch_server *server) {
    return server->name;
}

ls_status launch_server_add_door(launch_server *server, int *worker_end) {
    int ends[2];
    const int failed =
        ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
    if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the socket that a worker inherits");
    const ls_status status = watch(server, ends[0], door_ready);
    if (status != LS_OK)
        close(ends[1]);
    else
        *worker_end = ends[1];
    return status;
}

void launch_server_close(launch_server **closing) {
    launch_server *server = *closing;
    *closing = NULL;
    if (!server) return;
    server->is_closing = true;
    while (server->peers) peer_close(server->peers);
    free_if_done(server);
}
