/* state.h: a plugin's own: one MPI a process, and a group's two communicators.
 *
 *   world.c    MPI is initialised and finalised; how its errors read
 *   open.c     a group opens and closes; its memory; the table
 *   op.c       an operation: one piece after another
 *   move.c, reduce.c    pieces of each kind of collective
 *   message.c  send and receive
 *   tables.c   which type and op of MPI's stand for ours
 *   notice.c   ranks tell each other that they leave or have lost the group; sleeping
 *   word.c     what ranks say at a monitored barrier
 *
 * MPI sees the ranks that are there, and ends the job when one dies; what it lacks is a word from a rank that leaves a
 * group in good health, and any wait with a limit. So no call here blocks unless all ranks are known to be in it. */
#ifndef LS_GROUP_MPI_STATE_H
#define LS_GROUP_MPI_STATE_H

#include "group/backend/mpi/plugin.h"

#ifdef LS_MPI_STANDARD_ABI
#include <mpi_abi.h>
#else
#include <mpi.h>
#endif

#include <pthread.h>

/* What a rank says when it leaves a group, or loses it: a later operation than `done` cannot have its part. Or a word of
 * backend.h. */
typedef struct mpi_notice {
    uint64_t group; /* its number */
    uint64_t word;  /* its number; 0: it is none */
    uint64_t done;  /* operations that the rank has completed */
    int rank;       /* in the group, of who says it */
    ls_error why;   /* LS_OK: it left, and the text says who; of a word, what it says */
} mpi_notice;

/* A word that has come. */
typedef struct mpi_word {
    struct mpi_word *next;
    mpi_notice notice;
} mpi_word;

/* The most ranks that hear of a notice at once; the others hear of it from them. So connections stay few. */
#define MPI_NEIGHBOURS 64

/* A notice under way. A group's own is made when it opens, so that leaving needs no memory; MPI owns its bytes until it
 * is sent. */
typedef struct mpi_letter {
    struct mpi_letter *next;
    int neighbours[MPI_NEIGHBOURS], neighbour_count; /* ranks of mpi_here.root */
    int count;                                       /* requests under way */
    MPI_Request requests[MPI_NEIGHBOURS];
    mpi_notice notice;
} mpi_letter;

/* One ls_group_alloc. */
typedef struct mpi_memory {
    struct mpi_memory *next;
    void *base, *block;
} mpi_memory;

/* reduce.c: how a piece is dealt out to be combined. */
typedef struct mpi_deal mpi_deal;

/* A rank's view of its group. `data` carries collectives, in their order, and messages; `control` serves openings of
 * groups made of this one, which may overlap with them, and what ranks of a collective exchange two by two.
 *   under the driver         deal; in_flight and poller are written
 *   mpi_here.lock            next, notice, has_notice, left, loss, words, memories
 *   fixed when open returns  everything else */
typedef struct mpi_group {
    struct mpi_group *next;
    ls_group *group;
    int rank, world_size;
    int spare_processors;
    uint64_t number; /* the same on all ranks, never used again in this job */
    MPI_Comm data, control;
    mpi_letter *letter;   /* until it is sent */
    call_record *records; /* [world_size] */
    mpi_memory *memories;
    mpi_deal *deal;    /* of what is combined here; NULL until the first */
    mpi_notice notice; /* that hinders the earliest collective */
    bool has_notice;
    bool *left;                 /* [world_size] */
    ls_error loss;              /* the first that a rank told of; LS_OK: none */
    mpi_word *words;            /* that nobody has heard */
    _Atomic int in_flight;      /* operations whose buffers MPI may still write to */
    _Atomic bool has_left;      /* the first leaving counts */
    _Atomic bool is_letter_due; /* left on a thread that may not call MPI */
    _Atomic uint64_t done;
    _Atomic pthread_t poller; /* the thread that last polled */
    ls_word bell;
} mpi_group;

/* The most bytes of a rank in one call of MPI. MPI counts in int; and Open MPI takes a buffer as large as the piece,
 * which the C library, past 32 MiB, has from the kernel anew each time. A multiple of every element. */
#define MPI_PIECE_BYTES ((size_t)16 << 20)

/* How `bytes` go in pieces of at most `most`, in whole lines: none is much shorter than the others, since for short ones
 * MPICH 4.0 has an all-gather that misplaces rows which lie more than 2 GiB apart. */
static inline size_t mpi_piece_bytes(size_t bytes, size_t most) {
    const size_t pieces = bytes / most + 1;
    return (bytes / pieces + LS_ALIGNMENT) / LS_ALIGNMENT * LS_ALIGNMENT;
}

typedef enum mpi_phase { MPI_STARTED, MPI_COMPARING, MPI_COUNTING, MPI_MOVING } mpi_phase;

