/* stream.c: calls over a stream.
 *
 * No thread serves the stream: callers do. Each sends its request, then waits for the answer with its id. One of the
 * waiting threads at a time is the reader: it sleeps on the socket and hands out answers to all; when its own is
 * there it gives the part up, and whoever still waits takes it. In the same way one thread at a time is the sender.
 * The server never stops reading, so a sender needs no reader to get on. */
#include "store/stream.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A knock that finds the queue full comes again after a moment, as no event tells of room in it. */
enum { CANCEL_LIMIT_MS = 1000, KNOCK_AGAIN_MS = 5 };

/* --- parts and failures ------------------------------------------------------------------------------------------- */

/* Remembers the first failure of the stream for all callers, and returns it. */
static ls_status fail_stream(stream_store *store, ls_status status) {
    if (status == LS_ERR_PEER_LOST)
        ls_fail(status, "%s is gone, and its store with it; this job cannot go on", store->head.server);
    ls_mutex_lock(&store->lock);
    if (store->failure.status == LS_OK) ls_error_capture(&store->failure, status);
    ls_mutex_unlock(&store->lock);
    ls_word_advance(&store->changed);
    return status;
}

static void give_up(stream_store *store, bool *part) {
    ls_mutex_lock(&store->lock);
    *part = false;
    ls_mutex_unlock(&store->lock);
    ls_word_advance(&store->changed);
}

