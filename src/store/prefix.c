/* prefix.c: a part of another store, whose keys all begin alike.
 *
 * No keys and no lock of its own: a request goes on to the whole with a longer key. The view holds the whole, so the
 * order of closing is the caller's. */
#include "store/backend.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

typedef struct prefix_store {
    ls_store head;
    ls_store *whole;
    char prefix[LS_STORE_KEY_BYTES]; /* with its slash */
} prefix_store;

static ls_status prefix_call(ls_store *base, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    prefix_store *view = (prefix_store *)base;
    char key[LS_STORE_KEY_BYTES];
    store_request whole = *request;
    /* All else passes through as it is; a view of a view adds both prefixes. */
    whole.key = key;
    const int length = snprintf(key, sizeof key, "%s%s", view->prefix, request->key);
    /* Past ls_store_*: what was given is checked already, and the sentence of a time-out is made by the outer call. */
    if ((size_t)length < sizeof key) return view->whole->backend->call(view->whole, &whole, reply, deadline_ns);
    return ls_fail(
        LS_ERR_ARGUMENT, "store %s of key \"%s\": behind the prefix \"%s\" it has %d bytes; a key has at most %d",
        store_operation_name(request->operation), request->key, view->prefix, length, LS_STORE_KEY_BYTES - 1);
}

static void prefix_close(ls_store *base) {
    prefix_store *view = (prefix_store *)base;
    ls_store_close(&view->whole);
    ls_free(view);
}

static const store_backend prefix_backend = {.call = prefix_call, .close = prefix_close};

ls_status ls_store_prefix(ls_store **view, ls_store *store, const char *prefix) {
    if (!view || !store || !prefix)
        return ls_fail(LS_ERR_ARGUMENT,
                       "cannot make a store with a prefix: the place, the store or the prefix is NULL");
    *view = NULL;
    const size_t length = strlen(prefix);
    if (length == 0 || length + 2 >= LS_STORE_KEY_BYTES)
        return ls_fail(LS_ERR_ARGUMENT, "a store's prefix has 1 to %d bytes, this one %zu", LS_STORE_KEY_BYTES - 3,
                       length);
    prefix_store *made = ls_alloc(sizeof *made);
    if (!made) return LS_ERR_MEMORY;
    /* A view answers for itself what its store would: callers do not look behind it. */
    store_init(&made->head, &prefix_backend);
    made->head.is_in_process = store->is_in_process;
    made->head.is_private = store->is_private;
    made->head.credentials = store->credentials; /* which live as long as `whole` */
    made->head.port = store->port;
    memcpy(made->head.server, store->server, sizeof made->head.server);
    made->whole = ls_store_keep(store);
    snprintf(made->prefix, sizeof made->prefix, "%s/", prefix);
    *view = &made->head;
    return LS_OK;
}
