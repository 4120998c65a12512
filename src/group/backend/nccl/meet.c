/* meet.c: ranks meet in the store, and NCCL connects them.
 *
 * Keys under the group's prefix: hello/R, how rank R's part went so far, and whether it compares calls; verdict, from rank
 * 0, with NCCL's id; at/R, the operation that rank R waits for, from its connecting on; lost and left, in notice.c. So a
 * rank without a GPU or a library is an error on all ranks at once, and NCCL is not called before all are there. */
#include "group/backend/nccl/state.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How often we look whether NCCL is through, and whether another rank has given up. */
#define ASK_NS (1 * LS_NS_PER_MS)
#define LOOK_NS (100 * LS_NS_PER_MS)

/* Beyond the limit, for the verdict of a rank 0 that came at the same time. */
#define SLACK_MS 2000

typedef struct nccl_hello {
    ls_error why;
    bool checks_calls;
} nccl_hello;

typedef struct nccl_verdict {
    ls_error why;
    nccl_unique_id id;
} nccl_verdict;

void nccl_key(const char *prefix, const char *what, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/nccl/%s/%d", prefix, what, rank);
}

static ls_status get(const backend_place *place, const char *key, void *value, size_t expected, int64_t timeout_ms) {
    size_t bytes = 0;
    LS_TRY(ls_store_get(place->store, key, value, expected, &bytes, timeout_ms));
    if (bytes == expected) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "rank %d: store key \"%s\" holds %zu bytes where %zu were expected", place->rank, key,
                   bytes, expected);
}

static void append_rank(char *text, size_t bytes, int rank) {
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%srank %d", used ? ", " : "", rank);
}

static ls_status not_all_came(const backend_place *place, const char *missing) {
    return ls_fail(LS_ERR_TIMEOUT,
                   "rank %d: not all of the %d ranks opened the group within %" PRId64
                   " ms; missing: %s; see what they do, or raise timeout_ms",
                   place->rank, place->world_size, place->timeout_ms, missing);
}

/* Rank 0: what `rank` says, or that the two would call differently. */
static ls_status hear(const backend_place *place, int rank, bool checks_calls, ls_error *said) {
    char key[LS_STORE_KEY_BYTES];
    nccl_hello hello;
    nccl_key(place->prefix, "hello", rank, key);
    LS_TRY(get(place, key, &hello, sizeof hello, ls_left_ms(place->deadline_ns)));
    *said = hello.why;
    if (said->status == LS_OK && hello.checks_calls != checks_calls)
        ls_error_capture(said, checks_differ(checks_calls ? 0 : rank, checks_calls ? rank : 0));
    return LS_OK;
}

/* Rank 0: what the others say, or who is not there when the time is up. */
static ls_status collect(const backend_place *place, ls_status status, bool checks_calls) {
    char missing[512] = "";
    ls_error first = {.status = LS_OK}, said;
    LS_TRY(status);
    for (int rank = 1; rank < place->world_size; rank++) {
        const ls_status heard = hear(place, rank, checks_calls, &said);
        if (heard == LS_ERR_TIMEOUT)
            append_rank(missing, sizeof missing, rank);
        else if (heard != LS_OK)
            return heard;
        else if (first.status == LS_OK)
            first = said;
    }
    if (first.status != LS_OK) return ls_error_raise(&first);
    return missing[0] ? not_all_came(place, missing) : LS_OK;
}

static ls_status lead(const backend_place *place, ls_status status, bool checks_calls, const nccl_unique_id *id) {
    char key[LS_STORE_KEY_BYTES];
    nccl_verdict verdict = {.id = *id};
    ls_error_capture(&verdict.why, collect(place, status, checks_calls));
    nccl_key(place->prefix, "verdict", 0, key);
    const ls_status said = ls_store_set(place->store, key, &verdict, sizeof verdict);
    return verdict.why.status == LS_OK ? said : ls_error_raise(&verdict.why);
}

/* There is no verdict: who has not said hello? Rank 0 does not say it. */
static ls_status no_verdict(const backend_place *place) {
    char key[LS_STORE_KEY_BYTES], missing[512] = "rank 0";
    for (int rank = 1; rank < place->world_size; rank++) {
        bool is_there = false;
        nccl_key(place->prefix, "hello", rank, key);
        LS_TRY(ls_store_check(place->store, key, &is_there));
        if (!is_there) append_rank(missing, sizeof missing, rank);
    }
    return not_all_came(place, missing);
}

