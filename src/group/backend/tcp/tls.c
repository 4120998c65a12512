/* tls.c: OpenSSL on a socket that never waits. The socket is read and written by ourselves (a BIO), since OpenSSL's own would raise
 * SIGPIPE. */
#include "group/backend/tcp/tls.h"

#include "base/error.h"
#include "base/memory.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define KEY_BYTES 32
#define RECORD_BYTES 16384 /* TLS's largest */
/* Records under one key: far from AES-GCM's limit of some 2^24 (RFC 8446, 5.5), and soon enough to be met in a test. */
#define RECORDS_A_KEY 4096

struct tcp_tls {
    SSL *ssl;
    int socket;
    int failure;      /* the errno of the last call on the socket; 0: its end */
    unsigned records; /* sent under the present key */
    unsigned char key[KEY_BYTES];
    unsigned char record[RECORD_BYTES]; /* small parts of what is sent, together */
};

/* --- the socket -------------------------------------------------------------------------------------------------------- */

static int finish_call(BIO *bio, ssize_t count, int retry) {
    tcp_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (count > 0) return (int)count;
    tls->failure = count < 0 ? errno : 0;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)count;
}

static int write_socket(BIO *bio, const char *bytes, int count) {
    const tcp_tls *tls = BIO_get_data(bio);
    return finish_call(bio, send(tls->socket, bytes, (size_t)count, MSG_DONTWAIT | MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}

static int read_socket(BIO *bio, char *bytes, int count) {
    const tcp_tls *tls = BIO_get_data(bio);
    return finish_call(bio, recv(tls->socket, bytes, (size_t)count, MSG_DONTWAIT), BIO_FLAGS_READ);
}

static long control_socket(BIO *bio, int command, long number, void *pointer) {
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* --- what a group shares ----------------------------------------------------------------------------------------------- */

struct tcp_tls_context {
    SSL_CTX *settings;
    BIO_METHOD *socket;
};

/* The key as OpenSSL wants it: a session of before. NULL: no memory. */
static SSL_SESSION *make_session(SSL *ssl) {
    static const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const tcp_tls *tls = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, tls->key, KEY_BYTES) &&
        SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

/* The name of the key: there is but one. */
static const unsigned char identity[] = "lockstep";

static int use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes, SSL_SESSION **session) {
    *session = NULL;
    *id = identity;
    *id_bytes = sizeof identity - 1;
    if (digest && EVP_MD_get_type(digest) != NID_sha256) return 1; /* asked again for another */
    return (*session = make_session(ssl)) != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session) {
    *session = NULL;
    if (id_bytes != sizeof identity - 1 || memcmp(id, identity, id_bytes) != 0) return 1;
    return (*session = make_session(ssl)) != NULL;
}

static SSL_CTX *make_settings(void) {
    SSL_CTX *settings = SSL_CTX_new(TLS_method());
    if (!settings) return NULL;
    SSL_CTX_set_mode(settings, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(settings, 1);
    SSL_CTX_set_psk_use_session_callback(settings, use_key);
    SSL_CTX_set_psk_find_session_callback(settings, find_key);
    if (SSL_CTX_set_min_proto_version(settings, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(settings, 0) &&
        SSL_CTX_set_ciphersuites(settings, "TLS_AES_128_GCM_SHA256"))
        return settings;
    SSL_CTX_free(settings);
    return NULL;
}

ls_status tcp_tls_prepare(tcp_tls_context **made) {
    tcp_tls_context *context = *made = ls_alloc(sizeof *context);
    if (!context) return LS_ERR_MEMORY;
    context->settings = make_settings();
    context->socket = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "lockstep socket");
    if (context->settings && context->socket && BIO_meth_set_write(context->socket, write_socket) &&
        BIO_meth_set_read(context->socket, read_socket) && BIO_meth_set_ctrl(context->socket, control_socket))
        return LS_OK;
    tcp_tls_release(made);
    return ls_fail(LS_ERR_INTERNAL, "libssl refuses to set up TLS 1.3 with a pre-shared key");
}

void tcp_tls_release(tcp_tls_context **released) {
    if (!*released) return;
    SSL_CTX_free((*released)->settings);
    BIO_meth_free((*released)->socket);
    ls_free(*released);
    *released = NULL;
}

/* --- a connection ------------------------------------------------------------------------------------------------------ */

/* Both sides know all of it, and strangers not the secret. */
static bool derive_key(const store_credentials *credentials, const store_greeting *greeting, const store_hello *hello,
                       unsigned char key[KEY_BYTES]) {
    static const char label[] = "lockstep tls";
    unsigned char said[sizeof label + STORE_JOB_BYTES + sizeof *greeting + sizeof *hello];
    unsigned count = 0;
    memset(said, 0, sizeof said);
    memcpy(said, label, sizeof label);
    memcpy(said + sizeof label, credentials->job, strnlen(credentials->job, STORE_JOB_BYTES));
    memcpy(said + sizeof label + STORE_JOB_BYTES, greeting, sizeof *greeting);
    /* The host's name was made a text by one side. */
    memcpy(said + sizeof label + STORE_JOB_BYTES + sizeof *greeting, hello->nonce, sizeof hello->nonce);
    return HMAC(EVP_sha256(), credentials->secret, (int)credentials->secret_bytes, said, sizeof said, key, &count) &&
           count == KEY_BYTES;
}

static bool set_up(tcp_tls *tls, const tcp_tls_context *context, bool is_server) {
    BIO *bio = BIO_new(context->socket);
    tls->ssl = bio ? SSL_new(context->settings) : NULL;
    if (!tls->ssl || !SSL_set_app_data(tls->ssl, tls)) {
        BIO_free(bio);
        return false;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    if (is_server)
        SSL_set_accept_state(tls->ssl);
    else
        SSL_set_connect_state(tls->ssl);
    return true;
}

ls_status tcp_tls_begin(tcp_tls **made, const tcp_tls_context *context, int socket, bool is_server,
                        const store_credentials *credentials, const store_greeting *greeting,
                        const store_hello *hello) {
    tcp_tls *tls = *made = ls_alloc(sizeof *tls);
    if (!tls) return LS_ERR_MEMORY;
    tls->socket = socket;
    if (derive_key(credentials, greeting, hello, tls->key) && set_up(tls, context, is_server)) return LS_OK;
    tcp_tls_end(made);
    return ls_fail(LS_ERR_INTERNAL, "libssl refuses to begin TLS on a connection");
}

ls_status tcp_tls_step(tcp_tls *tls) {
    ERR_clear_error();
    tls->failure = 0;
    const int result = SSL_do_handshake(tls->ssl);
    if (result == 1) {
        explicit_bzero(tls->key, sizeof tls->key);
        if (SSL_session_reused(tls->ssl)) return LS_OK;
        return ls_fail(LS_ERR_FORMAT, "the other end did without the job's secret in TLS");
    }
    const int reason = SSL_get_error(tls->ssl, result);
    if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) return LS_END;
    const unsigned long error = ERR_peek_error();
    if (!error) return ls_fail(LS_ERR_PEER_LOST, "TLS was not agreed on: the other end hangs up");
    const char *text = ERR_reason_error_string(error);
    return ls_fail(LS_ERR_FORMAT, "TLS was not agreed on: %s", text ? text : "libssl does not say why");
}

void tcp_tls_end(tcp_tls **ended) {
    tcp_tls *tls = *ended;
    *ended = NULL;
    if (!tls) return;
    SSL_free(tls->ssl);
    explicit_bzero(tls->key, sizeof tls->key);
    ls_free(tls);
}

/* As an errno what a call came to that moved nothing. An end without TLS's own goodbye is one all the same: peers say by a note
 * of ours that they leave. */
static ssize_t explain(tcp_tls *tls, int result) {
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default:
        if (tls->failure == 0 && SSL_get_shutdown(tls->ssl) == 0 && ERR_peek_error() != 0 &&
            ERR_GET_REASON(ERR_peek_error()) != SSL_R_UNEXPECTED_EOF_WHILE_READING) {
            errno = EBADMSG; /* what came does not decipher */
            return -1;
        }
        errno = tls->failure;
        return tls->failure ? -1 : 0;
    }
}

ssize_t tcp_tls_receive(tcp_tls *tls, void *into, size_t bytes) {
    size_t received = 0;
    ERR_clear_error();
    tls->failure = 0;
    const int result = SSL_read_ex(tls->ssl, into, bytes, &received);
    return result == 1 ? (ssize_t)received : explain(tls, result);
}

/* The first bytes of the parts, at most a record; small ones together. */
static const void *gather(tcp_tls *tls, const struct iovec *parts, int count, size_t skip, size_t *bytes) {
    size_t used = 0;
    for (int i = 0; i < count && used < RECORD_BYTES; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        const char *at = (const char *)parts[i].iov_base + skip;
        size_t part = parts[i].iov_len - skip;
        skip = 0;
        if (part > RECORD_BYTES - used) part = RECORD_BYTES - used;
        if (used == 0 && (part == RECORD_BYTES || i + 1 == count)) {
            *bytes = part;
            return at;
        }
        memcpy(tls->record + used, at, part);
        used += part;
    }
    *bytes = used;
    return tls->record;
}

/* Sending has no end but an error. */
static ssize_t refuse(tcp_tls *tls, int result) {
    const ssize_t explained = explain(tls, result);
    if (explained == 0) errno = EPIPE;
    return -1;
}

ssize_t tcp_tls_send(tcp_tls *tls, const struct iovec *parts, int count) {
    ssize_t sent = 0;
    for (;;) {
        size_t bytes = 0, taken = 0;
        const void *from = gather(tls, parts, count, (size_t)sent, &bytes);
        if (bytes == 0) return sent;
        ERR_clear_error();
        tls->failure = 0;
        const int result = SSL_write_ex(tls->ssl, from, bytes, &taken);
        if (result != 1) return sent ? sent : refuse(tls, result);
        sent += (ssize_t)taken;
        if (++tls->records < RECORDS_A_KEY) continue;
        tls->records = 0;
        SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED); /* goes out before the next record */
    }
}
