/* board.h: what ranks of one host see of each other: a board for each rank, in shared memory that all map.
 *
 * A board is written by its rank alone, but for `bell`. What one rank polls of another stands on cache lines of its own.
 *
 *   slots       operation n publishes in slot n % 2: its call, and small data with it; `number` last (release).
 *               Two slots are enough: who publishes n has seen everyone publish n - 1, and who published n - 1 was
 *               done with n - 2, whose slot n takes.
 *   finished    the last operation in place of which this rank has read and written all it had to (release)
 *   staged,     for ordinary memory, counted in chunks over the life of the group: put into the stage, combined in
 *   combined,   the stage, and taken out of all stages. Chunk c uses place c % SHM_STAGE_CHUNKS.
 *   taken
 *   done        the last operation that is complete here, by the number under which it was posted
 *   standing    whether the rank is there, has left, or holds the group for lost, and why
 *   sleeping    set before the rank sleeps on `bell`, which who publishes afterwards advances                        */
#ifndef LS_GROUP_SHM_BOARD_H
#define LS_GROUP_SHM_BOARD_H

#include "base/error.h"
#include "base/wait.h"

#include <sched.h>

#define SHM_LINE 64
#define SHM_SLOT_PAYLOAD_BYTES 8160
#define SHM_STAGE_CHUNK_BYTES 131072
#define SHM_STAGE_CHUNKS 4
#define SHM_MOST_SLICES 480 /* of a chunk, each of a line; and of counts in a payload */
#define SHM_HOST_BYTES 64
#define SHM_NAME_BYTES 40

typedef struct shm_slot {
    _Alignas(2 * SHM_LINE) _Atomic uint64_t number;
    uint64_t tag;
    uint64_t count;
    uint32_t what; /* kind, dtype and op, a byte each; whether the payload is the data; 7 bits of `posted` */
    uint32_t root;
    unsigned char payload[SHM_SLOT_PAYLOAD_BYTES]; /* begins on the first line: small data travels with the call */
} shm_slot;

/* What a large operation has in its payload: where the data lies, if in memory of the group. */
typedef struct shm_place {
    uint64_t memory; /* number of the operation that allocated it; 0: ordinary memory */
    uint64_t offset;
} shm_place;

typedef enum shm_standing {
    SHM_IS_THERE = 0,
    SHM_IS_WRITING, /* of `why` */
    SHM_HAS_LEFT,
    SHM_HAS_LOST
} shm_standing;

/* A number that others wait for, alone on its line and on the one that processors fetch with it. */
typedef struct shm_counter {
    _Alignas(2 * SHM_LINE) _Atomic uint64_t value;
} shm_counter;

typedef struct shm_board {
    shm_slot slots[2];
    shm_counter finished, staged, combined, taken, done;

    /* One line, which peers look at in every operation and which changes when something is wrong or slow. */
    _Alignas(2 * SHM_LINE) _Atomic uint32_t standing;
    _Atomic uint32_t sleeping;
    ls_word bell; /* advanced by peers */

    _Alignas(2 * SHM_LINE) ls_error why; /* before `standing` */

    /* Written before the board is shared, or (posted, names) before the slot of the operation, for messages alone. */
    char host[SHM_HOST_BYTES];
    int64_t process;
    cpu_set_t processors; /* that this rank may run on */
    uint64_t posted[2];   /* under which number: the operation in the slot may be a step */
    char names[2][SHM_NAME_BYTES];

    _Alignas(4096) unsigned char stage[SHM_STAGE_CHUNKS][SHM_STAGE_CHUNK_BYTES];
} shm_board;

#endif
