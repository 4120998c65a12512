/* hosts.c: rank 0 reads where everyone is and publishes the answer: two calls of the store a rank, where each asking every
 * other would be as many as there are pairs. */
#include "group/hosts.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ids[rank] of every rank, on rank 0. */
static ls_status collect(ls_store *store, const char *prefix, int world_size, int64_t deadline_ns,
                         char (*ids)[HOSTS_ID_BYTES]) {
    for (int rank = 1; rank < world_size; rank++) {
        char key[LS_STORE_KEY_BYTES];
        size_t bytes = 0;
        snprintf(key, sizeof key, "%s/place/%d", prefix, rank);
        const ls_status status = ls_store_get(store, key, ids[rank], HOSTS_ID_BYTES, &bytes, ls_left_ms(deadline_ns));
        if (status != LS_OK) return ls_fail_within(status, "rank 0 asks on which host rank %d is", rank);
        ids[rank][HOSTS_ID_BYTES - 1] = '\0';
    }
    return LS_OK;
}

/* Hosts are numbered in the order of their lowest ranks. */
static void number_hosts(char (*ids)[HOSTS_ID_BYTES], int world_size, int32_t *numbers) {
    int32_t count = 0;
    for (int rank = 0; rank < world_size; rank++) {
        int before = 0;
        while (before < rank && strcmp(ids[before], ids[rank]) != 0) before++;
        numbers[rank] = before < rank ? numbers[before] : count++;
    }
}

static ls_status lead(ls_store *store, const char *prefix, const char own[HOSTS_ID_BYTES], int world_size,
                      int64_t deadline_ns, int32_t *numbers) {
    char(*ids)[HOSTS_ID_BYTES] = ls_alloc_array((size_t)world_size, sizeof *ids);
    if (!ids) return LS_ERR_MEMORY;
    memcpy(ids[0], own, HOSTS_ID_BYTES);
    ls_status status = collect(store, prefix, world_size, deadline_ns, ids);
    if (status == LS_OK) {
        char key[LS_STORE_KEY_BYTES];
        number_hosts(ids, world_size, numbers);
        snprintf(key, sizeof key, "%s/hosts", prefix);
        status = ls_store_set(store, key, numbers, (size_t)world_size * sizeof *numbers);
    }
    ls_free(ids);
    return status;
}

static ls_status follow(ls_store *store, const char *prefix, const char own[HOSTS_ID_BYTES], int rank, int world_size,
                        int64_t deadline_ns, int32_t *numbers) {
    char key[LS_STORE_KEY_BYTES];
    size_t bytes = 0;
    const size_t wanted = (size_t)world_size * sizeof *numbers;
    snprintf(key, sizeof key, "%s/place/%d", prefix, rank);
    ls_status status = ls_store_set(store, key, own, HOSTS_ID_BYTES);
    snprintf(key, sizeof key, "%s/hosts", prefix);
    if (status == LS_OK) status = ls_store_get(store, key, numbers, wanted, &bytes, ls_left_ms(deadline_ns));
    if (status != LS_OK) return ls_fail_within(status, "rank %d asks rank 0 which ranks share a host", rank);
    if (bytes == wanted) return LS_OK;
    return ls_fail(LS_ERR_MISMATCH, "rank %d counts %d ranks, rank 0 %zu; start all with one world size", rank,
                   world_size, bytes / sizeof *numbers);
}

ls_status hosts_find(ls_store *store, const char *prefix, int rank, int world_size, int64_t deadline_ns, int *host_of,
                     int *count) {
    char own[HOSTS_ID_BYTES];
    hosts_read_own(own);
    int32_t *numbers = ls_alloc_array((size_t)world_size, sizeof *numbers);
    if (!numbers) return LS_ERR_MEMORY;
    const ls_status status = rank == 0 ? lead(store, prefix, own, world_size, deadline_ns, numbers)
                                       : follow(store, prefix, own, rank, world_size, deadline_ns, numbers);
    *count = 0;
    for (int i = 0; i < world_size && status == LS_OK; i++) {
        host_of[i] = (int)numbers[i];
        if (numbers[i] >= *count) *count = (int)numbers[i] + 1;
    }
    ls_free(numbers);
    return status;
}

ls_status hosts_are_several(ls_store *store, int rank, int world_size, int64_t timeout_ms, bool *several) {
    char key[LS_STORE_KEY_BYTES], prefix[LS_STORE_KEY_BYTES / 2];
    int64_t asked = 0;
    int count = 0;
    /* Each rank counts its own askings: the n-th of all ranks meet, and never read an earlier group's answer. */
    snprintf(key, sizeof key, "lockstep/hosts/asked/%d", rank);
    ls_status status = ls_store_add(store, key, 1, &asked);
    if (status != LS_OK) return ls_fail_within(status, "rank %d", rank);
    snprintf(prefix, sizeof prefix, "lockstep/hosts/%" PRId64, asked);
    int *host_of = ls_alloc_array((size_t)world_size, sizeof *host_of);
    if (!host_of) return LS_ERR_MEMORY;
    status = hosts_find(store, prefix, rank, world_size, ls_deadline_after_ms(timeout_ms), host_of, &count);
    *several = count > 1;
    ls_free(host_of);
    return status;
}
