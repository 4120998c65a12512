/* meeting.c: all ranks meet at the store that rank 0 serves. Keys, under lockstep/meeting/:
 *
 *     world             "3 rank 0 (host, process 77)": the first rank's world size, to compare with one's own
 *     rank/R            which process is rank R: a second one is told, and all others with it
 *     opened/R          how often rank R has come; its n-th time it takes part in the n-th meeting
 *     backend/N         "shm for rank 0 (host, process 77)": what the first rank opens in the N-th meeting, to compare
 *     arrived/N         how many ranks have come to the N-th meeting
 *     verdict/N         LS_OK from the last who came, or the first error: all ranks end the meeting with it
 *     told/N            how many know of an error: rank 0 keeps the server a moment for those who do not yet
 *
 * A rank that opens a group anew may find the server of the meeting before, which is about to be closed. Then it
 * begins again, with the server that rank 0 opens next: so groups may be opened and closed on one port in turn. */
#include "store/rendezvous.h"

#include "store/address.h"
#include "store/announcement.h"
#include "store/credentials.h"
#include "store/exchange.h"
#include "store/tcp.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS "lockstep/meeting/"

enum { IDENTITY_BYTES = 160, TEXT_BYTES = 256, LINGER_MS = 1500, LOOK_AGAIN_MS = 10 };

typedef struct meeting {
    const store_rendezvous *found;
    ls_store *store;
    int64_t number;
    int64_t deadline_ns, timeout_ms;
    char identity[IDENTITY_BYTES];
} meeting;

/* --- who we are --------------------------------------------------------------------------------------------------- */

/* "host, process 77 started 12345": the start keeps apart processes of one number in containers of one name. */
static void identify(char identity[IDENTITY_BYTES]) {
    char host[STORE_HOST_BYTES] = "", line[1024] = "";
    unsigned long long started = 0;
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "a host");
    FILE *file = fopen("/proc/self/stat", "re");
    if (file) {
        const char *end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        if (end)
            sscanf(end + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                   &started);
        fclose(file);
    }
    snprintf(identity, IDENTITY_BYTES, "%s, process %d, started %llu", host, (int)getpid(), started);
}

/* --- the verdict -------------------------------------------------------------------------------------------------- */

/* All ranks end with the first verdict. */
static ls_status pronounce(const meeting *self, ls_status status) {
    char key[LS_STORE_KEY_BYTES];
    ls_error verdict = {.status = LS_OK};
    /* With the sentence: all ranks say the same, whoever found it. */
    if (status != LS_OK) ls_error_capture(&verdict, status);
    snprintf(key, sizeof key, KEYS "verdict/%" PRId64, self->number);
    /* The first word stands: two ranks may find two faults. */
    const ls_status told = ls_store_compare_set(self->store, key, NULL, 0, &verdict, sizeof verdict, NULL);
    return status == LS_OK ? told : ls_error_raise(&verdict);
}

/* "rank 2, rank 5": who has not come. */
static ls_status describe_missing(const meeting *self, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < self->found->world_size && used < bytes; rank++) {
        char key[LS_STORE_KEY_BYTES];
        bool is_there = false;
        snprintf(key, sizeof key, KEYS "opened/%d", rank);
        LS_TRY(ls_store_check(self->store, key, &is_there));
        if (!is_there) used += (size_t)snprintf(text + used, bytes - used, "%srank %d", used ? ", " : "", rank);
    }
    return LS_OK;
}

static ls_status await_verdict(const meeting *self) {
    char key[LS_STORE_KEY_BYTES], missing[TEXT_BYTES];
    ls_error verdict = {.status = LS_OK};
    size_t bytes = 0;
    snprintf(key, sizeof key, KEYS "verdict/%" PRId64, self->number);
    const ls_status status =
        ls_store_get(self->store, key, &verdict, sizeof verdict, &bytes, ls_left_ms(self->deadline_ns));
    if (status == LS_ERR_TIMEOUT) {
        const ls_status asked = describe_missing(self, missing, sizeof missing);
        if (asked != LS_OK)
            return ls_fail_within(asked, "rank %d", self->found->rank); /* the store is stopped, or gone */
        return pronounce(self, ls_fail(status,
                                       "rank %d: the ranks did not meet within %" PRId64
                                       " ms; missing: %s; see whether they were started and what they said last",
                                       self->found->rank, self->timeout_ms, missing[0] ? missing : "nobody is"));
    }
    LS_TRY(status);
    if (bytes != sizeof verdict) return ls_fail(LS_ERR_FORMAT, "store key \"%s\" holds no verdict", key);
    verdict.text[sizeof verdict.text - 1] = '\0';
    return ls_error_raise(&verdict);
}

