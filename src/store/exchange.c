/* exchange.c: what store_set_descriptors, store_get_descriptors and ls_store_delete do in such a store; all other
 * requests pass through. Descriptors are dropped by a delete in the store that offered them, and with it. */
#include "store/exchange.h"

#include "store/prove.h"
#include "store/stream.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the exchange itself may take: it is between two processes of one host, which may be busy. */
enum {
    EXCHANGE_LIMIT_MS = 15000,
    SETTLE_LIMIT_MS = 1500,
    LOOK_AGAIN_MS = 5,
    AFTER_CHECK_MS = 1000,
    BOOT_BYTES = 40,
    SOCKET_NAME_BYTES = 48
};

/* The value of a key that has descriptors. */
typedef struct offer {
    char magic[8];
    int32_t process;
    int32_t rank; /* -1: unknown */
    char host[STORE_HOST_BYTES];
    char boot[BOOT_BYTES];
    char socket[SOCKET_NAME_BYTES];
} offer;

static const char offer_magic[8] = "lstore1d";

/*   lock      guards own, own_client; held while they are made, which waits for nobody
 *   others    fixed before the store is handed out */
typedef struct exchange_store {
    ls_store head;
    ls_live live; /* listed when it has `service` */
    ls_store *inner;
    store_service *service; /* that serves the keys to other processes; NULL: it is elsewhere */
    store_credentials credentials;
    ls_mutex lock;
    store_service *own; /* that serves our descriptors, from the first on */
    ls_store *own_client;
} exchange_store;

static void read_boot(char boot[BOOT_BYTES]) {
    memset(boot, 0, BOOT_BYTES);
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (read(file, boot, BOOT_BYTES - 1) < 0) boot[0] = '\0';
    close(file);
}

/* --- offering ----------------------------------------------------------------------------------------------------- */

/* At the first offer: most stores of other hosts' ranks never carry a descriptor, and need no thread for it. */
static ls_status start_own(exchange_store *store) {
    ls_mutex_lock(&store->lock);
    ls_status status = LS_OK;
    if (!store->own_client) {
        status = store_service_start(&store->own, &store->credentials, NULL, 0);
        if (status == LS_OK)
            status = store_service_open(store->own, "this process's server of descriptors", &store->own_client);
        if (status != LS_OK) store_service_stop(&store->own);
    }
    ls_mutex_unlock(&store->lock);
    return status;
}

/* Under the lock: another thread may be making it right now. */
static ls_store *own_client(exchange_store *store) {
    ls_mutex_lock(&store->lock);
    ls_store *client = store->own_client;
    ls_mutex_unlock(&store->lock);
    return client;
}

static ls_status pass(ls_store *to, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    return to->backend->call(to, request, reply, deadline_ns);
}

/* The descriptors first, then where they are: whoever reads that finds them. */
static ls_status set_descriptors(exchange_store *store, const store_request *request, int64_t deadline_ns) {
    store_reply reply = {0};
    LS_TRY(start_own(store));
    LS_TRY(pass(store->own_client, request, &reply, deadline_ns));
    offer made = {.process = getpid(), .rank = ls_context_here()->rank};
    memcpy(made.magic, offer_magic, sizeof made.magic);
    if (gethostname(made.host, sizeof made.host - 1) != 0) snprintf(made.host, sizeof made.host, "a host");
    read_boot(made.boot);
    snprintf(made.socket, sizeof made.socket, "%s", store_service_name(store->own));
    const store_request place = {.operation = STORE_SET, .key = request->key, .value = &made, .bytes = sizeof made};
    return pass(store->inner, &place, &reply, deadline_ns);
}

/* --- fetching ----------------------------------------------------------------------------------------------------- */

/* The server at the name could be anybody's: the kernel says whose. */
static ls_status check_user(int socket) {
    struct ucred user = {0};
    socklen_t bytes = sizeof user;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) == 0 && (user.uid == geteuid() || user.uid == 0))
        return LS_OK;
    return ls_fail(LS_ERR_PEER_LOST, "process %d, which offers them, is of user %u, not %u", (int)user.pid,
                   (unsigned)user.uid, (unsigned)geteuid());
}

