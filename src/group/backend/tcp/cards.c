/* cards.c: keys: PREFIX/card<round>/<rank> a rank's card until rank 0 has read it, PREFIX/cards<round> all of them. */
#include "group/backend/tcp/cards.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"
#include "group/compare.h"
#include "group/withdrawal.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_SLICE_MS 50
#define LONGEST_SLICE_MS 2000
#define LAST_WORD_MS 300 /* before a rank is said to have died */

void tcp_place_pack(const store_address *address, tcp_place *place) {
    *place = (tcp_place){.is_wide = address->socket.ss_family == AF_INET6};
    if (place->is_wide) {
        const struct sockaddr_in6 *wide = (const struct sockaddr_in6 *)&address->socket;
        place->port = wide->sin6_port;
        memcpy(place->number, &wide->sin6_addr, 16);
    } else {
        const struct sockaddr_in *narrow = (const struct sockaddr_in *)&address->socket;
        place->port = narrow->sin_port;
        memcpy(place->number, &narrow->sin_addr, 4);
    }
}

void tcp_place_unpack(const tcp_place *place, store_address *address) {
    *address = (store_address){.bytes = place->is_wide ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)};
    if (place->is_wide) {
        struct sockaddr_in6 *wide = (struct sockaddr_in6 *)&address->socket;
        wide->sin6_family = AF_INET6;
        wide->sin6_port = place->port;
        memcpy(&wide->sin6_addr, place->number, 16);
    } else {
        struct sockaddr_in *narrow = (struct sockaddr_in *)&address->socket;
        narrow->sin_family = AF_INET;
        narrow->sin_port = place->port;
        memcpy(&narrow->sin_addr, place->number, 4);
    }
}

int64_t tcp_cards_slice_ms(const backend_place *place, int64_t former_ms) {
    const int64_t left_ms = (place->deadline_ns - ls_now_ns()) / LS_NS_PER_MS;
    int64_t slice_ms = former_ms ? 2 * former_ms : FIRST_SLICE_MS + place->world_size;
    if (slice_ms > LONGEST_SLICE_MS) slice_ms = LONGEST_SLICE_MS;
    if (slice_ms > left_ms) slice_ms = left_ms;
    return slice_ms > 1 ? slice_ms : 1; /* to the store 0 is its default */
}

/* --- failing together --------------------------------------------------------------------------------------------- */

ls_status tcp_cards_withdraw(const backend_place *place, ls_status status) {
    return withdrawal_say(place->store, place->prefix, place->world_size, status);
}

/* A wait, and not a look: a store whose ranks are watched ends it when one of them is gone. */
static ls_status look_for_failure(const backend_place *place, int64_t timeout_ms) {
    ls_error said;
    const ls_status status = withdrawal_read(place->store, place->prefix, timeout_ms, &said);
    if (status != LS_OK) return ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
    return ls_error_raise(&said);
}

ls_status tcp_cards_look_around(const backend_place *place) {
    return look_for_failure(place, 1);
}

ls_status tcp_cards_hear_last_word(const backend_place *place) {
    return look_for_failure(place, LAST_WORD_MS);
}

ls_status tcp_cards_time_is_up(const backend_place *place, const char *missing) {
    /* Who gave up meanwhile is not missing. */
    LS_TRY(look_for_failure(place, 1));
    return ls_fail(LS_ERR_TIMEOUT,
                   "rank %d: the ranks did not meet within %" PRId64
                   " ms; missing: %s; see whether they were started and what they said last",
                   rank_name(place->names, place->rank), place->timeout_ms, missing);
}

/* --- the exchange ------------------------------------------------------------------------------------------------- */

static void key_of_card(const backend_place *place, int round, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/card%d/%d", place->prefix, round, rank);
}

static void key_of_all(const backend_place *place, int round, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/cards%d", place->prefix, round);
}

/* Those whose card rank 0 has read are there. */
static void describe_missing(const backend_place *place, int round, int read, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < place->world_size && used + 1 < bytes; rank++) {
        char key[LS_STORE_KEY_BYTES];
        bool is_set = false;
        key_of_card(place, round, rank, key);
        /* Of a store that fails nothing is known, so nobody is blamed. */
        if (rank < read || rank == place->rank || ls_store_check(place->store, key, &is_set) != LS_OK || is_set)
            continue;
        used +=
            (size_t)snprintf(text + used, bytes - used, "%srank %d", used ? ", " : "", rank_name(place->names, rank));
    }
    if (!used) snprintf(text, bytes, "none; they are slow");
}

/* Its process tells, not its connections, which there are not yet. */
static bool is_dead(const tcp_card *own, const tcp_card *card) {
    if (card->process_space == 0 || card->process_space != own->process_space || card->process == own->process ||
        strncmp(card->host_id, own->host_id, sizeof card->host_id) != 0)
        return false;
    struct pollfd process = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)card->process, 0), .events = POLLIN};
    if (process.fd < 0) return errno == ESRCH;
    const bool has_ended = ls_descriptors_wait(&process, 1, 0) == 1;
    close(process.fd);
    return has_ended;
}

ls_status tcp_cards_examine(const backend_place *place, const tcp_card *own, const tcp_card *card, int rank) {
    if (rank == place->rank || !is_dead(own, card)) return LS_OK;
    LS_TRY(tcp_cards_hear_last_word(place)); /* it may have said why */
    return ls_fail(LS_ERR_PEER_LOST,
                   "rank %d (%.63s, process %" PRId64 ") died while the group was opened; start the job again",
                   rank_name(place->names, rank), card->host, card->process);
}

