/* store.c: the public calls: each checks what it was given, asks the backend, and says what went wrong.
 *
 * A call is a request and a reply (store/backend.h). Backends see requests that can be, and a deadline; sentences
 * about keys and limits are made here, so that they read alike whatever the store is. */
#include "store/backend.h"
#include "store/table.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *store_operation_name(store_operation operation) {
    static const char *const names[STORE_OPERATION_COUNT] = {
        [STORE_SET] = "set",
        [STORE_GET] = "get",
        [STORE_WAIT] = "wait",
        [STORE_ADD] = "add",
        [STORE_COMPARE_SET] = "compare-set",
        [STORE_DELETE] = "delete",
        [STORE_COUNT] = "count",
        [STORE_CHECK] = "check",
        [STORE_SET_DESCRIPTORS] = "set of descriptors",
        [STORE_GET_DESCRIPTORS] = "get of descriptors",
    };
    const char *name = (unsigned)operation < STORE_OPERATION_COUNT ? names[operation] : NULL;
    return name ? name : "unknown operation";
}

void store_init(ls_store *store, const store_backend *backend) {
    store->backend = backend;
    /* A child that forks finds another number here, and is told so rather than left to read another process's
     * stream. */
    store->owner = getpid();
    atomic_init(&store->holders, 1);
}

void store_reply_fill(store_reply *reply, int64_t number, const void *value, size_t bytes) {
    reply->number = number;
    reply->bytes = bytes;
    const size_t fitting = bytes < reply->capacity ? bytes : reply->capacity;
    if (fitting > 0) memcpy(reply->value, value, fitting);
}

ls_store *ls_store_keep(ls_store *store) {
    /* Relaxed: whoever adds a holder is one already, so nothing can be freed meanwhile. */
    if (store) atomic_fetch_add_explicit(&store->holders, 1, memory_order_relaxed);
    return store;
}

void ls_store_close(ls_store **store) {
    if (!store || !*store) return;
    ls_store *held = *store;
    *store = NULL;
    /* The last holder has to see what the others did. */
    if (atomic_fetch_sub_explicit(&held->holders, 1, memory_order_acq_rel) == 1) held->backend->close(held);
}

/* Known when the store is opened, and never changed: no call to the backend. */
int ls_store_port(const ls_store *store) {
    return store ? store->port : 0;
}

bool store_is_in_process(const ls_store *store) {
    return store->is_in_process;
}

static ls_status check(const ls_store *store, const store_request *request) {
    /* Checked here once, so that backends, and servers of older clients, get nothing that cannot be. */
    const char *name = store_operation_name(request->operation);
    if (!store) return ls_fail(LS_ERR_ARGUMENT, "store %s: the store is NULL", name);
    /* A forked child shares neither the thread that serves nor the stream's state. */
    if (store->owner != getpid())
        return ls_fail(LS_ERR_FORKED,
                       "store %s: this store was opened by process %d, before fork; open one in this process", name,
                       (int)store->owner);
    if (!request->key) return ls_fail(LS_ERR_ARGUMENT, "store %s: the key is NULL", name);
    const size_t key_bytes = strnlen(request->key, LS_STORE_KEY_BYTES);
    if (key_bytes == LS_STORE_KEY_BYTES || (key_bytes == 0 && request->operation != STORE_COUNT))
        return ls_fail(LS_ERR_ARGUMENT, "store %s: a key has 1 to %d bytes; this one is %s", name,
                       LS_STORE_KEY_BYTES - 1, key_bytes ? "longer" : "empty");
    if (request->bytes > LS_STORE_VALUE_BYTES || request->expected_bytes > LS_STORE_VALUE_BYTES)
        return ls_fail(LS_ERR_ARGUMENT, "store %s of key \"%s\": a value has at most %u bytes, this one %zu", name,
                       request->key, LS_STORE_VALUE_BYTES,
                       request->bytes > LS_STORE_VALUE_BYTES ? request->bytes : request->expected_bytes);
    if ((request->bytes > 0 && !request->value) || (request->expected_bytes > 0 && !request->expected))
        return ls_fail(LS_ERR_ARGUMENT, "store %s of key \"%s\": the value is NULL", name, request->key);
    return LS_OK;
}

/* "rank 1: " where the thread knows its rank. */
static const char *speaker(char *text, size_t bytes) {
    const int rank = ls_context_here()->rank;
    text[0] = '\0';
    if (rank >= 0) snprintf(text, bytes, "rank %d: ", rank);
    return text;
}

/* For calls that take no limit of the caller's: that of what the thread is about to do. A moment at the least, so that
 * who has failed by it can say so and clean up. */
static int64_t default_limit_ms(const ls_store *store) {
    const int64_t deadline_ns = ls_context_here()->deadline_ns;
    if (deadline_ns == 0) return STORE_DEFAULT_TIMEOUT_MS;
    const bool is_silent = atomic_load_explicit(&store->is_silent, memory_order_relaxed);
    const int64_t left_ms = (deadline_ns - ls_now_ns()) / LS_NS_PER_MS,
                  least_ms = is_silent ? 1 : STORE_SHORTEST_LIMIT_MS;
    if (left_ms < least_ms) return least_ms;
    return left_ms < STORE_DEFAULT_TIMEOUT_MS ? left_ms : STORE_DEFAULT_TIMEOUT_MS;
}