/* LS_END: what was offered has been withdrawn. */
static ls_status fetch_over(exchange_store *store, stream_store *stream, const store_request *request,
                            store_reply *reply) {
    ls_store *client = &stream->head;
    /* A look first: a get would wait for a key that its owner has deleted since, and tie up the caller. */
    const store_request check = {.operation = STORE_CHECK, .key = request->key};
    store_reply answer = {0};
    const int64_t end_ns = ls_deadline_after_ms(EXCHANGE_LIMIT_MS);
    LS_TRY(check_user(stream->socket));
    LS_TRY(store_prove(stream->socket, &store->credentials, -1, 0, end_ns));
    LS_TRY(pass(client, &check, &answer, end_ns));
    if (answer.number == 0) return LS_END;
    const ls_status status = pass(client, request, reply, ls_deadline_after_ms(AFTER_CHECK_MS));
    return status == LS_ERR_TIMEOUT ? LS_END : status;
}

static ls_status fetch(exchange_store *store, const offer *from, const store_request *request, store_reply *reply) {
    stream_store *stream = NULL;
    LS_TRY(stream_create(&stream, "process %d of %s", (int)from->process, from->host));
    ls_store *client = &stream->head;
    ls_status status = stream_connect_by_name(stream, from->socket, ls_deadline_after_ms(EXCHANGE_LIMIT_MS));
    if (status == LS_OK) status = fetch_over(store, stream, request, reply);
    ls_store_close(&client);
    return status == LS_ERR_ABORTED ? LS_END : status; /* it has just closed its store */
}

static ls_status fail_to_fetch(const offer *from, const store_request *request, ls_status status) {
    char boot[BOOT_BYTES], rank[24] = "";
    read_boot(boot);
    /* For the sentence alone: two containers of one host share a boot id and may still not reach each other. */
    const bool is_elsewhere = boot[0] && from->boot[0] && memcmp(boot, from->boot, sizeof boot) != 0;
    if (from->rank >= 0) snprintf(rank, sizeof rank, "rank %d, ", (int)from->rank);
    /* Not LS_ERR_TIMEOUT: the key is set, so waiting longer is no cure. */
    return ls_fail_within(status == LS_ERR_TIMEOUT ? LS_ERR_PEER_LOST : status,
                          "store key \"%s\": descriptors of %sprocess %d on %s cannot be fetched%s", request->key, rank,
                          (int)from->process, from->host, is_elsewhere ? ", since that is another host" : "");
}

static ls_status get_descriptors(exchange_store *store, const store_request *request, store_reply *reply,
                                 int64_t deadline_ns) {
    for (;;) {
        offer from = {.process = 0};
        store_reply place = {.value = &from, .capacity = sizeof from};
        const store_request where = {.operation = STORE_GET, .key = request->key};
        LS_TRY(pass(store->inner, &where, &place, deadline_ns));
        if (place.bytes != sizeof from || memcmp(from.magic, offer_magic, sizeof offer_magic) != 0)
            return ls_fail(LS_ERR_STATE, "store key \"%s\" holds a value, not descriptors", request->key);
        /* Other members wrote it, maybe of another version: texts end where they may. */
        from.host[sizeof from.host - 1] = from.socket[sizeof from.socket - 1] = '\0';
        const ls_status status = fetch(store, &from, request, reply);
        if (status == LS_OK) return LS_OK;
        if (status != LS_END) return fail_to_fetch(&from, request, status);
        if (ls_now_ns() >= deadline_ns) return LS_ERR_TIMEOUT;
        ls_sleep_until(ls_now_ns() + LOOK_AGAIN_MS * LS_NS_PER_MS);
    }
}

/* --- the store ---------------------------------------------------------------------------------------------------- */

