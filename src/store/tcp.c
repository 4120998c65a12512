/* tcp.c: a store over TCP opens: its server, on a thread of this process, or a connection to it.
 *
 * Ranks start in any order, so a client looks for its server again and again, and has to tell three things apart:
 *
 *   nobody listens there                   try again, until the deadline
 *   a store of another job or secret       it may be about to end: try again for a moment
 *   something that is no store of ours     stays so: an error at once
 *
 * Where ports were derived, all of it means to try the next port, and all again. */
#include "store/tcp.h"

#include "store/credentials.h"
#include "store/exchange.h"
#include "store/prove.h"
#include "store/service.h"
#include "store/stream.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/memory.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SILENCE_MS = 3000,      /* a server answers at once: who says nothing for so long is none of ours */
    OTHER_JOB_MS = 1500,    /* the job before may be about to end */
    FIRST_CONNECT_MS = 300, /* to one address; doubled from round to round, so that a dead one costs little */
    LONGEST_CONNECT_MS = 5000,
    FIRST_PAUSE_MS = 5,
    LONGEST_PAUSE_MS = 200
};

/* Whether a store at `address` may be opened: on a network everyone could be at the other end. */
static ls_status check_secret(const store_endpoint *endpoint, const store_address *address) {
    bool is_waived = false;
    if (endpoint->credentials->secret_bytes > 0 || store_address_is_loopback(address)) return LS_OK;
    LS_TRY(store_may_be_unauthenticated(&is_waived));
    if (is_waived) return LS_OK;
    char text[STORE_ADDRESS_TEXT_BYTES];
    store_address_describe(address, text);
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "the store at %s is beyond this host's loopback, and the job has no secret: name a file with one "
                   "(mode 0600, the same for all ranks) in " STORE_ENV_SECRET_FILE ", or set " STORE_ENV_UNAUTHENTICATED
                   "=1 where everyone on the network is trusted",
                   text);
}

/* --- the server --------------------------------------------------------------------------------------------------- */

typedef struct listeners {
    int sockets[STORE_MOST_ADDRESSES + 1];
    int count;
} listeners;

static void close_listeners(listeners *self) {
    while (self->count > 0) close(self->sockets[--self->count]);
}

/* LS_END: the address is not of this host. The secret is asked for once it listens, when the address is known to be
 * ours. */
static ls_status add_listener(listeners *self, const store_endpoint *endpoint, store_address *address) {
    /* The place is there: one more than addresses in a list. */
    LS_TRY(store_address_listen(address, &self->sockets[self->count]));
    self->count++; /* closed by close_listeners, if it may not be */
    return check_secret(endpoint, address);
}

/* Behind an address that is not this host's own (it is translated on the way): all addresses of the host. */
static ls_status listen_on_any(listeners *self, const store_endpoint *endpoint, int *port) {
    store_address wide = {.bytes = sizeof(struct sockaddr_in6)}, narrow = {.bytes = sizeof(struct sockaddr_in)};
    wide.socket.ss_family = AF_INET6;
    narrow.socket.ss_family = AF_INET;
    store_address_set_port(&wide, *port);
    store_address_set_port(&narrow, *port);
    ls_status status = add_listener(self, endpoint, &wide);
    if (status == LS_OK) *port = store_address_port(&wide);
    if (status != LS_END) return status;
    status = add_listener(self, endpoint, &narrow);
    if (status == LS_OK) *port = store_address_port(&narrow);
    return status;
}

/* Listens on every address of the list that this host has. `port` 0 becomes the one that is found. */
static ls_status listen_on_port(listeners *self, const store_endpoint *endpoint, store_addresses *addresses,
                                int *port) {
    ls_status status = LS_OK;
    for (int i = 0; i < addresses->count && status == LS_OK; i++) {
        store_address *address = &addresses->list[i];
        store_address_set_port(address, *port);
        status = add_listener(self, endpoint, address);
        if (status == LS_OK) *port = store_address_port(address);
        if (status == LS_END) status = LS_OK;
    }
    if (status == LS_OK && self->count == 0)
        status =
            store_address_is_loopback(&addresses->list[0])
                ? ls_fail(LS_ERR_ENVIRONMENT, "\"%s\" is loopback, but no address that this host has", endpoint->host)
                : listen_on_any(self, endpoint, port);
    if (status != LS_OK) close_listeners(self);
    return status == LS_END ? ls_fail(LS_ERR_IO, "this host has no address of IP at all") : status;
}