static ls_status follow(const backend_place *place, ls_status status, bool checks_calls, nccl_unique_id *id) {
    char key[LS_STORE_KEY_BYTES];
    nccl_hello hello = {.checks_calls = checks_calls};
    nccl_verdict verdict;
    ls_error_capture(&hello.why, status);
    nccl_key(place->prefix, "hello", place->rank, key);
    LS_TRY(ls_store_set(place->store, key, &hello, sizeof hello));
    const int64_t left = ls_left_ms(place->deadline_ns);
    nccl_key(place->prefix, "verdict", 0, key);
    const ls_status heard = get(place, key, &verdict, sizeof verdict, left < 0 ? left : left + SLACK_MS);
    if (heard == LS_ERR_TIMEOUT) return no_verdict(place);
    LS_TRY(heard);
    *id = verdict.id;
    return ls_error_raise(&verdict.why);
}

ls_status nccl_meet(const backend_place *place, ls_status status, bool checks_calls, nccl_unique_id *id) {
    if (status != LS_OK) ls_fail_within(status, "rank %d", place->rank);
    if (place->world_size == 1) return status;
    return place->rank == 0 ? lead(place, status, checks_calls, id) : follow(place, status, checks_calls, id);
}

/* --- connecting ----------------------------------------------------------------------------------------------------- */

static ls_status too_late(nccl_group *nccl, const backend_place *place) {
    char missing[512];
    if (nccl_list_missing(nccl, 0, missing, sizeof missing) > 0) return not_all_came(place, missing);
    return ls_fail(LS_ERR_TIMEOUT,
                   "rank %d: NCCL has not connected the %d ranks within %" PRId64
                   " ms, though all have begun to; NCCL_DEBUG=INFO tells where it waits, NCCL_SOCKET_IFNAME chooses "
                   "the network",
                   nccl->rank, nccl->world_size, place->timeout_ms);
}

/* Another rank's failure. One that left in good health was connected, and so are we in a moment. */
static ls_status look(nccl_group *nccl, int64_t now_ns) {
    if (!nccl->store || now_ns - nccl->looked_ns < LOOK_NS) return LS_OK;
    nccl->looked_ns = now_ns;
    const ls_status status = nccl_read_notice(nccl);
    if (status != LS_OK) return status == LS_END ? LS_OK : status;
    return ls_error_raise(&nccl->notice.why);
}

static ls_status await_connection(nccl_group *nccl, const backend_place *place) {
    for (;;) {
        nccl_result state = NCCL_IN_PROGRESS;
        const nccl_result result = nccl->nccl.get_async_error(nccl->comm, &state);
        if (result != NCCL_SUCCESS) return nccl_failed(nccl, result, "connecting the ranks");
        if (state == NCCL_SUCCESS) return LS_OK;
        if (state != NCCL_IN_PROGRESS) return nccl_failed(nccl, state, "connecting the ranks");
        const int64_t now_ns = ls_now_ns();
        if (now_ns >= place->deadline_ns) return too_late(nccl, place);
        LS_TRY(look(nccl, now_ns));
        ls_sleep_until(now_ns + ASK_NS);
    }
}

/* Everyone has heard the verdict. */
static void clear_meeting(const nccl_group *nccl) {
    char key[LS_STORE_KEY_BYTES];
    if (!nccl->store) return;
    nccl_key(nccl->prefix, nccl->rank == 0 ? "verdict" : "hello", nccl->rank, key);
    ls_store_delete(nccl->store, key, NULL);
}

ls_status nccl_connect(nccl_group *nccl, const backend_place *place, const nccl_unique_id *id) {
    nccl_config config = {
        .size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = NCCL_OLDEST_VERSION, .blocking = 0};
    nccl_tell(nccl, 0);
    const nccl_result result = nccl->nccl.init(&nccl->comm, nccl->world_size, *id, nccl->rank, &config);
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) return nccl_failed(nccl, result, "connecting the ranks");
    LS_TRY(await_connection(nccl, place));
    clear_meeting(nccl);
    return LS_OK;
}
