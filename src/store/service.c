/* service.c: a loop, a thread that runs it, and a door for clients of this process.
 *
 * The process that serves is a client of its own server, through a socket like all others: one way to ask, and no
 * lock between the loop and its callers. Everything of libuv is touched by the loop's thread alone, once it runs; a
 * caller has one call that is safe, uv_async_send, and it means: close. */
#include "store/service.h"

#include "store/server.h"
#include "store/stream.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/*   server    the thread's own, once it runs; a forked child reads it under the lock of base/live.h */
struct store_service {
    ls_live live;
    uv_loop_t loop;
    uv_async_t stop; /* the one thing that other threads may do to a loop */
    bool has_loop, has_stop;
    store_server *server;
    ls_thread thread;
    int door;
    pid_t owner;
};

static void run(void *argument) {
    store_service *service = argument;
    /* Until the last handle is closed: stopping is closing. */
    uv_run(&service->loop, UV_RUN_DEFAULT);
}

static void close_all(store_service *service) {
    store_server *server = service->server;
    ls_live_lock();
    service->server = NULL;
    ls_live_unlock();
    store_server_close(&server);
    if (service->has_stop) uv_close((uv_handle_t *)&service->stop, NULL);
    service->has_stop = false;
}

static void stop_asked(uv_async_t *stop) {
    close_all(stop->data);
}

/* In a child: no socket and no port of its parent stays open. */
static void forked(ls_live *live) {
    store_service *service = LS_LIVE_OWNER(store_service, live);
    if (service->server) store_server_forked(service->server);
    if (service->door >= 0) close(service->door);
    /* The child's copy of the epoll would keep the parent's sockets in it alive. */
    if (service->has_loop) close(uv_backend_fd(&service->loop));
}

ls_status store_loop_open(uv_loop_t *loop) {
    int spare[4] = {-1, -1, -1, -1}; /* as many as it may want before it looks at what it got */
    int failure = ls_fault(LS_FAULT_SYSCALL) ? EMFILE : 0;
    for (int i = 0; i < 4 && !failure; i += 2)
        if (pipe2(spare + i, O_CLOEXEC) != 0) failure = errno;
    for (int i = 0; i < 4; i++)
        if (spare[i] >= 0) close(spare[i]);
    if (!failure) failure = -uv_loop_init(loop);
    return failure ? ls_fail_errno(LS_ERR_IO, failure, "cannot make an event loop") : LS_OK;
}

static ls_status prepare(store_service *service, const store_credentials *credentials) {
    LS_TRY(store_loop_open(&service->loop));
    service->has_loop = true;
    const int failure =
        ls_fault(LS_FAULT_SYSCALL) ? UV_EMFILE : uv_async_init(&service->loop, &service->stop, stop_asked);
    if (failure) return ls_fail(LS_ERR_IO, "the store's server cannot make its signal: %s", uv_strerror(failure));
    service->has_stop = true;
    service->stop.data = service;
    LS_TRY(store_server_open(&service->server, &service->loop, credentials));
    return store_server_add_door(service->server, &service->door);
}

ls_status store_service_start(store_service **started, const store_credentials *credentials, const int *listeners,
                              int count) {
    *started = NULL;
    store_service *service = ls_alloc(sizeof *service);
    ls_status status = service ? LS_OK : LS_ERR_MEMORY;
    if (service) {
        service->door = -1;
        service->owner = getpid();
        service->live.forked = forked;
        status = ls_live_enlist(&service->live);
        /* Listed before it has a descriptor: a child that is forked meanwhile closes what there is by then. */
        if (status == LS_OK) status = prepare(service, credentials);
    }
    for (int i = 0; i < count; i++)
        if (status == LS_OK)
            status = store_server_listen_on(service->server, listeners[i]);
        else
            close(listeners[i]);
    /* Whoever wants no TCP socket is reached through a name that it tells to those who may come. */
    if (status == LS_OK && count == 0) status = store_server_listen_on_name(service->server);
    if (status == LS_OK) status = ls_thread_start(&service->thread, "ls-store", run, service);
    if (status == LS_OK)
        *started = service;
    else
        store_service_stop(&service);
    return status;
}

const char *store_service_name(const store_service *service) {
    return store_server_name(service->server);
}

int store_service_members(const store_service *service) {
    return store_server_members(service->server);
}

ls_status store_service_open(store_service *service, const char *what, ls_store **client) {
    *client = NULL;
    stream_store *stream = NULL;
    LS_TRY(stream_create(&stream, "%s", what));
    ls_store *made = &stream->head;
    const ls_status status =
        stream_connect_by_door(stream, service->door, ls_deadline_after_ms(STREAM_CONNECT_LIMIT_MS));
    if (status == LS_OK)
        *client = made;
    else
        ls_store_close(&made);
    return status;
}

void store_service_stop(store_service **stopped) {
    store_service *service = *stopped;
    *stopped = NULL;
    if (!service || service->owner != getpid()) return; /* its thread is not in a forked child, nor are its sockets */
    if (service->thread.is_started) {
        /* The loop closes its own handles, on its own thread. */
        uv_async_send(&service->stop);
        ls_thread_join(&service->thread);
    } else {
        close_all(service);
        if (service->has_loop) uv_run(&service->loop, UV_RUN_DEFAULT);
    }
    ls_live_delist(&service->live);
    /* Its last handle is closed by now: libuv would refuse else. */
    if (service->has_loop) uv_loop_close(&service->loop);
    if (service->door >= 0) close(service->door);
    ls_free(service);
}
