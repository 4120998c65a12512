/* digest.h: a number that stands for bytes: FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv). For tables and
 * for finding that ranks differ; whoever chooses the bytes can make two digests equal, so it proves nothing. */
#ifndef LS_BASE_DIGEST_H
#define LS_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The digest of no bytes: where a digest begins. */
#define LS_DIGEST_START UINT64_C(0xcbf29ce484222325)

/* Goes on from `digest` with `count` bytes. */
static inline uint64_t ls_digest(uint64_t digest, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* The digest of a text, without its NUL. */
static inline uint64_t ls_digest_text(const char *text) {
    return ls_digest(LS_DIGEST_START, text, strlen(text));
}

#endif