/* After an error. Rank 0 gives up its server when all others know, or soon: they would look for it in vain. Where the
 * environment is wrong nobody knows how many they are. */
static void tell(const meeting *self, ls_status status) {
    char key[LS_STORE_KEY_BYTES];
    int64_t told = 0;
    const int64_t end_ns = ls_deadline_after_ms(LINGER_MS);
    snprintf(key, sizeof key, KEYS "told/%" PRId64, self->number);
    /* Adding 0 is a look: the server itself does not count. */
    const bool is_server = self->found->rank == 0;
    /* One that is gone is never told. */
    const int64_t there = self->found->world_size - 1 - (status == LS_ERR_PEER_LOST);
    const int64_t others = status == LS_ERR_ENVIRONMENT ? INT64_MAX : there;
    while (ls_store_add(self->store, key, !is_server, &told) == LS_OK && is_server && told < others &&
           ls_now_ns() < end_ns)
        ls_sleep_until(ls_now_ns() + LOOK_AGAIN_MS * LS_NS_PER_MS);
}

/* --- the steps ---------------------------------------------------------------------------------------------------- */

/* What stands at `key`, after an attempt to put `own` there. */
static ls_status put_first(const meeting *self, const char *key, const char *own, char *there, size_t bytes) {
    size_t got = 0;
    bool is_ours = false;
    LS_TRY(ls_store_compare_set(self->store, key, NULL, 0, own, strlen(own), &is_ours));
    snprintf(there, bytes, "%s", own);
    if (is_ours) return LS_OK;
    LS_TRY(ls_store_get(self->store, key, there, bytes - 1, &got, self->timeout_ms));
    there[got] = '\0';
    return LS_OK;
}

static ls_status check_world(const meeting *self) {
    char own[TEXT_BYTES], there[TEXT_BYTES];
    snprintf(own, sizeof own, "%d rank %d (%s)", self->found->world_size, self->found->rank, self->identity);
    LS_TRY(put_first(self, KEYS "world", own, there, sizeof there));
    char *speaker = NULL;
    if (strtol(there, &speaker, 10) == self->found->world_size) return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT, "%s is \"%d\" to rank %d (%s), but \"%.*s\" to%s: all ranks need the same",
                   self->found->size_name, self->found->world_size, self->found->rank, self->identity,
                   (int)(speaker - there), there, speaker);
}

static ls_status check_rank(const meeting *self) {
    char key[LS_STORE_KEY_BYTES], there[TEXT_BYTES];
    snprintf(key, sizeof key, KEYS "rank/%d", self->found->rank);
    LS_TRY(put_first(self, key, self->identity, there, sizeof there));
    if (strcmp(there, self->identity) == 0) return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT, "%s is \"%d\" to two processes: %s, and %s; each rank is one process",
                   self->found->rank_name, self->found->rank, there, self->identity);
}

/* Of each meeting anew: a program may open groups over several backends in turn. */
static ls_status check_backend(const meeting *self) {
    const char *backend = self->found->backend ? self->found->backend : "any";
    char key[LS_STORE_KEY_BYTES], own[TEXT_BYTES], there[TEXT_BYTES];
    snprintf(key, sizeof key, KEYS "backend/%" PRId64, self->number);
    snprintf(own, sizeof own, "%s for rank %d (%s)", backend, self->found->rank, self->identity);
    LS_TRY(put_first(self, key, own, there, sizeof there));
    const size_t length = strcspn(there, " ");
    if (length == strlen(backend) && memcmp(there, backend, length) == 0) return LS_OK;
    return ls_fail(
        LS_ERR_ENVIRONMENT,
        "the backend is to be %s, but %s: all ranks need the same in LOCKSTEP_BACKEND or the option backend, "
        "or nothing there",
        own, there);
}

/* Which meeting this is to us; rank 0 removes what is left of the one before. */
static ls_status count_opening(meeting *self) {
    char key[LS_STORE_KEY_BYTES];
    snprintf(key, sizeof key, KEYS "opened/%d", self->found->rank);
    /* Counted by the store: a rank that was started anew by hand does not know how often it was there. */
    LS_TRY(ls_store_add(self->store, key, 1, &self->number));
    if (self->found->rank != 0 || self->number == 1) return LS_OK;
    snprintf(key, sizeof key, KEYS "arrived/%" PRId64, self->number - 1);
    LS_TRY(ls_store_delete(self->store, key, NULL));
    snprintf(key, sizeof key, KEYS "backend/%" PRId64, self->number - 1);
    LS_TRY(ls_store_delete(self->store, key, NULL));
    snprintf(key, sizeof key, KEYS "verdict/%" PRId64, self->number - 1);
    return ls_store_delete(self->store, key, NULL);
}

