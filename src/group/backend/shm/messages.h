/* messages.h: what two ranks share to send each other messages: behind each rank's board, a lane for each other rank.
 *
 * A message is offered, granted, and then written through a small ring. The receiver takes note of offers as they come, so
 * that it may take them in any order of tags, and grants one at a time.
 *
 *   sender                             receiver
 *   offers[id], `offered` = id + 1 --> notes it, `seen`
 *                                  <-- `chosen` = id, `granted` + 1     once it is received, and nothing else is under way
 *   bytes, `written` ----------------> takes them, `read`
 *   `served` + 1 --------------------> the message is complete
 *
 * Numbers and bytes are counted over the life of the group. Who writes rings the other's bell.                        */
#ifndef LS_GROUP_SHM_MESSAGES_H
#define LS_GROUP_SHM_MESSAGES_H

#include "group/backend/shm/shm.h"

#define SHM_OFFERS 32

typedef struct shm_offer {
    uint64_t tag, count;
    uint32_t dtype;
} shm_offer;

typedef struct shm_lane {
    /* To the peer: written by the board's rank as a sender. */
    _Alignas(2 * SHM_LINE) _Atomic uint64_t offered;
    _Atomic uint64_t written, served;
    shm_offer offers[SHM_OFFERS];
    /* From the peer: written by the board's rank as a receiver. */
    _Alignas(2 * SHM_LINE) _Atomic uint64_t seen;
    _Atomic uint64_t granted, read;
    uint64_t chosen;                             /* before `granted` */
    _Alignas(2 * SHM_LINE) unsigned char ring[]; /* to the peer */
} shm_lane;

/* An offer that nobody has received yet. */
typedef struct shm_note {
    struct shm_note *next;
    uint64_t id;
    shm_offer offer;
} shm_note;

/* This rank's own view of a peer; the driver's. */
typedef struct shm_mail {
    uint64_t next_id;  /* of messages to the peer */
    bool is_receiving; /* a message from the peer is under way */
    shm_note *notes;   /* in the order in which they were offered */
    shm_note **notes_end;
} shm_mail;

size_t shm_lane_bytes(int world_size);
ls_status shm_mail_create(shm_group *shm);
void shm_mail_free(shm_group *shm);

void shm_message_start(shm_group *shm, backend_op *op);
backend_progress shm_message_poll(shm_group *shm, backend_op *op);
bool shm_message_waits_for(const shm_group *shm, const backend_op *op, int peer);

#endif
