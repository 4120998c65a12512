/* announcement.c: one record, which all ranks of a job read on processors of one kind.
 *
 * It is told whatever becomes of it: rank 0 serves the store first, or fails to, and then says where it is, or why
 * there is none. So nobody waits for an address that will never be told. */
#include "store/announcement.h"

#include "store/credentials.h"
#include "store/exchange.h"
#include "store/interfaces.h"
#include "store/pmix.h"

#include "base/error.h"

#include <string.h>

typedef struct announcement {
    char magic[8];
    ls_error outcome; /* rank 0's failure */
    int32_t port;
    store_addresses addresses;
    store_credentials credentials;
} announcement;

static const char magic[8] = "lstore1a";

static ls_status find_addresses(store_addresses *addresses) {
    store_interfaces interfaces;
    LS_TRY(store_interfaces_find(false, &interfaces));
    /* All that others may reach, the best first: which one leads here, each of them finds out. */
    for (addresses->count = 0; addresses->count < interfaces.count; addresses->count++)
        addresses->list[addresses->count] = interfaces.list[addresses->count].address;
    return LS_OK;
}

/* On rank 0: the store is served, and `made` says where. */
static ls_status serve(ls_store **store, const store_endpoint *wanted, announcement *made) {
    LS_TRY(find_addresses(&made->addresses));
    *store = store_exchange_find_served(made->credentials.job, NULL, 0);
    if (*store) {
        /* What the server asks for already: ranks that come for a second group are told the same. */
        made->credentials = *(*store)->credentials;
    } else {
        static const int any[4]; /* on all addresses the same: one that is free on the first may be taken on another */
        store_endpoint endpoint = *wanted;
        if (made->credentials.secret_bytes == 0) LS_TRY(store_credentials_draw(&made->credentials));
        endpoint.host = "this host";
        endpoint.addresses = &made->addresses;
        endpoint.ports = any;
        endpoint.port_count = sizeof any / sizeof any[0];
        endpoint.credentials = &made->credentials;
        LS_TRY(store_open_endpoint(store, &endpoint));
    }
    made->port = ls_store_port(*store);
    return LS_OK;
}

static ls_status reach(ls_store **store, const store_endpoint *wanted, const announcement *told) {
    char host[STORE_ADDRESS_TEXT_BYTES];
    const int port = told->port;
    store_endpoint endpoint = *wanted;
    if (memcmp(told->magic, magic, sizeof magic) != 0)
        return ls_fail(LS_ERR_FORMAT, "what rank 0 says through PMIx is not of this version of Lockstep");
    /* Rank 0 could not serve: all ranks end with its sentence. */
    LS_TRY(ls_error_raise(&told->outcome));
    store_address_describe(&told->addresses.list[0], host);
    *strrchr(host, ':') = '\0'; /* the port is not in it yet */
    endpoint.host = host;
    endpoint.addresses = &told->addresses;
    endpoint.ports = &port;
    endpoint.port_count = 1;
    endpoint.credentials = &told->credentials;
    return store_open_endpoint(store, &endpoint);
}

ls_status store_announced_open(ls_store **store, const store_endpoint *wanted) {
    announcement word = {.port = 0};
    *store = NULL;
    ls_status status = LS_OK;
    if (wanted->is_server) {
        memcpy(word.magic, magic, sizeof word.magic);
        word.credentials = *wanted->credentials;
        status = serve(store, wanted, &word);
        /* The others wait in PMIx's fence: they get the reason instead of an address. */
        if (status != LS_OK) ls_error_capture(&word.outcome, ls_fail_within(status, "rank 0"));
    }
    const ls_status told = store_pmix_tell(wanted->rank, &word, sizeof word, wanted->timeout_ms);
    if (status == LS_OK) status = told;
    if (status == LS_OK && !wanted->is_server) status = reach(store, wanted, &word);
    /* The secret leaves no copy on the stack. */
    explicit_bzero(&word.credentials, sizeof word.credentials);
    if (status != LS_OK) ls_store_close(store);
    return status;
}
