/* fuzz_safetensors.c: any bytes as a checkpoint. The first try takes them as they are; the second as a header alone,
 * its length put before it, so that the fuzzer need not guess it.
 * covers: src/checkpoint/safetensors.c */
#include "checkpoint/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void try_one(const uint8_t *bytes, size_t size) {
    safetensors file;
    if (safetensors_parse(&file, bytes, size) != LS_OK) {
        assert(!file.header && !file.entries && file.count == 0);
        return;
    }
    /* Every tensor lies inside the file, is as large as its shape says, and is found under its name. */
    uint64_t sum = 0, reached = 0;
    for (size_t i = 0; i < file.count; i++) {
        const safetensors_entry *entry = &file.entries[i];
        assert(entry->begin == reached && entry->begin <= entry->end);
        assert(safetensors_find(&file, entry->name) == entry);
        reached = entry->end;
        for (size_t at = entry->begin; at < entry->end; at++) sum += file.data[at];
    }
    assert(file.data + reached == bytes + size && sum <= 255 * reached);
    safetensors_text(&file, "step");
    safetensors_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    try_one(bytes, size);

    /* The last byte says how much of the rest is data. */
    if (size < 2) return 0;
    const size_t data_bytes = bytes[size - 1] % 32 < size ? bytes[size - 1] % 32 : 0, length = size - 1 - data_bytes;
    uint8_t *framed = malloc(8 + size - 1);
    if (!framed) abort();
    for (int i = 0; i < 8; i++) framed[i] = (uint8_t)((uint64_t)length >> 8 * i);
    memcpy(framed + 8, bytes, size - 1);
    try_one(framed, 8 + size - 1);
    free(framed);
    return 0;
}
