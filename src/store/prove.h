/* prove.h: the two sides of store/handshake.h on a connected, non-blocking socket.
 *
 * Neither side waits, so that who serves many connections, or is both client and server of its peers, can take each
 * a step further as its bytes come. A side that is to be ended takes no more than closing its socket. */
#ifndef LS_STORE_PROVE_H
#define LS_STORE_PROVE_H

#include "store/handshake.h"

/* The client's side; zeroed before the first step. */
typedef struct store_prover {
    bool has_knocked; /* the hello's first bytes are sent */
    size_t got;       /* bytes of the greeting, then of the verdict */
    store_greeting greeting;
    store_hello hello;
    store_verdict verdict;
} store_prover;

/* Goes on with what has come. LS_OK: both sides have proved; LS_END: call again when the socket is readable.
 * Errors: LS_ERR_PEER_LOST when the server hangs up, LS_ERR_FORMAT when it is none of ours, LS_ERR_ENVIRONMENT when
 * job or secret differ, LS_ERR_IO, LS_ERR_INTERNAL. */
ls_status store_prover_step(store_prover *self, int socket, const store_credentials *credentials, int rank,
                            int channel);

/* The same, waiting; LS_ERR_TIMEOUT when the server says nothing. */
ls_status store_prove(int socket, const store_credentials *credentials, int rank, int channel, int64_t deadline_ns);

/* The server's side. */
typedef struct store_verifier {
    size_t heard; /* bytes of the hello */
    store_greeting greeting;
    store_hello hello;
    store_verdict verdict;
} store_verifier;

/* Begins: greets who has just connected. Errors: LS_ERR_IO, LS_ERR_PEER_LOST. */
ls_status store_verifier_begin(store_verifier *self, int socket);

/* Goes on with what has come, and reads not a byte past the hello. LS_OK: the client has proved, and self->hello
 * tells who it is; nothing has been answered yet. LS_END: call again when the socket is readable. On an error the
 * connection is of no use, and the sentence says why: LS_ERR_ENVIRONMENT (another job or secret: the client was
 * told), LS_ERR_FORMAT, LS_ERR_PEER_LOST when it hangs up, LS_ERR_INTERNAL. */
ls_status store_verifier_step(store_verifier *self, int socket, const store_credentials *credentials);

/* Lets the client in. Errors: LS_ERR_PEER_LOST, LS_ERR_IO. */
ls_status store_verifier_admit(const store_verifier *self, int socket);

#endif
