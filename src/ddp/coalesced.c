/* coalesced.c: packs pieces into one message of at most MESSAGE_BYTES, broadcasts it, unpacks it; a larger piece takes
 * several. Bytes are bytes: dtypes need no care. */
#include "ddp/coalesced.h"

#include "base/memory.h"

#include <string.h>

#define MESSAGE_BYTES ((size_t)16 << 20)

/* A place in the row of all pieces' bytes. */
typedef struct position {
    int piece;
    size_t offset;
} position;

/* Copies between the message and the pieces from *at on, and advances *at. */
static void transfer(const memory_piece *pieces, int count, position *at, char *message, size_t bytes,
                     bool is_packing) {
    while (bytes > 0 && at->piece < count) {
        char *data = (char *)pieces[at->piece].data + at->offset;
        const size_t left = pieces[at->piece].bytes - at->offset;
        const size_t part = left < bytes ? left : bytes;
        if (part > 0) memcpy(is_packing ? message : data, is_packing ? data : message, part);
        message += part;
        bytes -= part;
        at->offset += part;
        if (part == left) *at = (position){.piece = at->piece + 1};
    }
}

ls_status coalesced_broadcast(ls_agreement *agreement, const memory_piece *pieces, int count, uint64_t step) {
    size_t left = 0;
    for (int i = 0; i < count; i++) left += pieces[i].bytes;
    /* On all ranks alike: sizes were verified. */
    if (left == 0 || agreement->world_size == 1) return LS_OK;
    const size_t capacity = left < MESSAGE_BYTES ? left : MESSAGE_BYTES;
    char *message = ls_alloc_raw(capacity);
    /* A rank without memory says so before the first message: later it could only leave the others waiting. */
    ls_status status = agreement_reach(agreement, message ? LS_OK : LS_ERR_MEMORY, step, AGREE_BROADCAST);
    const bool is_root = ls_group_rank(agreement->group) == 0;
    position packed = {0}, unpacked = {0};
    while (left > 0 && message && status == LS_OK) {
        /* Message by message with one buffer: replicas are large, and this runs where memory is short, at the
         * start. */
        const size_t bytes = left < capacity ? left : capacity;
        if (is_root) transfer(pieces, count, &packed, message, bytes, true);
        status = agreement_broadcast(agreement, message, bytes, step, AGREE_BROADCAST);
        if (!is_root && status == LS_OK) transfer(pieces, count, &unpacked, message, bytes, false);
        left -= bytes;
    }
    ls_free(message);
    return status;
}
