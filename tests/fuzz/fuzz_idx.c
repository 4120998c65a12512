/* fuzz_idx.c: any bytes as an IDX file, plain or gzipped, of images and of labels.
 * covers: src/data/idx.c
 *
 * zlib's checksum keeps a fuzzer out of gzipped files that it did not start from; so what is no gzip is tried once
 * more, wrapped as stored gzip data with a right checksum and with a wrong one. */
#include "data/idx.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ZLIB_CONST
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* `inner_size` is that of the file without gzip; 0 when that is not known. */
static void try_all(const uint8_t *bytes, size_t size, size_t inner_size) {
    for (int ndim = 1; ndim <= 3; ndim += 2) {
        idx_array array;
        if (idx_read(&array, bytes, size, ndim) != LS_OK) {
            assert(!array.values);
            continue;
        }
        /* Every value is there, and nothing else was. */
        int64_t numel = 1;
        for (int i = 0; i < ndim; i++) numel *= array.dims[i];
        uint64_t sum = 0;
        for (int64_t i = 0; i < numel; i++) sum += array.values[i];
        assert(sum <= (uint64_t)numel * 255);
        assert(inner_size == 0 || inner_size == 4 * (1 + (size_t)ndim) + (size_t)numel);
        idx_free(&array);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const bool is_gzip = size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
    try_all(bytes, size, is_gzip ? 0 : size);
    if (size == 0 || size > 4096) return 0;

    uint8_t packed[5120];
    z_stream stream = {.next_in = bytes, .avail_in = (uInt)size, .next_out = packed, .avail_out = sizeof packed};
    if (deflateInit2(&stream, Z_NO_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    deflate(&stream, Z_FINISH);
    const size_t packed_size = sizeof packed - stream.avail_out;
    deflateEnd(&stream);
    try_all(packed, packed_size, size);
    packed[packed_size - 8] ^= 1; /* the checksum */
    idx_array array;
    for (int ndim = 1; ndim <= 3; ndim += 2) assert(idx_read(&array, packed, packed_size, ndim) != LS_OK);
    return 0;
}
