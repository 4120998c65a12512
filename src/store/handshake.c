/* handshake.c: the three records and their proofs, on libcrypto.
 *
 * Pure but for random numbers and the host's name: bytes in, bytes out, so that a test or a fuzzer can be either
 * side. What comes from outside is compared in constant time, and read for nothing before it is. */
#include "store/handshake.h"

#include "base/error.h"
#include "base/fault.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* The digit is the protocol's version: an older program is turned away by its first record. */
static const char greeting_magic[8] = "lstore1g", verdict_magic[8] = "lstore1v";
const char store_hello_magic[8] = "lstore1h";

_Static_assert(sizeof(store_greeting) == 40 && sizeof(store_hello) == 164 && sizeof(store_verdict) == 48,
               "records travel as they lie in memory");

static ls_status draw(unsigned char *nonce) {
    const ssize_t drawn = LS_SYSCALL(EAGAIN, getrandom(nonce, STORE_NONCE_BYTES, 0));
    return drawn == STORE_NONCE_BYTES ? LS_OK : ls_fail_errno(LS_ERR_IO, errno, "cannot draw random bytes");
}

/* HMAC under the secret over: label, NUL, job, NUL, greeting, hello without its proof, code. */
static ls_status prove(const store_credentials *credentials, const char *label, const store_greeting *greeting,
                       const store_hello *hello, int32_t code, unsigned char proof[STORE_PROOF_BYTES]) {
    /* Each text with its NUL and each record of one size: no two sayings are the same bytes. */
    unsigned char said[32 + STORE_JOB_BYTES + sizeof *greeting + sizeof *hello + sizeof code];
    size_t used = 0;
    const struct {
        const void *bytes;
        size_t count;
    } parts[] = {{label, strlen(label) + 1},
                 {credentials->job, strlen(credentials->job) + 1},
                 {greeting, sizeof *greeting},
                 {hello, offsetof(store_hello, proof)},
                 {&code, sizeof code}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        memcpy(said + used, parts[i].bytes, parts[i].count);
        used += parts[i].count;
    }
    unsigned bytes = 0;
    if (HMAC(EVP_sha256(), credentials->secret, (int)credentials->secret_bytes, said, used, proof, &bytes) &&
        bytes == STORE_PROOF_BYTES)
        return LS_OK;
    return ls_fail(LS_ERR_INTERNAL, "libcrypto refuses to compute an HMAC-SHA256");
}

/* The job's id itself may be long, and is nothing for strangers to read. */
static ls_status digest_job(const char *job, unsigned char digest[16]) {
    unsigned char whole[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(job, strlen(job), whole, NULL, EVP_sha256(), NULL))
        return ls_fail(LS_ERR_INTERNAL, "libcrypto refuses to compute a SHA-256");
    /* Half of it is enough: it keeps jobs apart by mistake, the proof keeps strangers out. */
    memcpy(digest, whole, 16);
    return LS_OK;
}

ls_status store_handshake_greet(store_greeting *greeting) {
    memcpy(greeting->magic, greeting_magic, sizeof greeting->magic);
    /* The server's random number: a hello that was recorded elsewhere does not fit it. */
    return draw(greeting->nonce);
}

ls_status store_handshake_answer(const store_credentials *credentials, const store_greeting *greeting, int rank,
                                 int channel, store_hello *hello) {
    if (memcmp(greeting->magic, greeting_magic, sizeof greeting_magic) != 0)
        return ls_fail(LS_ERR_FORMAT, "what listens there is no server of Lockstep's");
    /* Zeroed whole: what travels holds nothing of the stack. */
    *hello = (store_hello){.rank = rank, .process = getpid(), .channel = channel};
    memcpy(hello->magic, store_hello_magic, sizeof hello->magic);
    if (gethostname(hello->host, sizeof hello->host - 1) != 0) memcpy(hello->host, "a host", 7);
    LS_TRY(draw(hello->nonce));
    LS_TRY(digest_job(credentials->job, hello->job));
    return prove(credentials, "lockstep store client", greeting, hello, 0, hello->proof);
}

ls_status store_handshake_judge(const store_credentials *credentials, const store_greeting *greeting,
                                store_hello *hello, store_verdict *verdict) {
    if (memcmp(hello->magic, store_hello_magic, sizeof store_hello_magic) != 0)
        return ls_fail(LS_ERR_FORMAT, "what it sent is no hello of Lockstep's");
    unsigned char job[sizeof hello->job], proof[STORE_PROOF_BYTES];
    LS_TRY(digest_job(credentials->job, job));
    /* Computed in any case, so that the time taken tells nothing about which of the two is wrong. */
    LS_TRY(prove(credentials, "lockstep store client", greeting, hello, 0, proof));
    *verdict = (store_verdict){.code = STORE_WELCOME};
    memcpy(verdict->magic, verdict_magic, sizeof verdict->magic);
    /* The job first: two jobs that share a port by chance have two secrets as well, and "another job" is the useful
     * word. */
    if (CRYPTO_memcmp(job, hello->job, sizeof job) != 0)
        verdict->code = STORE_OTHER_JOB;
    else if (CRYPTO_memcmp(proof, hello->proof, sizeof proof) != 0)
        verdict->code = STORE_OTHER_SECRET;
    else
        LS_TRY(prove(credentials, "lockstep store server", greeting, hello, verdict->code, verdict->proof));

    /* For messages: whatever a stranger wrote there, no more than a short line comes of it. */
    hello->host[sizeof hello->host - 1] = '\0';
    for (char *at = hello->host; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    return LS_OK;
}

ls_status store_handshake_check(const store_credentials *credentials, const store_greeting *greeting,
                                const store_hello *hello, const store_verdict *verdict) {
    if (memcmp(verdict->magic, verdict_magic, sizeof verdict_magic) != 0)
        return ls_fail(LS_ERR_FORMAT, "what listens there is no server of Lockstep's");
    /* Not proved, as we share no secret with it: believed, since it only makes us leave. */
    if (verdict->code == STORE_OTHER_JOB)
        return ls_fail(LS_ERR_ENVIRONMENT, "the store there belongs to another job than \"%s\"; is the port taken?",
                       credentials->job);
    unsigned char proof[STORE_PROOF_BYTES];
    LS_TRY(prove(credentials, "lockstep store server", greeting, hello, verdict->code, proof));
    /* Only a welcome is proved: a server without the secret could refuse us, and no more. */
    if (verdict->code == STORE_WELCOME && CRYPTO_memcmp(proof, verdict->proof, sizeof proof) == 0) return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "the store there %s; this process has %s: all ranks read the same LOCKSTEP_SECRET_FILE, or none "
                   "has one",
                   verdict->code == STORE_WELCOME ? "does not know the secret of this job"
                                                  : "does not accept the secret of this process",
                   credentials->secret_bytes > 0 ? "a secret" : "none");
}
