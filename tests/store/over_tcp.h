/* over_tcp.h: a store's server and clients in one process, and the file with the secret. */
#ifndef LS_TEST_OVER_TCP_H
#define LS_TEST_OVER_TCP_H

#include "support/faults.h"
#include "support/threads.h"

#include "base/context.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int clear_environment(void **state) {
    (void)state;
    unsetenv("LOCKSTEP_SECRET_FILE");
    unsetenv("LOCKSTEP_ALLOW_UNAUTHENTICATED");
    unsetenv("LOCKSTEP_JOB");
    ls_context_here()->rank = -1;
    return 0;
}

static inline ls_store *serve(const char *host) {
    ls_store *store = NULL;
    assert_ok(ls_store_open_tcp(&store, host, 0, true, 5000));
    assert_true(ls_store_port(store) > 0);
    return store;
}

static inline ls_store *reach(const char *host, int port) {
    ls_store *store = NULL;
    assert_ok(ls_store_open_tcp(&store, host, port, false, 5000));
    return store;
}

/* A value set by one is got by the other. */
static inline void assert_joined(ls_store *one, ls_store *other) {
    char value[8] = "";
    assert_ok(ls_store_set(one, "said", "hello", 5));
    assert_ok(ls_store_get(other, "said", value, sizeof value, NULL, 5000));
    assert_string_equal(value, "hello");
    assert_ok(ls_store_delete(other, "said", NULL));
}

static char secret_path[] = "/tmp/lockstep-secret-XXXXXX";

static inline void write_secret(const char *text, unsigned mode) {
    const int file = open(secret_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(file, mode), 0);
    close(file);
    setenv("LOCKSTEP_SECRET_FILE", secret_path, 1);
}

static inline int remove_secret(void **state) {
    (void)state;
    unlink(secret_path);
    return 0;
}

static inline int make_secret(void **state) {
    (void)state;
    ls_note_what_is_there(); /* the hooks are there before any thread */
    const int file = mkstemp(secret_path);
    if (file >= 0) close(file);
    return file < 0;
}

#endif
