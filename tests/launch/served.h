/* served.h: the launcher's store on a thread of the test, so that clients of one process, sanitizers included, reach it
 * as workers do. */
#ifndef LS_TEST_SERVED_H
#define LS_TEST_SERVED_H

#include "support/test.h"

#include "base/memory.h"
#include "base/thread.h"
#include "store/server.h"
#include "store/wire.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct served {
    uv_loop_t loop;
    uv_async_t stop;
    store_server *server;
    ls_thread thread;
    int door;
} served;

static inline void serve_loop(void *argument) {
    uv_run(argument, UV_RUN_DEFAULT);
}

static inline void stop_serving(uv_async_t *stop) {
    served *self = stop->data;
    store_server_close(&self->server);
    uv_close((uv_handle_t *)stop, NULL);
}

static inline void set_number(const char *name, int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* Starts the server and puts into the environment what a worker finds there. */
static inline void served_start(served *self) {
    assert_int_equal(uv_loop_init(&self->loop), 0);
    assert_int_equal(store_server_open(&self->server, &self->loop, NULL), LS_OK);
    assert_int_equal(store_server_listen_on_name(self->server), LS_OK);
    assert_int_equal(store_server_add_door(self->server, &self->door), LS_OK);
    assert_int_equal(uv_async_init(&self->loop, &self->stop, stop_serving), 0);
    self->stop.data = self;
    set_number(STORE_ENV_DOOR, self->door);
    set_number(STORE_ENV_LAUNCHER, (int)getpid());
    setenv(STORE_ENV_SOCKET, store_server_name(self->server), 1);
    assert_int_equal(ls_thread_start(&self->thread, "server", serve_loop, &self->loop), LS_OK);
}

static inline void served_stop(served *self) {
    if (!self->thread.is_started) return;
    uv_async_send(&self->stop);
    ls_thread_join(&self->thread);
    /* Refuses while a handle is open: so this proves that none is. */
    assert_int_equal(uv_loop_close(&self->loop), 0);
    close(self->door);
}

/* One test, one server; after it no block of memory is left. */
static served the_server;
static uint64_t blocks_before;

static inline int start_serving(void **state) {
    (void)state;
    blocks_before = ls_alloc_live();
    served_start(&the_server);
    return 0;
}

static inline int stop_all(void **state) {
    (void)state;
    served_stop(&the_server);
    return ls_alloc_live() == blocks_before ? 0 : -1;
}

static inline ls_store *open_store(void) {
    ls_store *store = NULL;
    assert_int_equal(ls_store_open_inherited(&store), LS_OK);
    return store;
}

#endif