static ls_status open_server(const store_endpoint *endpoint, store_addresses *addresses, ls_store **store) {
    listeners own = {.count = 0};
    ls_status status = LS_ERR_STATE;
    int port = 0;
    /* LS_ERR_STATE: the port is taken, and the next one derived may not be. */
    for (int i = 0; i < endpoint->port_count && status == LS_ERR_STATE; i++) {
        port = endpoint->ports[i];
        status = listen_on_port(&own, endpoint, addresses, &port);
    }
    store_service *service = NULL;
    ls_store *client = NULL;
    char what[96];
    snprintf(what, sizeof what, "the store's server of this process (port %d)", port);
    LS_TRY(status);
    LS_TRY(store_service_start(&service, endpoint->credentials, own.sockets, own.count));
    status = store_service_open(service, what, &client);
    if (status == LS_OK) {
        client->port = port;
        return store_exchange_wrap(store, client, service, endpoint->credentials);
    }
    store_service_stop(&service);
    return status;
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

/* What the attempts came to so far. */
typedef struct search {
    ls_error last;            /* why the last attempt failed */
    int64_t other_job_end_ns; /* when we stop hoping that another job's store goes away; 0: none was met */
} search;

static ls_status try_address(const store_endpoint *endpoint, const store_address *address, int64_t limit_ms,
                             stream_store *stream) {
    int64_t connect_end_ns = ls_deadline_after_ms(limit_ms), prove_end_ns = ls_deadline_after_ms(SILENCE_MS);
    if (connect_end_ns > endpoint->deadline_ns) connect_end_ns = endpoint->deadline_ns;
    if (prove_end_ns > endpoint->deadline_ns) prove_end_ns = endpoint->deadline_ns;
    LS_TRY(store_address_connect(address, connect_end_ns, &stream->socket));
    ls_status status = store_prove(stream->socket, endpoint->credentials, endpoint->rank, 0, prove_end_ns);
    if (status == LS_OK) return LS_OK;
    close(stream->socket);
    /* The stream goes on to the next address with a socket of its own. */
    stream->socket = -1;
    char text[STORE_ADDRESS_TEXT_BYTES];
    store_address_describe(address, text);
    return ls_fail_within(status, "%s", text);
}

/* Whether a failed attempt is the last word: what listens on a port that was given is not our store, and stays. */
static bool is_final(const store_endpoint *endpoint, search *self, ls_status status) {
    if (status == LS_ERR_IO || status == LS_ERR_MEMORY || status == LS_ERR_INTERNAL) return true;
    /* Where ports were derived, strangers on some of them are expected; a server that is not up yet refuses. */
    if (endpoint->port_count > 1 || status == LS_END || status == LS_ERR_PEER_LOST) return false;
    /* Something that speaks no word of ours, or none at all: that does not change. */
    if (status != LS_ERR_ENVIRONMENT) return true;
    if (self->other_job_end_ns == 0) self->other_job_end_ns = ls_deadline_after_ms(OTHER_JOB_MS);
    return ls_now_ns() > self->other_job_end_ns;
}

/* Every address with every port, once. LS_END: none was it. */
static ls_status search_once(const store_endpoint *endpoint, store_addresses *addresses, int64_t limit_ms, search *self,
                             stream_store *stream) {
    ls_status final = LS_END;
    for (int p = 0; p < endpoint->port_count; p++)
        for (int i = 0; i < addresses->count; i++) {
            store_address *address = &addresses->list[i];
            /* Ports outside, addresses inside: the first port is where the server mostly is. */
            store_address_set_port(address, endpoint->ports[p]);
            const ls_status status = try_address(endpoint, address, limit_ms, stream);
            if (status == LS_OK) return LS_OK;
            ls_error_capture(&self->last, status == LS_END ? LS_ERR_IO : status);
            if (is_final(endpoint, self, status)) final = status; /* another address may be it all the same */
        }
    return final;
}

/* All that helps to find out: where we looked, for how long, what the last attempt met, and what this host has. */
static ls_status fail_to_reach(const store_endpoint *endpoint, const search *self, ls_status status) {
    char interfaces[512];
    store_interfaces_describe(interfaces, sizeof interfaces);
    const char *within = status == LS_ERR_TIMEOUT ? "not reached in time" : "not what is found";
    return ls_fail(status,
                   "the store at %s, port %d, is %s (limit %" PRId64
                   " ms): %s; did rank 0 start, and is the port free? "
                   "This host has %s",
                   endpoint->host, endpoint->ports[0], within, endpoint->timeout_ms,
                   self->last.status ? self->last.text : "no address answers", interfaces);
}

/* Looks again and again, since the server may start after us; at uneven times, since a thousand others look too. */
static ls_status connect_to_server(const store_endpoint *endpoint, store_addresses *addresses, stream_store *stream) {
    search self = {.other_job_end_ns = 0};
    int64_t pause_ms = FIRST_PAUSE_MS, limit_ms = FIRST_CONNECT_MS;
    for (;;) {
        const ls_status status = search_once(endpoint, addresses, limit_ms, &self, stream);
        if (status == LS_OK) return LS_OK;
        const int64_t now_ns = ls_now_ns();
        const bool is_late = now_ns >= endpoint->deadline_ns;
        const bool is_taken = (status == LS_ERR_TIMEOUT && !is_late) || status == LS_ERR_FORMAT;
        if (status != LS_END) return fail_to_reach(endpoint, &self, is_taken ? LS_ERR_STATE : status);
        if (is_late) return fail_to_reach(endpoint, &self, LS_ERR_TIMEOUT);
        /* The clock's last digits serve as the random number that this needs. */
        int64_t until_ns = now_ns + pause_ms * LS_NS_PER_MS / 2 + now_ns % (pause_ms * LS_NS_PER_MS);
        if (until_ns > endpoint->deadline_ns) until_ns = endpoint->deadline_ns;
        ls_sleep_until(until_ns);
        pause_ms = pause_ms * 2 > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS : pause_ms * 2;
        limit_ms = limit_ms * 2 > LONGEST_CONNECT_MS ? LONGEST_CONNECT_MS : limit_ms * 2;
    }
}

/* Leaves the addresses that may be used without a secret, if there is none. */
static ls_status keep_permitted(const store_endpoint *endpoint, store_addresses *addresses) {
    ls_status status = LS_OK;
    int kept = 0;
    for (int i = 0; i < addresses->count; i++) {
        const ls_status judged = check_secret(endpoint, &addresses->list[i]);
        if (judged == LS_OK)
            addresses->list[kept++] = addresses->list[i];
        else
            status = judged;
    }
    addresses->count = kept;
    return kept > 0 ? LS_OK : status;
}

static ls_status open_client(const store_endpoint *endpoint, store_addresses *addresses, ls_store **store) {
    stream_store *stream = NULL;
    LS_TRY(keep_permitted(endpoint, addresses));
    LS_TRY(stream_create(&stream, "the store's server at %s, port %d, of rank 0", endpoint->host, endpoint->ports[0]));
    ls_store *client = &stream->head;
    const ls_status status = connect_to_server(endpoint, addresses, stream);
    if (status == LS_OK) return store_exchange_wrap(store, client, NULL, endpoint->credentials);
    ls_store_close(&client);
    return status;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* A name service that is only about to know the name is asked again. */
static ls_status resolve(const store_endpoint *endpoint, store_addresses *addresses) {
    ls_status status;
    while ((status = store_resolve(endpoint->host, addresses)) == LS_END) {
        if (ls_now_ns() >= endpoint->deadline_ns) return LS_ERR_ENVIRONMENT;
        ls_sleep_until(ls_now_ns() + LONGEST_PAUSE_MS * LS_NS_PER_MS);
    }
    return status;
}

ls_status store_open_endpoint(ls_store **store, const store_endpoint *endpoint) {
    *store = NULL;
    store_addresses addresses;
    if (endpoint->addresses) /* Told by rank 0 itself: nothing is to be looked up. */
        addresses = *endpoint->addresses;
    else
        LS_TRY(resolve(endpoint, &addresses));
    return endpoint->is_server ? open_server(endpoint, &addresses, store) : open_client(endpoint, &addresses, store);
}

ls_status ls_store_open_tcp(ls_store **store, const char *host, int port, bool is_server, int64_t timeout_ms) {
    if (!store || !host) return ls_fail(LS_ERR_ARGUMENT, "cannot open a store over TCP: the place or the host is NULL");
    *store = NULL;
    if (port < !is_server || port > 65535)
        return ls_fail(LS_ERR_ARGUMENT, "cannot open a store over TCP: %d is no port%s", port,
                       port ? "" : " to connect to");
    store_credentials credentials;
    LS_TRY(store_credentials_read(&credentials));
    if (timeout_ms == 0) timeout_ms = STORE_DEFAULT_TIMEOUT_MS;
    const store_endpoint endpoint = {.host = host,
                                     .ports = &port,
                                     .port_count = 1,
                                     .is_server = is_server,
                                     .rank = ls_context_here()->rank,
                                     .credentials = &credentials,
                                     .deadline_ns = ls_deadline_after_ms(timeout_ms),
                                     .timeout_ms = timeout_ms};
    const ls_status status = store_open_endpoint(store, &endpoint);
    explicit_bzero(&credentials, sizeof credentials);
    return status;
}