/* A rank that waits for rank 0 looks at it as soon as it has come. */
static int look_for_rank_0(const backend_place *place, int round, tcp_card *cards) {
    char key[LS_STORE_KEY_BYTES];
    size_t found = 0;
    key_of_card(place, round, 0, key);
    return ls_store_get(place->store, key, &cards[0], sizeof cards[0], &found, 1) == LS_OK && found == sizeof cards[0];
}

/* Waits for `key`. The first `known` cards are there. */
static ls_status await(const backend_place *place, int round, const char *key, void *value, size_t bytes,
                       tcp_card *cards, int known) {
    const tcp_card own = cards[place->rank];
    for (int64_t slice_ms = 0;;) {
        size_t found = 0;
        slice_ms = tcp_cards_slice_ms(place, slice_ms);
        const ls_status status = ls_store_get(place->store, key, value, bytes, &found, slice_ms);
        if (status == LS_OK && found == bytes) return LS_OK;
        if (status == LS_OK || status == LS_ERR_ARGUMENT)
            return ls_fail(LS_ERR_MISMATCH,
                           "rank %d: store key \"%s\" holds %zu bytes, not %zu; do all ranks have one world size and "
                           "the same version of Lockstep?",
                           rank_name(place->names, place->rank), key, found, bytes);
        if (status != LS_ERR_TIMEOUT && status != LS_ERR_PEER_LOST)
            return ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
        /* What a rank said before it ended goes before what the store says of it. */
        LS_TRY(look_for_failure(place, 1));
        if (known == 0) known = look_for_rank_0(place, round, cards);
        for (int rank = 0; rank < known; rank++) LS_TRY(tcp_cards_examine(place, &own, &cards[rank], rank));
        if (ls_now_ns() < place->deadline_ns) continue;
        char missing[512];
        describe_missing(place, round, known, missing, sizeof missing);
        return tcp_cards_time_is_up(place, missing);
    }
}

static ls_status publish(const backend_place *place, int round, const tcp_card *own) {
    char key[LS_STORE_KEY_BYTES];
    key_of_card(place, round, place->rank, key);
    const ls_status status = ls_store_set(place->store, key, own, sizeof *own);
    if (status != LS_OK) return ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
    ls_point("tcp.meeting.published");
    return LS_OK;
}

static ls_status lead(const backend_place *place, int round, tcp_card *cards) {
    char key[LS_STORE_KEY_BYTES];
    for (int rank = 1; rank < place->world_size; rank++) {
        key_of_card(place, round, rank, key);
        LS_TRY(await(place, round, key, &cards[rank], sizeof cards[rank], cards, rank));
    }
    key_of_all(place, round, key);
    const ls_status status = ls_store_set(place->store, key, cards, (size_t)place->world_size * sizeof *cards);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "rank %d", rank_name(place->names, 0));
}

static ls_status follow(const backend_place *place, int round, tcp_card *cards) {
    char key[LS_STORE_KEY_BYTES];
    key_of_all(place, round, key);
    return await(place, round, key, cards, (size_t)place->world_size * sizeof *cards, cards, 0);
}

/* Whoever can write to the store is of the job, but may run another version. */
static ls_status check(const backend_place *place, const tcp_card *own, tcp_card *cards) {
    const int self = rank_name(place->names, place->rank);
    for (int rank = 0; rank < place->world_size; rank++) {
        const int name = rank_name(place->names, rank);
        tcp_card *card = &cards[rank];
        if (card->version != own->version || card->place_count > TCP_MOST_PLACES)
            return ls_fail(LS_ERR_MISMATCH, "rank %d runs another version of Lockstep than rank %d", name, self);
        if (card->wants_tls != own->wants_tls)
            return ls_fail(LS_ERR_ENVIRONMENT, "rank %d wants TLS, rank %d does not: LOCKSTEP_TLS has to be the same",
                           card->wants_tls ? name : self, card->wants_tls ? self : name);
        if (card->checks_calls != own->checks_calls)
            return checks_differ(card->checks_calls ? name : self, card->checks_calls ? self : name);
        if (card->relaxed_order != cards[0].relaxed_order)
            return ls_fail(LS_ERR_MISMATCH,
                           "rank %d and rank %d do not agree on relaxed_order; set it on all ranks alike", name,
                           rank_name(place->names, 0));
        card->host_id[sizeof card->host_id - 1] = card->host[sizeof card->host - 1] = '\0';
    }
    return LS_OK;
}

ls_status tcp_cards_exchange(const backend_place *place, int round, const tcp_card *own, tcp_card *cards) {
    cards[place->rank] = *own;
    LS_TRY(publish(place, round, own));
    LS_TRY(place->rank == 0 ? lead(place, round, cards) : follow(place, round, cards));
    ls_point("tcp.meeting.listed");
    return check(place, own, cards);
}

void tcp_cards_sweep(const backend_place *place, int rounds) {
    char key[LS_STORE_KEY_BYTES];
    for (int round = 0; round < rounds; round++) {
        key_of_card(place, round, place->rank, key);
        ls_store_delete(place->store, key, NULL);
        if (place->rank != 0) continue;
        key_of_all(place, round, key);
        ls_store_delete(place->store, key, NULL);
    }
}

void tcp_cards_forget_failure(const backend_place *place) {
    if (place->rank == 0 && place->stale_prefix) withdrawal_forget(place->store, place->stale_prefix);
}
