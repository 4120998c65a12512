/* transport.h: what algorithms need of a network: messages between two ranks that arrive in the order in which they
 * were sent, as on a stream, and never a wait. Nothing is tagged: all ranks know from the call which messages there
 * are. */
#ifndef LS_GROUP_TRANSPORT_H
#define LS_GROUP_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

/* Messages to one peer, or from one, that may be under way at a time. */
#define TRANSPORT_WINDOW 8

/* The n-th message that a rank sends to a peer in an operation is the n-th that the peer receives from it, of the same
 * size, which is not 0. The data stays where it is, and what is sent stays unchanged, until the message is done. Both
 * calls only queue: the network moves between two polls of an algorithm. A message may come before the peer asks for
 * it, and waits. */
typedef struct transport {
    int rank, world_size;
    void *network;
    void (*send)(void *network, int peer, const void *data, size_t bytes);
    void (*receive)(void *network, int peer, void *data, size_t bytes);
    /* How many messages of this operation to the peer are out of our hands (their memory may be written again), and
     * how many of the peer's have arrived: all of the first n. */
    uint64_t (*sent)(void *network, int peer);
    uint64_t (*received)(void *network, int peer);
} transport;

#endif
