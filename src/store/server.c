/* server.c: connections, the table of keys, and requests that wait for a key.
 *
 * The loop calls; nothing here blocks. Each frame is answered at once, or parked until its key is set. Bytes that
 * are no frame, or a client that lets answers pile up, end that connection and no other. How connections come:
 * ways_in.c.
 *
 * A rank that said who it is (store/handshake.h) and whose connection ends without a goodbye has died: whoever waits
 * for a key is told, since it may be one that this rank would have set.
 *
 * Life: a connection is closed by peer_close and freed by the loop once its handle is closed; the server goes with
 * the last of its handles. */
#include "store/connection.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/live.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Answers that wait for one client to read: more than any honest one leaves. */
enum { MOST_UNREAD_BYTES = 64 << 20 };

/* --- life of handles ---------------------------------------------------------------------------------------------- */

/* The memory goes with the last handle: libuv calls back for each of them after it was closed. */
static void free_if_done(store_server *server) {
    if (!server->is_closing || server->handles > 0) return;
    store_table_close(&server->table);
    while (server->lost) {
        lost_rank *each = server->lost;
        server->lost = each->next;
        ls_free(each);
    }
    explicit_bzero(&server->credentials, sizeof server->credentials);
    ls_free(server);
}

void server_handle_closed(store_server *server) {
    server->handles--;
    free_if_done(server);
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
    store_server *server = closed->server;
    ls_free(closed);
    server_handle_closed(server);
}

