/* hosts.c: rank 0 reads where everyone is and publishes the answer: few calls of the store a rank, where each asking every other
 * would be as many as there are pairs. Keys: PREFIX/place/<rank> where a rank is, until that has the answer; PREFIX/hosts the
 * answer, until all have asked again. */
#include "group/hosts.h"

#include "base/clock.h"
#include "base/error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "lockstep/hosts/%" PRId64
#define PREFIX_BYTES (LS_STORE_KEY_BYTES / 2)

/* The kernel's boot and the network namespace, or where they cannot be read the host's name. Padded with zeroes. */
void hosts_read_own(char id[HOSTS_ID_BYTES]) {
    struct stat network = {0};
    memset(id, 0, HOSTS_ID_BYTES);
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, id, 64);
    if (file >= 0) close(file);
    if (length <= 0 || stat("/proc/self/ns/net", &network) != 0) {
        if (gethostname(id, HOSTS_ID_BYTES - 1) != 0) id[0] = '\0';
        return;
    }
    snprintf(id + length, HOSTS_ID_BYTES - (size_t)length, "%ju", (uintmax_t)network.st_ino);
}

static void key_of_place(const char *prefix, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/place/%d", prefix, rank);
}

static void key_of_answer(const char *prefix, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/hosts", prefix);
}

/* What rank 0 publishes. */
typedef struct answer {
    int32_t world_size, are_several;
} answer;

/* One asking: the n-th of all ranks meet, under keys of their own. */
typedef struct asking {
    ls_store *store;
    int rank, world_size;
    char prefix[PREFIX_BYTES];
    char own[HOSTS_ID_BYTES];
    int64_t deadline_ns;
} asking;

/* Rank 0: whoever is elsewhere than rank 0 is on another host. */
static ls_status lead(const asking *self, answer *found) {
    char key[LS_STORE_KEY_BYTES];
    *found = (answer){.world_size = self->world_size};
    for (int rank = 1; rank < self->world_size; rank++) {
        char id[HOSTS_ID_BYTES] = "";
        size_t bytes = 0;
        key_of_place(self->prefix, rank, key);
        const ls_status status = ls_store_get(self->store, key, id, sizeof id, &bytes, ls_left_ms(self->deadline_ns));
        if (status != LS_OK) return ls_fail_within(status, "rank 0 asks on which host rank %d is", rank);
        if (strncmp(id, self->own, sizeof id) != 0) found->are_several = true;
    }
    key_of_answer(self->prefix, key);
    const ls_status told = ls_store_set(self->store, key, found, sizeof *found);
    return told == LS_OK ? LS_OK : ls_fail_within(told, "rank 0");
}

static ls_status ask_rank_0(const asking *self, answer *found) {
    char key[LS_STORE_KEY_BYTES];
    size_t bytes = 0;
    key_of_answer(self->prefix, key);
    const ls_status status =
        ls_store_get(self->store, key, found, sizeof *found, &bytes, ls_left_ms(self->deadline_ns));
    if (status != LS_OK) return ls_fail_within(status, "rank %d asks rank 0 which ranks share a host", self->rank);
    if (bytes == sizeof *found && found->world_size == self->world_size) return LS_OK;
    return ls_fail(LS_ERR_MISMATCH, "rank %d counts %d ranks, rank 0 %d; start all with one world size", self->rank,
                   self->world_size, found->world_size);
}

static ls_status follow(const asking *self, answer *found) {
    char key[LS_STORE_KEY_BYTES];
    ls_error why;
    key_of_place(self->prefix, self->rank, key);
    const ls_status told = ls_store_set(self->store, key, self->own, sizeof self->own);
    if (told != LS_OK) return ls_fail_within(told, "rank %d", self->rank);
    ls_error_capture(&why, ask_rank_0(self, found));
    /* Rank 0 has read it; or this asking has failed, and there may be another. */
    ls_store_delete(self->store, key, NULL);
    return ls_error_raise(&why);
}

/* All ranks have come to asking number `asked`, so nobody reads the answer before it. */
static void forget_former(ls_store *store, int64_t asked) {
    char key[LS_STORE_KEY_BYTES], prefix[PREFIX_BYTES];
    snprintf(prefix, sizeof prefix, PREFIX, asked - 1);
    key_of_answer(prefix, key);
    ls_store_delete(store, key, NULL);
}

ls_status hosts_are_several(ls_store *store, int rank, int world_size, int64_t timeout_ms, bool *several) {
    asking self = {
        .store = store, .rank = rank, .world_size = world_size, .deadline_ns = ls_deadline_after_ms(timeout_ms)};
    char key[LS_STORE_KEY_BYTES];
    answer found = {0};
    int64_t asked = 0;
    hosts_read_own(self.own);
    /* Each rank counts its own askings, and so never reads an earlier group's answer. */
    snprintf(key, sizeof key, "lockstep/hosts/asked/%d", rank);
    const ls_status counted = ls_store_add(store, key, 1, &asked);
    if (counted != LS_OK) return ls_fail_within(counted, "rank %d", rank);
    snprintf(self.prefix, sizeof self.prefix, PREFIX, asked);
    LS_TRY(rank == 0 ? lead(&self, &found) : follow(&self, &found));
    if (rank == 0) forget_former(store, asked);
    *several = found.are_several;
    return LS_OK;
}
