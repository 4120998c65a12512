/* wire.h: how requests and answers travel between a client and the server of its store: frames on a stream. Numbers
 * are little-endian, as on every processor that Lockstep runs on; over Unix sockets descriptors ride along.
 *
 *     head | key, with its NUL | expected value | value          a request: code is a store_operation
 *     head | value, or the sentence of an error                  an answer: code is an ls_status
 *
 * Answers carry the request's id and come in any order. STORE_CANCEL withdraws the request of its id. STORE_GOODBYE,
 * from either side, says that it is about to close. Both have no answer.
 *
 * To the launcher a connection starts at the door: the socket a worker inherits, or the launcher's abstract socket.
 * Through the first, the worker sends one end of a socket pair that it made (a single byte, one descriptor) and
 * never reads there. So threads, and processes that share the inherited socket, never read each other's answers, and
 * each store has its own stream. */
#ifndef LS_STORE_WIRE_H
#define LS_STORE_WIRE_H

#include "store/backend.h"

/* What the launcher tells its workers. */
#define STORE_ENV_DOOR "LOCKSTEP_STORE_FD"       /* the inherited socket's number */
#define STORE_ENV_SOCKET "LOCKSTEP_STORE_SOCKET" /* the name of the abstract socket */
#define STORE_ENV_LAUNCHER "LOCKSTEP_LAUNCHER_PID"
#define STORE_ENV_PLACE \
    "LOCKSTEP_PLACE" /* "RANK/WORLD_SIZE" as the launcher set them, whatever a wrapper made of them */

#define STORE_FRAME_MAGIC UINT32_C(0x4c535452)
#define STORE_CANCEL STORE_OPERATION_COUNT
#define STORE_GOODBYE (STORE_OPERATION_COUNT + 1)

typedef struct store_head {
    uint32_t magic;
    uint32_t id;
    int32_t code;
    uint16_t key_bytes; /* with the NUL; 0 in answers */
    uint16_t descriptor_count;
    uint32_t expected_bytes;
    uint32_t value_bytes;
    int64_t number;
} store_head;

/* A frame to be sent; everything but the progress is borrowed. */
typedef struct store_message {
    store_head head;
    const void *parts[3]; /* key, expected, value: head says their sizes */
    const int *descriptors;
    size_t sent;
} store_message;

/* Sends what is left of `message`. LS_OK: all is sent; LS_END: the socket takes no more now. Never blocks.
 * Errors: LS_ERR_PEER_LOST; LS_ERR_IO for anything else, the stream being of no use any more if message->sent > 0. */
ls_status store_message_send(store_message *message, int socket);

/* One end of a connection, receiving. Everything that comes in is judged as if an enemy had sent it. */
typedef struct store_inbox {
    unsigned char *bytes;
    size_t capacity, start, end;                 /* bytes [start, end) are still to be read */
    int descriptors[2 * STORE_MOST_DESCRIPTORS]; /* received, not yet part of a frame that was read */
    int descriptor_count;
    bool has_lost_some; /* this process had no room for them */
} store_inbox;

typedef struct store_frame {
    store_head head;
    const char *key; /* "" in answers; pointers are valid until the inbox is next received into */
    const void *expected, *value;
    int descriptors[STORE_MOST_DESCRIPTORS]; /* the reader's from now on */
} store_frame;

/* Receives once without blocking. LS_END: nothing is there now. Errors: LS_ERR_PEER_LOST when the other side has
 * closed, LS_ERR_FORMAT, LS_ERR_MEMORY, LS_ERR_IO: all end the connection. */
ls_status store_inbox_receive(store_inbox *inbox, int socket);

/* As receive, for bytes that are at hand; how tests and the fuzzer reach the reader. */
ls_status store_inbox_put(store_inbox *inbox, const void *bytes, size_t count);

/* Reads the next whole frame. LS_END: there is none yet; LS_ERR_FORMAT: the bytes are no frame; LS_ERR_IO: it is read, but
 * this process could not take its descriptors. Read until LS_END before receiving again. */
ls_status store_inbox_next(store_inbox *inbox, store_frame *frame);

/* Frees bytes and unread descriptors. */
void store_inbox_close(store_inbox *inbox);

/* Turns a frame into the request it carries (pointers into the frame). LS_ERR_FORMAT when it is none. */
ls_status store_frame_request(const store_frame *frame, store_request *request);

#endif
