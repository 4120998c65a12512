/* prove.c: the client's side of store/handshake.h, on a connection that is made. */
#include "store/stream.h"

#include "base/fault.h"

#include <errno.h>
#include <sys/socket.h>

/* Exactly `bytes` bytes. A server that hangs up may be one that is closing: PEER_LOST. */
static ls_status receive_record(int socket, void *record, size_t bytes, int64_t deadline_ns) {
    for (size_t got = 0; got < bytes;) {
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        const int ready = ls_descriptors_wait(&polled, 1, deadline_ns);
        if (ready == 0) return ls_fail(LS_ERR_TIMEOUT, "what listens there does not speak");
        if (ready < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot wait for the store's server");
        const ssize_t received = ls_fault(LS_FAULT_SYSCALL)
                                     ? (errno = ENOMEM, -1)
                                     : recv(socket, (char *)record + got, bytes - got, MSG_DONTWAIT);
        if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (received == 0 || (received < 0 && errno == ECONNRESET))
            return ls_fail(LS_ERR_PEER_LOST, "what listens there hangs up");
        if (received < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot receive from the store's server");
        got += (size_t)received;
    }
    return LS_OK;
}

ls_status stream_prove(stream_store *store, const store_credentials *credentials, int rank, int64_t deadline_ns) {
    store_greeting greeting;
    store_hello hello;
    store_verdict verdict;
    LS_TRY(receive_record(store->socket, &greeting, sizeof greeting, deadline_ns));
    LS_TRY(store_handshake_answer(credentials, &greeting, rank, &hello));
    const ssize_t sent = ls_fault(LS_FAULT_SYSCALL)
                             ? (errno = ENOBUFS, -1)
                             : send(store->socket, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != (ssize_t)sizeof hello)
        return ls_fail_errno(errno == EPIPE || errno == ECONNRESET ? LS_ERR_PEER_LOST : LS_ERR_IO, errno,
                             "cannot send to the store's server");
    LS_TRY(receive_record(store->socket, &verdict, sizeof verdict, deadline_ns));
    return store_handshake_check(credentials, &greeting, &hello, &verdict);
}