static ls_status exchange_call(ls_store *base, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    exchange_store *store = (exchange_store *)base;
    switch (request->operation) {
    case STORE_SET_DESCRIPTORS: return set_descriptors(store, request, deadline_ns);
    case STORE_GET_DESCRIPTORS: return get_descriptors(store, request, reply, deadline_ns);
    case STORE_DELETE: {
        store_reply unused = {0};
        ls_store *own = own_client(store);
        /* The descriptors before the word of them: who reads the word meanwhile finds nothing, and looks again. */
        if (own) LS_TRY(pass(own, request, &unused, deadline_ns));
        return pass(store->inner, request, reply, deadline_ns);
    }
    default: return pass(store->inner, request, reply, deadline_ns);
    }
}

static void forked(ls_live *live) {
    (void)live; /* what has descriptors is listed by itself */
}

/* Clients before their servers, so that they say goodbye. */
static void exchange_close(ls_store *base) {
    exchange_store *store = (exchange_store *)base;
    ls_live_delist(&store->live);
    ls_store_close(&store->own_client);
    store_service_stop(&store->own);
    ls_store_close(&store->inner);
    store_service_stop(&store->service);
    ls_mutex_destroy(&store->lock);
    explicit_bzero(&store->credentials, sizeof store->credentials);
    ls_free(store);
}

static const store_backend exchange_backend = {.call = exchange_call, .close = exchange_close};

ls_status store_exchange_wrap(ls_store **wrapped, ls_store *inner, store_service *service,
                              const store_credentials *credentials) {
    *wrapped = NULL;
    exchange_store *store = ls_alloc(sizeof *store);
    if (!store) {
        ls_store_close(&inner);
        store_service_stop(&service);
        return LS_ERR_MEMORY;
    }
    store_init(&store->head, &exchange_backend);
    memcpy(store->head.server, inner->server, sizeof store->head.server);
    store->head.port = inner->port;
    store->inner = inner;
    store->service = service;
    store->credentials = *credentials;
    /* So that groups over this store prove the same on connections of their own. */
    store->head.credentials = &store->credentials;
    store->live.forked = forked;
    ls_mutex_init(&store->lock);
    const ls_status status = service ? ls_live_enlist(&store->live) : LS_OK;
    if (status == LS_OK)
        *wrapped = &store->head;
    else
        exchange_close(&store->head);
    return status;
}

void store_settle(ls_store *base) {
    if (!base || base->backend != &exchange_backend) return;
    const exchange_store *store = (const exchange_store *)base;
    const int64_t end_ns = ls_deadline_after_ms(SETTLE_LIMIT_MS);
    /* Asked now and then: members leave within moments, and a wait with a wake would be another lock to reason
     * about. */
    while (store->service && store_service_members(store->service) > 0 && ls_now_ns() < end_ns)
        ls_sleep_until(ls_now_ns() + LOOK_AGAIN_MS * LS_NS_PER_MS);
}

/* Takes hold of the store unless its last holder has just let go. */
static bool try_keep(ls_store *store) {
    int holders = atomic_load_explicit(&store->holders, memory_order_relaxed);
    while (holders > 0)
        if (atomic_compare_exchange_weak_explicit(&store->holders, &holders, holders + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return false;
}

ls_store *store_exchange_find_served(const char *job, const int *ports, int port_count) {
    ls_store *found = NULL;
    ls_live_lock();
    for (ls_live *each = ls_live_first(); each && !found; each = each->next) {
        /* What a thing in the list is, its callback tells. */
        if (each->forked != forked) continue;
        exchange_store *store = LS_LIVE_OWNER(exchange_store, each);
        bool is_it = port_count == 0;
        for (int i = 0; i < port_count; i++) is_it = is_it || store->head.port == ports[i];
        if (is_it && strcmp(store->credentials.job, job) == 0 && try_keep(&store->head)) found = &store->head;
    }
    ls_live_unlock();
    return found;
}
