/* idx.c: the IDX format: a big-endian magic number 0x000008NN (unsigned bytes, NN dims), NN big-endian 32-bit dims, the
 * values with the last dim fastest, and nothing after them.
 *
 * No number in the file is believed before it is checked: dims multiply with overflow checks, and memory is asked for
 * only when the file is long enough to hold the values, gzipped at deflate's best ratio or plain. */
#include "data/idx.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

#define ZLIB_CONST
#include <zlib.h>

/* The magic number and the dims. */
#define HEADER_BYTES(ndim) (4 * (1 + (size_t)(ndim)))

/* Deflate never packs more than 1032 bytes into one (zlib's technical notes). */
#define DEFLATE_BEST_RATIO 1032

/* Where the bytes of the array come from: the file itself, or what it inflates to. */
typedef struct source {
    const uint8_t *bytes;
    size_t size;
    bool is_gzip;
    bool has_ended; /* gzip's trailer came, and its checksum and length are right */
    z_stream stream;
} source;

/* zlib's memory comes through our one door. */
static void *allocate(void *context, unsigned count, unsigned bytes) {
    (void)context;
    return ls_alloc_array(count, bytes);
}

static void release(void *context, void *memory) {
    (void)context;
    ls_free(memory);
}

/* Gzip is told by its own magic number, which no IDX file begins with. */
static ls_status source_open(source *self, const uint8_t *bytes, size_t size) {
    *self = (source){.bytes = bytes, .size = size, .is_gzip = size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b};
    if (!self->is_gzip) return LS_OK;
    if (size > UINT32_MAX) return ls_fail(LS_ERR_FORMAT, "a gzip file of %zu bytes is too large", size);
    self->stream = (z_stream){.next_in = bytes, .avail_in = (uInt)size, .zalloc = allocate, .zfree = release};
    /* 16: gzip's header and no other. */
    const int result = inflateInit2(&self->stream, 16 + MAX_WBITS);
    if (result == Z_OK) return LS_OK;
    self->is_gzip = false;
    return ls_fail(LS_ERR_MEMORY, "cannot start to decompress: zlib says \"%s\"", zError(result));
}

static void source_close(source *self) {
    if (self->is_gzip) inflateEnd(&self->stream);
}

/* Bytes that can still come, at most. */
static uint64_t source_bound(const source *self) {
    return self->is_gzip ? (uint64_t)self->stream.avail_in * DEFLATE_BEST_RATIO + DEFLATE_BEST_RATIO : self->size;
}

/* Inflates up to `count` bytes; `got` receives how many came before the end of the stream or of the file. */
static ls_status inflate_some(source *self, uint8_t *values, size_t count, size_t *got) {
    *got = 0;
    while (*got < count && !self->has_ended) {
        const size_t wanted = count - *got < UINT32_MAX ? count - *got : UINT32_MAX;
        self->stream.next_out = values + *got;
        self->stream.avail_out = (uInt)wanted;
        const int result = inflate(&self->stream, Z_NO_FLUSH);
        /* Also before an error: the message tells how far it got. */
        *got += wanted - self->stream.avail_out;
        if (result == Z_STREAM_END)
            self->has_ended = true;
        else if (result == Z_MEM_ERROR)
            return ls_fail(LS_ERR_MEMORY, "cannot decompress: memory was refused");
        else if (result == Z_BUF_ERROR)
            return LS_OK; /* the file ends in the middle of the stream */
        else if (result != Z_OK)
            return ls_fail(LS_ERR_FORMAT, "the gzip data is damaged (%s); get the file again",
                           self->stream.msg ? self->stream.msg : zError(result));
    }
    return LS_OK;
}

/* Copies the next `count` bytes out; `what` they are is for the message. */
static ls_status source_take(source *self, uint8_t *values, size_t count, const char *what) {
    size_t got = self->size < count ? self->size : count;
    if (self->is_gzip)
        LS_TRY(inflate_some(self, values, count, &got));
    else {
        memcpy(values, self->bytes, got);
        self->bytes += got;
        self->size -= got;
    }
    if (got == count) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "the file is truncated: expected %zu bytes of %s, found %zu; get the file again",
                   count, what, got);
}

/* Nothing may follow the values, neither in what was packed nor after it. */
static ls_status source_finish(source *self) {
    uint8_t extra;
    size_t got = self->size;
    if (self->is_gzip) {
        /* Also makes zlib look at the trailer. */
        LS_TRY(inflate_some(self, &extra, 1, &got));
        if (got == 0 && !self->has_ended)
            return ls_fail(LS_ERR_FORMAT,
                           "the file is truncated: the end of the gzip data is missing; get the file again");
        got += self->stream.avail_in;
    }
    if (got == 0) return LS_OK;
    return ls_fail(LS_ERR_FORMAT, "the file has bytes after its last value; get the file again");
}

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Reads the header into `array` and the number of values into `numel`. */
static ls_status read_header(source *from, int ndim, idx_array *array, size_t *numel) {
    uint8_t header[HEADER_BYTES(IDX_MAX_DIMS)] = {0};
    LS_TRY(source_take(from, header, HEADER_BYTES(ndim), "the header"));
    const uint32_t magic = big_endian(header), expected = 0x800 + (uint32_t)ndim;
    if (magic != expected)
        return ls_fail(LS_ERR_FORMAT,
                       "the magic number is 0x%08" PRIx32 ": expected 0x%08" PRIx32
                       ", an IDX file of unsigned bytes with %d dims",
                       magic, expected, ndim);
    /* The number of samples may be 0, not the size of one. */
    array->ndim = ndim;
    *numel = 1;
    for (int i = 0; i < ndim; i++) {
        /* 32 bits each: three of them fit into no size, hence the check below. */
        array->dims[i] = big_endian(header + 4 + 4 * i);
        if (i > 0 && array->dims[i] == 0) return ls_fail(LS_ERR_FORMAT, "dim %d of the array is 0", i);
        if (__builtin_mul_overflow(*numel, (size_t)array->dims[i], numel))
            return ls_fail(LS_ERR_FORMAT, "the dims multiply past what a size can hold");
    }
    if (*numel > source_bound(from))
        return ls_fail(
            LS_ERR_FORMAT,
            "the file is truncated: its header tells of %zu bytes, more than it can hold; get the file again", *numel);
    return LS_OK;
}

ls_status idx_read(idx_array *array, const uint8_t *bytes, size_t size, int ndim) {
    *array = (idx_array){0};
    source from;
    size_t numel = 0;
    ls_status status = source_open(&from, bytes, size);
    if (status) return status;
    if ((status = read_header(&from, ndim, array, &numel))) goto out;
    /* Asked for only now that the file can hold so much: a header of a few bytes cannot cost gigabytes. */
    array->values = ls_alloc_raw(numel);
    if (!array->values) {
        status = LS_ERR_MEMORY;
        goto out;
    }
    if ((status = source_take(&from, array->values, numel, "values"))) goto out;
    status = source_finish(&from);
out:
    source_close(&from);
    if (status) idx_free(array);
    return status;
}

void idx_free(idx_array *array) {
    ls_free(array->values);
    *array = (idx_array){0};
}