/* An operation's scratch. */
typedef struct mpi_scratch {
    mpi_phase phase;
    bool is_begun;           /* a piece is under way */
    bool is_dealt;           /* it is combined, and goes to whom it is for */
    MPI_Request requests[2]; /* of it; the second only between two ranks */
    int part;
    size_t part_bytes; /* of this part; most have but one, of op->bytes */
    size_t offset, piece_bytes;
    int64_t waits_since_ns; /* for what was begun last; 0: nobody has slept for it yet */
} mpi_scratch;

/* How elements of a type are combined by MPI. */
typedef struct mpi_reduction {
    bool is_there;
    MPI_Datatype type;
    MPI_Op op;
} mpi_reduction;

/* What belongs to the process, as MPI does.
 *   lock                guards groups, outbox, and what mpi_group says
 *   fixed by start      the rest, but `root`, which the first opening makes */
typedef struct mpi_process {
    const mpi_services *services;
    pid_t pid;
    int level; /* of threads, as MPI provides it */
    bool is_started, checks_calls;
    int rank, world_size, largest_tag;
    MPI_Comm root; /* all ranks; carries notices; lives as long as MPI */
    pthread_mutex_t lock;
    mpi_group *groups;
    mpi_letter *outbox;
    int *sent;                      /* [world_size]: notices to each rank */
    _Atomic int received;           /* notices */
    _Atomic uint64_t groups_opened; /* here */
    _Atomic uint32_t abandoned;     /* operations that MPI never ended and cannot take back */
} mpi_process;

extern mpi_process mpi_here;

/* world.c: the failure of an MPI call as this thread's error. */
ls_status mpi_failed(int code, const char *doing) __attribute__((cold));
/* Whether this thread may call MPI now, as far as its level of threads goes. */
bool mpi_may_call(const mpi_group *mpi);
/* Whether MPI can be called at all. */
bool mpi_is_running(void);

#define MPI_TRY(call, doing)                                                     \
    do {                                                                         \
        const int mpi_try_code = (call);                                         \
        if (mpi_try_code != MPI_SUCCESS) return mpi_failed(mpi_try_code, doing); \
    } while (0)

/* op.c */
void mpi_start(void *state, backend_op *op);
backend_progress mpi_poll(void *state, backend_op *op);
bool mpi_carries(const group_call *call);
/* The failure of an MPI call within `op`. */
backend_progress mpi_fail_op(backend_op *op, int code);

/* message.c */
bool mpi_carries_tag(const group_call *call);
backend_progress mpi_poll_message(mpi_group *mpi, backend_op *op);
/* The rank that `op`, a message, waits for in vain; negative: none. */
int mpi_awaited_and_gone(const mpi_group *mpi, const backend_op *op, const bool *left);

/* reduce.c, move.c: begin one piece, `s->piece_bytes` or fewer at `s->offset` of part `s->part`. Return MPI's code. */
int mpi_begin_reduction(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
/* Returns whether the piece is through; else it is begun once more. */
bool mpi_finish_reduction(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
void mpi_free_deal(mpi_group *mpi);
int mpi_begin_barrier(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
int mpi_begin_broadcast(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
int mpi_begin_all_gather(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
int mpi_begin_gather(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
int mpi_begin_scatter(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
int mpi_begin_all_to_all(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
int mpi_begin_uneven(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
/* The piece of each row to the rank whose row it is; from all ranks, one behind the other, it comes `into`. */
int mpi_begin_rows(const mpi_group *mpi, const backend_op *op, mpi_scratch *s, void *into);

/* tables.c; NULL: MPI has none that keeps what lockstep/group.h promises. */
const mpi_reduction *mpi_reduction_for(ls_dtype dtype, ls_op op);

/* notice.c */
ls_status mpi_examine(void *state, backend_op *op);
void mpi_describe_missing(void *state, const backend_op *op, char *text, size_t bytes);
uint32_t mpi_bell(void *state);
backend_progress mpi_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);
void mpi_wake(void *state);
void mpi_leave(void *state, const ls_error *why);
/* Once: arranges that all notices are received before MPI ends. */
ls_status mpi_prepare_notices(void);
/* Receives what has come for any group; what is for none that is open is dropped. Frees letters that are sent. */
void mpi_read_notices(void);
/* Sends a letter that is due and lets go of it; the group closes. */
void mpi_post_letter(mpi_group *mpi);
/* From here on the outbox has the letter. Returns MPI's code. */
int mpi_send_letter(mpi_letter *letter);

/* open.c: ranks of a group as mpi_here.root counts them. */
ls_status mpi_find_ranks(MPI_Comm data, int count, const int *ranks, int *found);

/* word.c */
ls_status mpi_tell(void *state, int to, uint64_t number, const ls_error *word);
bool mpi_hear(void *state, int from, uint64_t number, ls_error *word);
/* A word has come; under mpi_here.lock. */
void mpi_keep_word(mpi_group *mpi, const mpi_notice *notice);
void mpi_free_words(mpi_group *mpi);

#endif
