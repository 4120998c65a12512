/* frame.h: what ranks say to each other over TCP once a connection is proved (store/prove.h). Everything has a fixed size or a
 * capped one, and is judged as if an enemy had sent it. Numbers are little-endian, as on every processor that Lockstep runs
 * on.
 *
 *   control   notes: a head, and for some a text behind it; read at once, whatever else is under way
 *   letters   of a message that the receiver has granted: a head, and its data
 *   lanes     of a collective: chunks of data, each behind a head that says which call of the sender's they belong to    */
#ifndef LS_GROUP_TCP_FRAME_H
#define LS_GROUP_TCP_FRAME_H

#include "base/error.h"
#include "group/backend.h"

#define TCP_CHUNK_BYTES (UINT32_C(256) << 10) /* the most behind one head */
#define TCP_NAME_BYTES 32

/* --- calls ------------------------------------------------------------------------------------------------------------- */

/* What ranks compare: what was posted, of which the operation here may be a step. */
typedef struct tcp_call {
    uint64_t tag, count;
    uint32_t what; /* kind, dtype and op, a byte each */
    int32_t root;
    uint64_t number;           /* among the operations that are posted; 0: a message */
    char name[TCP_NAME_BYTES]; /* for messages alone: not compared */
} tcp_call;

tcp_call tcp_call_pack(const backend_op *op);
/* `packed` has to outlive the result, which refers to its name. */
group_call tcp_call_unpack(const tcp_call *packed);
bool tcp_calls_are_alike(const tcp_call *a, const tcp_call *b);

/* --- lanes and letters ------------------------------------------------------------------------------------------------- */

typedef struct tcp_head {
    uint32_t magic;
    uint32_t bytes;     /* of data behind it */
    uint64_t operation; /* the sender's; 1, 2, ... */
    uint64_t chunk;     /* of the operation, to this rank: 0, 1, ... */
    tcp_call call;
} tcp_head;

tcp_head tcp_head_make(uint64_t operation, uint64_t chunk, size_t bytes, const tcp_call *call);
/* Whether it can be one at all. */
bool tcp_head_is_sound(const tcp_head *head);

typedef struct tcp_letter {
    uint32_t magic, unused;
    uint64_t id;
    uint64_t bytes;
} tcp_letter;

tcp_letter tcp_letter_make(uint64_t id, size_t bytes);
bool tcp_letter_is_sound(const tcp_letter *letter);

/* --- control ----------------------------------------------------------------------------------------------------------- */

typedef enum tcp_note_kind {
    TCP_LEAVES = 1, /* status: LS_OK, or why the group is lost, with a text; number: the last operation done */
    TCP_CALLS,      /* number: of the operation; call */
    TCP_OFFERS,     /* a message; number: its id; call: tag, count, type */
    TCP_SEES,       /* number: how many offers of yours were taken note of */
    TCP_GRANTS      /* number: the id of the message that is to be sent */
} tcp_note_kind;

typedef struct tcp_note {
    uint32_t magic;
    uint16_t kind;
    uint16_t text_bytes; /* behind it, without a NUL */
    int32_t status;
    uint32_t unused;
    uint64_t number;
    tcp_call call;
} tcp_note;

#define TCP_MOST_NOTE_BYTES (sizeof(tcp_note) + LS_ERROR_TEXT_BYTES)

tcp_note tcp_note_make(tcp_note_kind kind, uint64_t number);

/* Reads the first note of `bytes` bytes; `text` [LS_ERROR_TEXT_BYTES] receives its text, with a NUL and nothing that no
 * terminal should get. Returns its length; 0: it is not all there; -1: it is none. */
long tcp_note_read(const void *data, size_t bytes, tcp_note *note, char *text);

#endif