static ls_status call(ls_store *store, const store_request *request, store_reply *reply, int64_t timeout_ms) {
    LS_TRY(check(store, request));
    /* Zero in an options struct is the default; a caller who wants a look only has ls_store_check. */
    const bool has_limit = timeout_ms != 0;
    if (!has_limit) timeout_ms = default_limit_ms(store);
    /* A deadline rather than a time: a backend may wait in several steps. */
    const ls_status status = store->backend->call(store, request, reply, ls_deadline_after_ms(timeout_ms));
    if (!has_limit) atomic_store_explicit(&store->is_silent, status == LS_ERR_TIMEOUT, memory_order_relaxed);
    if (status != LS_ERR_TIMEOUT) return status;
    char rank[24];
    /* Two ways to run out of time: the key was not set, or nobody answered. */
    if (store_operation_waits(request->operation))
        return ls_fail(status, "%sstore %s: key \"%s\" was not set within %" PRId64 " ms", speaker(rank, sizeof rank),
                       store_operation_name(request->operation), request->key, timeout_ms);
    return ls_fail(status, "%sstore %s of key \"%s\": %s did not answer within %" PRId64 " ms; is it stopped?",
                   speaker(rank, sizeof rank), store_operation_name(request->operation), request->key, store->server,
                   timeout_ms);
}

/* Calls that wait for no key take no limit: the default is there for a server that is stopped. */
ls_status ls_store_set(ls_store *store, const char *key, const void *value, size_t bytes) {
    const store_request request = {.operation = STORE_SET, .key = key, .value = value, .bytes = bytes};
    store_reply reply = {0};
    return call(store, &request, &reply, 0);
}

ls_status ls_store_get(ls_store *store, const char *key, void *value, size_t capacity, size_t *bytes,
                       int64_t timeout_ms) {
    const store_request request = {.operation = STORE_GET, .key = key};
    /* Without a buffer this is the question for the size. */
    store_reply reply = {.value = value, .capacity = value ? capacity : 0};
    LS_TRY(call(store, &request, &reply, timeout_ms));
    /* Also where the buffer is too small: so that the caller may ask again with room. */
    if (bytes) *bytes = reply.bytes;
    if (reply.bytes > reply.capacity)
        return ls_fail(LS_ERR_ARGUMENT, "store get: key \"%s\" holds %zu bytes, the buffer only %zu", key, reply.bytes,
                       reply.capacity);
    return LS_OK;
}

ls_status ls_store_wait(ls_store *store, const char *key, int64_t timeout_ms) {
    const store_request request = {.operation = STORE_WAIT, .key = key};
    store_reply reply = {0};
    return call(store, &request, &reply, timeout_ms);
}

ls_status ls_store_add(ls_store *store, const char *key, int64_t amount, int64_t *result) {
    const store_request request = {.operation = STORE_ADD, .key = key, .number = amount};
    store_reply reply = {0};
    LS_TRY(call(store, &request, &reply, 0));
    if (result) *result = reply.number;
    return LS_OK;
}

ls_status ls_store_compare_set(ls_store *store, const char *key, const void *expected, size_t expected_bytes,
                               const void *value, size_t bytes, bool *was_set) {
    const store_request request = {.operation = STORE_COMPARE_SET,
                                   .key = key,
                                   .expected = expected,
                                   .expected_bytes = expected_bytes,
                                   .value = value,
                                   .bytes = bytes};
    store_reply reply = {0};
    LS_TRY(call(store, &request, &reply, 0));
    if (was_set) *was_set = reply.number != 0;
    return LS_OK;
}

ls_status ls_store_delete(ls_store *store, const char *key, bool *existed) {
    const store_request request = {.operation = STORE_DELETE, .key = key};
    store_reply reply = {0};
    LS_TRY(call(store, &request, &reply, 0));
    if (existed) *existed = reply.number != 0;
    return LS_OK;
}

static ls_status check_result(const void *result, store_operation operation) {
    /* Where the answer is all that the call is for; places for what may be of no interest can be NULL. */
    if (result) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT, "store %s: the place for the result is NULL", store_operation_name(operation));
}

ls_status ls_store_count(ls_store *store, int64_t *count) {
    const store_request request = {.operation = STORE_COUNT, .key = ""};
    store_reply reply = {0};
    LS_TRY(check_result(count, request.operation));
    LS_TRY(call(store, &request, &reply, 0));
    *count = reply.number;
    return LS_OK;
}

ls_status ls_store_check(ls_store *store, const char *key, bool *is_set) {
    const store_request request = {.operation = STORE_CHECK, .key = key};
    store_reply reply = {0};
    LS_TRY(check_result(is_set, request.operation));
    LS_TRY(call(store, &request, &reply, 0));
    *is_set = reply.number != 0;
    return LS_OK;
}

static ls_status check_descriptor_count(const char *key, int count) {
    if (count >= 1 && count <= STORE_MOST_DESCRIPTORS) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT, "store key \"%s\": 1 to %d descriptors travel together, not %d", key ? key : "",
                   STORE_MOST_DESCRIPTORS, count);
}

ls_status store_set_descriptors(ls_store *store, const char *key, const int *descriptors, int count) {
    LS_TRY(check_descriptor_count(key, count));
    const store_request request = {
        .operation = STORE_SET_DESCRIPTORS, .key = key, .descriptors = descriptors, .descriptor_count = count};
    store_reply reply = {0};
    return call(store, &request, &reply, 0);
}

ls_status store_get_descriptors(ls_store *store, const char *key, int *descriptors, int count, int64_t timeout_ms) {
    LS_TRY(check_descriptor_count(key, count));
    const store_request request = {.operation = STORE_GET_DESCRIPTORS, .key = key, .number = count};
    /* The place tells how many fit: an answer with more is none to this call (store/stream.c). */
    store_reply reply = {.descriptors = descriptors, .descriptor_count = count};
    return call(store, &request, &reply, timeout_ms);
}
