/* prove.c: three records over a socket, one step at a time.
 *
 * A step takes what is there and says whether more is needed: the same steps serve a loop over a thousand
 * connections and one caller that sleeps between them (store_prove). Nothing behind a record is read: it belongs to
 * the protocol that follows. */
#include "store/prove.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"

#include <errno.h>
#include <sys/socket.h>

/* What has come of a record of `bytes` bytes. LS_END: not all of it. Hanging up may be the end of one that is
 * closing. */
static ls_status receive_record(int socket, void *record, size_t bytes, size_t *got) {
    while (*got < bytes) {
        const ssize_t received = LS_SYSCALL(ENOMEM, recv(socket, (char *)record + *got, bytes - *got, MSG_DONTWAIT));
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return LS_END;
        if (received == 0 || (received < 0 && errno == ECONNRESET))
            return ls_fail(LS_ERR_PEER_LOST, "what is at the other end hangs up");
        if (received < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot receive from the other end");
        *got += (size_t)received;
    }
    return LS_OK;
}

/* Records are small and the socket is fresh: they fit, or the other side is none of ours. */
static ls_status send_record(int socket, const void *record, size_t bytes) {
    const ssize_t sent = LS_SYSCALL(ENOBUFS, send(socket, record, bytes, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (sent == (ssize_t)bytes) return LS_OK;
    /* A part of it: the buffer of a fresh socket is larger than any record. */
    if (sent >= 0) errno = EAGAIN;
    return ls_fail_errno(errno == EPIPE || errno == ECONNRESET ? LS_ERR_PEER_LOST : LS_ERR_IO, errno,
                         "cannot send to the other end");
}

/* --- the client --------------------------------------------------------------------------------------------------- */

ls_status store_prover_step(store_prover *self, int socket, const store_credentials *credentials, int rank,
                            int channel) {
    /* A connection that meets a listener which is being closed may stay open at this end alone: Linux then drops the
     * other without a word. Who only listens would never hear of it; what is sent into it is answered by a reset. */
    if (!self->has_knocked) LS_TRY(send_record(socket, store_hello_magic, sizeof store_hello_magic));
    self->has_knocked = true;
    if (self->got < sizeof self->greeting) {
        LS_TRY(receive_record(socket, &self->greeting, sizeof self->greeting, &self->got));
        LS_TRY(store_handshake_answer(credentials, &self->greeting, rank, channel, &self->hello));
        const char *rest = (const char *)&self->hello + sizeof store_hello_magic;
        LS_TRY(send_record(socket, rest, sizeof self->hello - sizeof store_hello_magic));
    }
    /* One counter for both records: where it stands says which one is awaited. */
    size_t got = self->got - sizeof self->greeting;
    const ls_status status = receive_record(socket, &self->verdict, sizeof self->verdict, &got);
    self->got = sizeof self->greeting + got;
    if (status != LS_OK) return status;
    return store_handshake_check(credentials, &self->greeting, &self->hello, &self->verdict);
}

ls_status store_prove(int socket, const store_credentials *credentials, int rank, int channel, int64_t deadline_ns) {
    store_prover self = {.got = 0};
    ls_status status = LS_OK;
    while ((status = store_prover_step(&self, socket, credentials, rank, channel)) == LS_END) {
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        const int ready = ls_descriptors_wait(&polled, 1, deadline_ns);
        if (ready == 0) return ls_fail(LS_ERR_TIMEOUT, "what listens there does not speak");
        if (ready < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot wait for the other end");
    }
    return status;
}

/* --- the server --------------------------------------------------------------------------------------------------- */

ls_status store_verifier_begin(store_verifier *self, int socket) {
    *self = (store_verifier){.heard = 0};
    /* The server speaks first, so that the client proves something that was not known before it came. */
    LS_TRY(store_handshake_greet(&self->greeting));
    return send_record(socket, &self->greeting, sizeof self->greeting);
}

ls_status store_verifier_step(store_verifier *self, int socket, const store_credentials *credentials) {
    LS_TRY(receive_record(socket, &self->hello, sizeof self->hello, &self->heard));
    LS_TRY(store_handshake_judge(credentials, &self->greeting, &self->hello, &self->verdict));
    if (self->verdict.code == STORE_WELCOME) return LS_OK;
    /* It learns why: a wrong secret is rather a mistake than an attack. */
    (void)send_record(socket, &self->verdict, sizeof self->verdict); /* it is turned away in any case */
    return ls_fail(LS_ERR_ENVIRONMENT, "%s",
                   self->verdict.code == STORE_OTHER_JOB ? "it belongs to another job"
                                                         : "it does not know this job's secret");
}

ls_status store_verifier_admit(const store_verifier *self, int socket) {
    return send_record(socket, &self->verdict, sizeof self->verdict);
}