static void forget_parked(store_server *server, const peer *from, const uint32_t *id) {
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

/* Whether it is a connection whose client has proved to be of the job, as a rank. */
static bool is_rank(const peer *judged) {
    return judged->proof.heard > 0 && !judged->is_unproved && judged->proof.hello.rank >= 0;
}

void peer_close(peer *closing) {
    if (closing->is_closing) return;
    closing->is_closing = true;
    store_server *server = closing->server;
    peer **link = &server->peers;
    while (*link != closing) link = &(*link)->next;
    forget_parked(server, closing, NULL);
    while (closing->first_answer) drop_answer(closing);
    store_inbox_close(&closing->inbox);
    const bool is_member = is_rank(closing);
    const bool is_lost = is_member && !closing->has_said_goodbye && !server->is_closing;
    const store_hello hello = closing->proof.hello;
    uv_close((uv_handle_t *)&closing->poll, when_closed);
    ls_live_lock();
    /* Under the lock, with the socket's close: a forked child walks this list. */
    *link = closing->next;
    close(closing->socket);
    ls_live_unlock();
    if (is_lost)
        store_server_lost(server, hello.rank, "rank %d (%s, process %d) is gone: its connection to the store has ended",
                          (int)hello.rank, hello.host, (int)hello.process);
    if (is_member) atomic_fetch_sub_explicit(&server->members, 1, memory_order_release);
}

ls_status peer_watch(store_server *server, int socket, uv_poll_cb ready, peer **watched) {
    peer *made = ls_alloc(sizeof *made);
    if (!made) {
        close(socket);
        return LS_ERR_MEMORY;
    }
    const int failure = ls_fault(LS_FAULT_SYSCALL) ? UV_ENOMEM : uv_poll_init(server->loop, &made->poll, socket);
    if (failure) {
        close(socket);
        ls_free(made);
        return ls_fail(LS_ERR_IO, "the store's server cannot watch a socket: %s", uv_strerror(failure));
    }
    made->poll.data = made;
    made->server = server;
    made->socket = socket;
    made->last_answer = &made->first_answer;
    /* How long a stranger may be silent is counted from here. */
    made->since_ms = uv_now(server->loop);
    ls_live_lock();
    made->next = server->peers;
    server->peers = made;
    ls_live_unlock();
    server->handles++;
    uv_poll_start(&made->poll, UV_READABLE, ready);
    if (watched) *watched = made;
    return LS_OK;
}

/* --- answering ---------------------------------------------------------------------------------------------------- */

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
    /* Asked for only while something waits: a socket is writable nearly always, and the loop would never sleep. */
    const bool waits = to->first_answer != NULL;
    if (waits == to->waits_to_send) return; /* telling the kernel costs a system call */
    to->waits_to_send = waits;
    uv_poll_start(&to->poll, UV_READABLE | (waits ? UV_WRITABLE : 0), connection_ready);
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
        const int copy = LS_SYSCALL(EMFILE, fcntl(answer->descriptors[i], F_DUPFD_CLOEXEC, 3));
        /* The table keeps its own: an answer may wait long, and the key may be deleted meanwhile. */
        if (copy < 0) {
            ls_fail_errno(LS_ERR_IO, errno, "the store's server cannot duplicate a descriptor");
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
    /* Its answers went with it. */
    if (to->is_closing) return;
    answer_item *item = NULL;
    if (to->unread_bytes <= MOST_UNREAD_BYTES) {
        if (status == LS_OK) item = answer_create(id, status, answer);
        /* Where the answer finds no room, its failure may: a sentence is short. */
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

/* --- requests ----------------------------------------------------------------------------------------------------- */

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

/* Answers those who wait for `key`. An answer may end a connection, and with it others that are parked: so start
 * anew. */
static void wake(store_server *server, const char *key) {
    for (parked **link = &server->waiting; *link;) {
        parked *each = *link;
        store_answer answer;
        if (strcmp(each->request.key, key) != 0) {
            link = &each->next;
            continue;
        }
        const ls_status status = store_table_apply(server->table, &each->request, &answer);
        /* Somebody has deleted the key again: the others go on waiting. */
        if (status == LS_END) return;
        *link = each->next;
        respond(each->from, each->id, status, &answer);
        ls_free(each);
        link = &server->waiting;
    }
}

/* --- ranks that are gone ------------------------------------------------------------------------------------------ */

static ls_status fail_lost(const lost_rank *lost) {
    return ls_fail(LS_ERR_PEER_LOST, "%s", lost->what);
}

/* An answer may end a connection, and with it others that are parked: so start anew each time. */
void store_server_lost(store_server *server, int rank, const char *what, ...) {
    lost_rank *made = ls_alloc(sizeof *made), **link = &server->lost;
    if (!made) return; /* then the limits of the waits tell */
    *made = (lost_rank){.rank = rank};
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(made->what, sizeof made->what, what, arguments);
    va_end(arguments);
    while (*link) link = &(*link)->next; /* the first is the cause: the others may have ended for its sake */
    *link = made;
    while (server->waiting) {
        parked *each = server->waiting;
        server->waiting = each->next;
        respond(each->from, each->id, fail_lost(server->lost), &(store_answer){0});
        ls_free(each);
    }
}

void server_welcome(store_server *server, const store_hello *hello) {
    /* A client that is no rank (somebody looks at the store): nobody waits for it, and its end is no death. */
    if (hello->rank < 0) return;
    atomic_fetch_add_explicit(&server->members, 1, memory_order_relaxed);
    for (lost_rank **link = &server->lost; *link;) {
        lost_rank *each = *link;
        if (each->rank != hello->rank) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        ls_free(each);
    }
}

static void serve(peer *from, const store_frame *frame) {
    store_server *server = from->server;
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
    if (frame->head.code == STORE_GOODBYE) {
        from->has_said_goodbye = true;
        return;
    }
    /* An answer may end this connection, and its bytes go with it. */
    char key[LS_STORE_KEY_BYTES];
    snprintf(key, sizeof key, "%s", request.key);
    store_answer answer;
    const ls_status status = store_table_apply(server->table, &request, &answer);
    /* Nobody waits for ever for a key that a dead rank would have set. */
    if (status == LS_END && server->lost) {
        respond(from, frame->head.id, fail_lost(server->lost), &answer);
        return;
    }
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
    while (status == LS_OK && !from->is_closing) {
        store_frame frame;
        status = store_inbox_next(&from->inbox, &frame);
        if (status == LS_OK) serve(from, &frame);
        if (status != LS_ERR_IO) continue;
        respond(from, frame.head.id, status, &(store_answer){0}); /* this call fails, and no other */
        status = LS_OK;
    }
    if (from->is_closing) return;
    if (status == LS_ERR_FORMAT) ls_log(LS_LOG_WARNING, "store: a connection is closed: %s", ls_last_error());
    if (status != LS_END) peer_close(from);
}

void connection_ready(uv_poll_t *poll, int failure, int events) {
    peer *ready = poll->data;
    if (failure) {
        peer_close(ready);
        return;
    }
    /* Answers first: what they free makes room for those to come, and a failed one saves the reading. */
    if (events & UV_WRITABLE) flush(ready);
    if ((events & UV_READABLE) && !ready->is_closing) receive(ready);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* A handle as the connections have, and counted like them. */
static void sweep_closed(uv_handle_t *handle) {
    server_handle_closed(handle->data);
}

/* To those who proved who they are: an orderly end is no death. Not into the middle of an answer, and never waited
 * for. */
static void say_goodbye(const peer *to) {
    if (to->is_unproved || to->proof.heard == 0 || to->first_answer) return;
    store_message message = {.head = {.magic = STORE_FRAME_MAGIC, .code = STORE_GOODBYE}};
    (void)store_message_send(&message, to->socket);
}

void store_server_close(store_server **closing) {
    store_server *server = *closing;
    *closing = NULL;
    if (!server) return;
    server->is_closing = true;
    while (server->peers) {
        say_goodbye(server->peers);
        peer_close(server->peers);
    }
    if (server->has_sweep) uv_close((uv_handle_t *)&server->sweep, sweep_closed);
    free_if_done(server);
}

int store_server_members(const store_server *server) {
    return atomic_load_explicit(&server->members, memory_order_acquire);
}

void store_server_forked(store_server *server) {
    for (const peer *each = server->peers; each; each = each->next) close(each->socket);
}