static ls_status wait_for_socket(stream_store *store, short events, int64_t deadline_ns) {
    struct pollfd polled = {.fd = store->socket, .events = events};
    const int ready = ls_descriptors_wait(&polled, 1, deadline_ns);
    if (ready < 0) return fail_stream(store, ls_fail_errno(LS_ERR_IO, errno, "cannot wait for the store's connection"));
    return ready == 0 ? LS_ERR_TIMEOUT : LS_OK;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static ls_status take_sending(stream_store *store, int64_t deadline_ns) {
    for (bool is_in_time = true;;) {
        const uint32_t seen = atomic_load_explicit(&store->changed, memory_order_acquire);
        ls_mutex_lock(&store->lock);
        /* A stream that has failed fails every call with the first reason. */
        const ls_status status = ls_error_raise(&store->failure);
        const bool is_ours = status == LS_OK && !store->is_sending;
        if (is_ours) store->is_sending = true;
        ls_mutex_unlock(&store->lock);
        if (status != LS_OK || is_ours) return status;
        if (!is_in_time) return LS_ERR_TIMEOUT;
        is_in_time = ls_word_wait(&store->changed, seen, deadline_ns);
    }
}

static ls_status send_message(stream_store *store, store_message *message, int64_t deadline_ns) {
    LS_TRY(take_sending(store, deadline_ns));
    ls_status status;
    while ((status = store_message_send(message, store->socket)) == LS_END)
        if ((status = wait_for_socket(store, POLLOUT, deadline_ns)) != LS_OK) break;
    /* Half a frame leaves the stream useless; an unsent one harms nobody. */
    if (status == LS_ERR_TIMEOUT && message->sent > 0)
        status = ls_fail(LS_ERR_ABORTED, "%s took only a part of a request in time", store->head.server);
    if (status != LS_OK && (message->sent > 0 || status == LS_ERR_PEER_LOST)) status = fail_stream(store, status);
    give_up(store, &store->is_sending);
    return status;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

/* Copies an answer to where its caller wants it. Descriptors that do not fit are an answer to something else. */
static void fill(pending *call, const store_frame *frame) {
    const store_head *head = &frame->head;
    store_reply *reply = call->reply;
    call->is_answered = true;
    if (head->code != LS_OK) {
        ls_fail((ls_status)head->code, "%.*s", (int)head->value_bytes, (const char *)frame->value);
        ls_error_capture(&call->outcome, (ls_status)head->code);
        return;
    }
    store_reply_fill(reply, head->number, frame->value, head->value_bytes);
    if (head->descriptor_count > 0)
        memcpy(reply->descriptors, frame->descriptors, sizeof(int) * head->descriptor_count);
    reply->descriptor_count = head->descriptor_count;
}

/* Hands an answer to its caller; one whose caller no longer waits is dropped. */
static void hand_out(stream_store *store, const store_frame *frame) {
    if (frame->head.code == STORE_GOODBYE) {
        fail_stream(store, ls_fail(LS_ERR_ABORTED, "%s was closed by its process", store->head.server));
        return;
    }
    ls_mutex_lock(&store->lock);
    pending *call = store->calls;
    while (call && call->id != frame->head.id) call = call->next;
    const bool fits = call && !call->is_answered && frame->head.descriptor_count <= call->reply->descriptor_count;
    if (fits) fill(call, frame);
    ls_mutex_unlock(&store->lock);
    if (!fits)
        for (int i = 0; i < frame->head.descriptor_count; i++) close(frame->descriptors[i]);
    ls_word_advance(&store->changed);
}

/* As reader: until the own answer is there. Only the reader writes is_answered, so it may read it without the lock. */
static ls_status read_answers(stream_store *store, const pending *own, int64_t deadline_ns) {
    while (!own->is_answered) {
        LS_TRY(wait_for_socket(store, POLLIN, deadline_ns));
        ls_status status = store_inbox_receive(&store->inbox, store->socket);
        store_frame frame;
        while (status == LS_OK && (status = store_inbox_next(&store->inbox, &frame)) == LS_OK) hand_out(store, &frame);
        if (status != LS_END) return fail_stream(store, status);
    }
    return LS_OK;
}

static ls_status await(stream_store *store, pending *own, int64_t deadline_ns) {
    for (bool is_in_time = true;;) {
        const uint32_t seen = atomic_load_explicit(&store->changed, memory_order_acquire);
        ls_mutex_lock(&store->lock);
        const bool is_over = own->is_answered || store->failure.status != LS_OK;
        const ls_status status = ls_error_raise(own->is_answered ? &own->outcome : &store->failure);
        const bool is_reader = !is_over && !store->is_reading;
        /* Whoever is first reads for all: no thread of its own, and no wake on the way of a caller that is alone. */
        if (is_reader) store->is_reading = true;
        ls_mutex_unlock(&store->lock);
        if (is_over) return status;
        if (!is_in_time) {
            if (is_reader) give_up(store, &store->is_reading);
            return LS_ERR_TIMEOUT;
        }
        if (is_reader) {
            is_in_time = read_answers(store, own, deadline_ns) != LS_ERR_TIMEOUT;
            give_up(store, &store->is_reading);
        } else {
            is_in_time = ls_word_wait(&store->changed, seen, deadline_ns);
        }
    }
}

/* --- a call ------------------------------------------------------------------------------------------------------- */

static void add_pending(stream_store *store, pending *call) {
    ls_mutex_lock(&store->lock);
    /* Never given twice while both could be under way: an answer finds its own caller. */
    call->id = store->next_id++;
    call->next = store->calls;
    store->calls = call;
    ls_mutex_unlock(&store->lock);
}

static void remove_pending(stream_store *store, const pending *call) {
    ls_mutex_lock(&store->lock);
    pending **link = &store->calls;
    while (*link != call) link = &(*link)->next;
    *link = call->next;
    ls_mutex_unlock(&store->lock);
}

/* The request of a wait that expired is withdrawn, so that expired waits do not pile up with the server. Best
 * effort: an answer that comes all the same is dropped. */
static void withdraw(stream_store *store, uint32_t id) {
    store_message message = {.head = {.magic = STORE_FRAME_MAGIC, .id = id, .code = STORE_CANCEL}};
    (void)send_message(store, &message, ls_deadline_after_ms(CANCEL_LIMIT_MS));
}

static ls_status stream_call(ls_store *base, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    stream_store *store = (stream_store *)base;
    pending call = {.reply = reply};
    add_pending(store, &call);
    store_message message = {.head = {.magic = STORE_FRAME_MAGIC,
                                      .id = call.id,
                                      .code = (int32_t)request->operation,
                                      .key_bytes = (uint16_t)(*request->key ? strlen(request->key) + 1 : 0),
                                      .descriptor_count = (uint16_t)request->descriptor_count,
                                      .expected_bytes = (uint32_t)request->expected_bytes,
                                      .value_bytes = (uint32_t)request->bytes,
                                      .number = request->number},
                             .parts = {request->key, request->expected, request->value},
                             .descriptors = request->descriptors};
    ls_status status = send_message(store, &message, deadline_ns);
    const bool was_sent = status == LS_OK;
    if (was_sent) status = await(store, &call, deadline_ns);
    /* Before the cancel: an answer that comes from now on finds nobody, and is dropped. */
    remove_pending(store, &call);
    if (was_sent && status == LS_ERR_TIMEOUT) withdraw(store, call.id);
    return status;
}

/* A forked child keeps no end of the stream: the server would take its parent for alive. */
static void forked(ls_live *live) {
    stream_store *store = LS_LIVE_OWNER(stream_store, live);
    if (store->socket >= 0) close(store->socket);
    store->socket = -1;
}

/* A death looks like a closed stream: so an orderly end is said. Best effort, and never waited for. */
static void say_goodbye(stream_store *store) {
    store_message message = {.head = {.magic = STORE_FRAME_MAGIC, .code = STORE_GOODBYE}};
    if (store->socket >= 0 && store->failure.status == LS_OK) (void)store_message_send(&message, store->socket);
}

static void stream_close(ls_store *base) {
    stream_store *store = (stream_store *)base;
    if (store->head.owner == getpid()) say_goodbye(store);
    ls_live_delist(&store->live);
    store_inbox_close(&store->inbox);
    if (store->socket >= 0) close(store->socket);
    ls_mutex_destroy(&store->lock);
    ls_free(store);
}

static const store_backend stream_backend = {.call = stream_call, .close = stream_close};

ls_status stream_create(stream_store **created, const char *server, ...) {
    *created = NULL;
    stream_store *store = ls_alloc(sizeof *store);
    if (!store) return LS_ERR_MEMORY;
    store->socket = -1;
    ls_mutex_init(&store->lock);
    store_init(&store->head, &stream_backend);
    va_list arguments;
    va_start(arguments, server);
    vsnprintf(store->head.server, sizeof store->head.server, server, arguments);
    va_end(arguments);
    /* Before there is a socket, so that a forked child never has one that is not listed. */
    store->live.forked = forked;
    const ls_status status = ls_live_enlist(&store->live);
    if (status == LS_OK)
        *created = store;
    else
        stream_close(&store->head);
    return status;
}

/* --- ways to a server of this host -------------------------------------------------------------------------------- */

static ls_status fail_unanswered(const stream_store *store) {
    return ls_fail(LS_ERR_TIMEOUT, "%s took no connection to its store in time; is it stopped?", store->head.server);
}

ls_status stream_connect_by_door(stream_store *store, int door, int64_t deadline_ns) {
    int ends[2];
    const int failed = LS_SYSCALL(EMFILE, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a socket pair for the store");
    /* Ours from here on: stream_close closes it, whatever comes. */
    store->socket = ends[0];
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec vector = {.iov_base = "+", .iov_len = 1};
    struct msghdr header = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(item), &ends[1], sizeof(int));

    /* The door holds a few hundred knocks; a launcher that is stopped lets them pile up. */
    ls_status status = LS_OK;
    while (LS_SYSCALL(ENOBUFS, sendmsg(door, &header, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0) {
        struct pollfd polled = {.fd = door, .events = POLLOUT};
        if (errno == EINTR) continue;
        if (errno == EAGAIN && ls_descriptors_wait(&polled, 1, deadline_ns) > 0) continue;
        if (errno == EPIPE || errno == ECONNRESET)
            status = ls_fail(LS_ERR_PEER_LOST, "%s is gone, and its store with it", store->head.server);
        else if (errno == EAGAIN)
            status = fail_unanswered(store);
        else
            status = ls_fail_errno(LS_ERR_IO, errno, "cannot reach %s", store->head.server);
        break;
    }
    close(ends[1]);
    return status;
}

ls_status stream_connect_by_name(stream_store *store, const char *name, int64_t deadline_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(name);
    if (length + 1 > sizeof address.sun_path)
        return ls_fail(LS_ERR_FORMAT, "the name of an abstract socket has at most %zu characters, this one %zu",
                       sizeof address.sun_path - 1, length);
    memcpy(address.sun_path + 1, name, length);
    const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    store->socket = LS_SYSCALL(EMFILE, socket(AF_UNIX, type, 0));
    if (store->socket < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a socket for the store");
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    while (connect(store->socket, (struct sockaddr *)&address, bytes) != 0) {
        if (errno != EAGAIN)
            return ls_fail_errno(LS_ERR_PEER_LOST, errno,
                                 "%s cannot be reached: its abstract socket (same network namespace?) does not answer",
                                 store->head.server);
        /* Those who wait fill the queue, and no event tells of a place in it. */
        if (ls_now_ns() >= deadline_ns) return fail_unanswered(store);
        ls_sleep_until(ls_now_ns() + KNOCK_AGAIN_MS * LS_NS_PER_MS);
    }
    return LS_OK;
}