static ls_status arrive(const meeting *self) {
    char key[LS_STORE_KEY_BYTES];
    int64_t arrived = 0;
    snprintf(key, sizeof key, KEYS "arrived/%" PRId64, self->number);
    LS_TRY(ls_store_add(self->store, key, 1, &arrived));
    return arrived == self->found->world_size ? pronounce(self, LS_OK) : LS_OK;
}

static ls_status meet(meeting *self) {
    self->number = 1;
    ls_point("rendezvous.connected");
    ls_status status = check_world(self);
    if (status == LS_OK) status = check_rank(self);
    if (status == LS_OK) status = count_opening(self);
    if (status == LS_OK) status = check_backend(self);
    if (status == LS_ERR_ENVIRONMENT) return pronounce(self, status);
    LS_TRY(status);
    ls_point("rendezvous.checked");
    LS_TRY(arrive(self));
    ls_point("rendezvous.arrived");
    LS_TRY(await_verdict(self));
    ls_point("rendezvous.met");
    return LS_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* A name that means loopback here, on several hosts: nobody else could come. */
static ls_status check_reach(const store_rendezvous *found) {
    store_addresses addresses;
    if (found->hosts < 2 || store_resolve(found->host, &addresses) != LS_OK) return LS_OK;
    for (int i = 0; i < addresses.count; i++)
        if (!store_address_is_loopback(&addresses.list[i])) return LS_OK;
    char text[STORE_ADDRESS_TEXT_BYTES], interfaces[512];
    store_address_describe(&addresses.list[0], text);
    store_interfaces_describe(interfaces, sizeof interfaces);
    return ls_fail(
        LS_ERR_ENVIRONMENT,
        "rank 0 is to be met at \"%s\", which is %.*s on this host: ranks of other hosts cannot reach that; set "
        "MASTER_ADDR to an address of rank 0's host; this one has %s",
        found->host, (int)(strrchr(text, ':') - text), text, interfaces);
}

/* Rank 0 has one server at a time: its next group meets there as well. */
static ls_status open_store(const store_rendezvous *found, const store_endpoint *endpoint, ls_store **store) {
    if (found->asks_pmix) return store_announced_open(store, endpoint);
    *store = NULL;
    if (endpoint->is_server) /* A second group of this process: the others come to the port that it serves already. */
        *store = store_exchange_find_served(endpoint->credentials->job, endpoint->ports, endpoint->port_count);
    return *store ? LS_OK : store_open_endpoint(store, endpoint);
}

ls_status store_rendezvous_meet(const store_rendezvous *found, int64_t timeout_ms, ls_store **store) {
    *store = NULL;
    /* The launcher counts its ranks itself, and tells of those that die: no meeting is needed. */
    if (found->is_launched) return ls_store_open_inherited(store);
    LS_TRY(check_reach(found));
    store_credentials credentials;
    LS_TRY(store_credentials_read(&credentials));
    snprintf(credentials.job, sizeof credentials.job, "%s", found->job);
    if (timeout_ms == 0) timeout_ms = STORE_DEFAULT_TIMEOUT_MS;
    const store_endpoint endpoint = {.host = found->host,
                                     .ports = found->ports,
                                     .port_count = found->port_count,
                                     .is_server = found->rank == 0,
                                     .rank = found->rank,
                                     .credentials = &credentials,
                                     .deadline_ns = ls_deadline_after_ms(timeout_ms),
                                     .timeout_ms = timeout_ms};
    meeting self = {.found = found, .deadline_ns = endpoint.deadline_ns, .timeout_ms = timeout_ms};
    identify(self.identity);
    const int64_t outer_ns = ls_context_limit(endpoint.deadline_ns);
    ls_error outcome;
    ls_status status = LS_OK;
    do { /* LS_ERR_ABORTED: rank 0 has closed that server, and opens another */
        status = open_store(found, &endpoint, &self.store);
        if (status != LS_OK) break;
        status = meet(&self);
        if (status != LS_OK) {
            ls_error_capture(&outcome, status);
            if (status != LS_ERR_ABORTED) tell(&self, status);
            ls_store_close(&self.store);
            ls_error_raise(&outcome);
        }
    } while (status == LS_ERR_ABORTED && found->rank != 0 && !found->asks_pmix);
    ls_context_limit(outer_ns);
    explicit_bzero(&credentials, sizeof credentials);
    *store = self.store;
    return status;
}
