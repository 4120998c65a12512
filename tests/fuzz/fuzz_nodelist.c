/* fuzz_nodelist.c: any text as Slurm's list of hosts.
 * covers: src/store/nodelist.c
 *
 * Input: eight bytes of an index, one of the buffer's size, the list. */
#include "store/nodelist.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t index = 0;
    if (size < 9) return 0;
    memcpy(&index, data, sizeof index);
    const size_t bytes = data[8];
    char *list = malloc(size - 8), *host = malloc(bytes + 1);
    if (list && host) {
        memcpy(list, data + 9, size - 9);
        list[size - 9] = '\0';
        if (bytes > 0 && index >= 0 && store_nodelist_host(list, index, host, bytes) == LS_OK) {
            assert(strlen(host) < bytes);
            assert(!strpbrk(host, "[],"));
        }
        /* What has a second host has a first. */
        if (store_nodelist_host(list, 1, host, bytes + 1) == LS_OK && bytes > 200)
            assert(strlen(list) > 100 || store_nodelist_host(list, 0, host, bytes + 1) == LS_OK);
    }
    free(list);
    free(host);
    return 0;
}
