/* handshake.h: how both ends of a connection prove that they know the job's secret, before anything else is read.
 *
 *     server --> greeting: magic, nonce                            at once
 *     client --> hello:    magic                                   at once too: store/prove.c says why
 *                          job, who it is, nonce, proof            HMAC over greeting and hello
 *     server --> verdict:  magic, code, proof                      HMAC over greeting, hello and code
 *
 * Proofs are HMAC-SHA256 (RFC 2104) under the secret, over a label for the direction, the job's id and all that was
 * said so far, both nonces included: none can be replayed in another connection, job or direction. Records have
 * fixed sizes, so there is nothing to parse; store/prove.h moves them over a socket. The client proves first: who
 * only connects learns nothing that depends on the secret.
 *
 * Without a secret (base: the way in is this host's loopback, or the user waived it) the key is empty. The exchange
 * is the same and still keeps ranks of other jobs out, but proves nothing against an enemy.
 *
 * Numbers are little-endian, as on every processor that Lockstep runs on. */
#ifndef LS_STORE_HANDSHAKE_H
#define LS_STORE_HANDSHAKE_H

#include <lockstep/base.h>

enum {
    STORE_SECRET_BYTES = 1024, /* the longest */
    STORE_JOB_BYTES = 256,     /* of a job's id, with its NUL */
    STORE_HOST_BYTES = 64,
    STORE_NONCE_BYTES = 32,
    STORE_PROOF_BYTES = 32
};

/* What the members of a job know and strangers do not. */
typedef struct store_credentials {
    size_t secret_bytes; /* 0: without a secret */
    unsigned char secret[STORE_SECRET_BYTES];
    char job[STORE_JOB_BYTES]; /* which job it is; no secret */
} store_credentials;

typedef struct store_greeting {
    char magic[8];
    unsigned char nonce[STORE_NONCE_BYTES];
} store_greeting;

extern const char store_hello_magic[8];

typedef struct store_hello {
    char magic[8];
    unsigned char job[16]; /* a digest of its id, so that a rank of another job is told so */
    int32_t rank;          /* -1: none */
    int32_t process;
    int32_t channel; /* which of the connections between two ranks it is; 0 to a store */
    char host[STORE_HOST_BYTES];
    unsigned char nonce[STORE_NONCE_BYTES];
    unsigned char proof[STORE_PROOF_BYTES];
} store_hello;

typedef enum store_welcome { STORE_WELCOME = 0, STORE_OTHER_JOB, STORE_OTHER_SECRET } store_welcome;

typedef struct store_verdict {
    char magic[8];
    int32_t code; /* store_welcome */
    int32_t unused;
    unsigned char proof[STORE_PROOF_BYTES]; /* zeroes with a refusal */
} store_verdict;

/* The server's first word. Errors: LS_ERR_IO when no random bytes can be had. */
ls_status store_handshake_greet(store_greeting *greeting);

/* The client's answer, speaking for `rank` of this process about the connection `channel`. Errors: LS_ERR_FORMAT
 * when the greeting is none of ours, LS_ERR_IO, LS_ERR_INTERNAL. */
ls_status store_handshake_answer(const store_credentials *credentials, const store_greeting *greeting, int rank,
                                 int channel, store_hello *hello);

/* The server's judgement; `hello->host` is a text afterwards. Errors: LS_ERR_FORMAT when the hello is none (nothing
 * is to be answered), LS_ERR_INTERNAL. LS_OK also with a refusal. */
ls_status store_handshake_judge(const store_credentials *credentials, const store_greeting *greeting,
                                store_hello *hello, store_verdict *verdict);

/* The client's look at the verdict. Errors: LS_ERR_FORMAT, LS_ERR_ENVIRONMENT for a refusal or a wrong proof. */
ls_status store_handshake_check(const store_credentials *credentials, const store_greeting *greeting,
                                const store_hello *hello, const store_verdict *verdict);

#endif
