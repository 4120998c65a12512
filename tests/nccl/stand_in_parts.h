/* stand_in_parts.h: what the stand-in's files share. One lock guards everything; every change wakes all who wait. */
#ifndef LS_TEST_NCCL_STAND_IN_PARTS_H
#define LS_TEST_NCCL_STAND_IN_PARTS_H

#include "stand_in.h"

#include <pthread.h>

extern pthread_mutex_t stand_in_lock;
extern pthread_cond_t stand_in_changed;

void stand_in_acquire(void);
void stand_in_let_go(void);

/* Counts a call; what it has to return at once, or 0. */
unsigned stand_in_enter(const char *function);
/* A rule was broken. The lock may be held. */
void stand_in_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void stand_in_count_live(int change);

/* The device that is current on this thread; -1: none, which is complained of. */
int stand_in_current_device(const char *function);

/* Appends to a stream; the lock is held. `run` is called without it and owns `argument`. */
void stand_in_put(cuda_stream stream, void (*run)(void *argument), void *argument);
int stand_in_stream_device(cuda_stream stream);

/* Where the host reaches `bytes` bytes at `address` of `device`; NULL: there is no such memory, which is complained of. */
void *stand_in_reach(const char *function, int device, const void *address, size_t bytes);

/* --- what a communicator carries --- */

typedef enum carried_kind {
    CARRY_ALL_REDUCE = 1,
    CARRY_BROADCAST,
    CARRY_REDUCE,
    CARRY_ALL_GATHER,
    CARRY_REDUCE_SCATTER,
    CARRY_SEND,
    CARRY_RECEIVE
} carried_kind;

/* Pointers are the host's. */
typedef struct carried {
    carried_kind kind;
    const char *send;
    char *data;
    size_t count;
    nccl_type type;
    nccl_op op;
    int peer; /* or root */
} carried;

typedef struct meeting meeting;
typedef struct letter letter;
typedef struct errand errand;

/* The ranks of one id. */
typedef struct clique {
    struct clique *next;
    nccl_unique_id id;
    int size, joined, left;
    int devices[STAND_IN_RANKS];
    meeting *meetings;
    letter *letters;
} clique;

struct ncclComm {
    struct ncclComm *next;
    clique *clique;
    int rank, size, device;
    unsigned long long issued; /* collectives */
    int asks_left;             /* until it is ready */
    int running;               /* on streams, or about to be */
    errand *planned;           /* what is not on its stream yet: NCCL says that it is in progress */
    bool is_connected, is_aborted, is_finalized;
};

size_t carried_element_bytes(nccl_type type);

/* Plans a collective, or the sends and receives of a group; the lock is held. */
void carry_collective(nccl_comm comm, const carried *call, cuda_stream stream);
void carry_messages(nccl_comm comm, const carried *calls, int count, cuda_stream stream);
/* Puts what is planned on its stream, once NCCL is ready; or forgets it. */
void carry_planned(nccl_comm comm);
void carry_nothing(nccl_comm comm);
void clique_clear(clique *cleared);

#endif
