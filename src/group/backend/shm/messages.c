/* messages.c: send and receive. Polled beside the collective that is under way, as often as there are any. */
#include "group/backend/shm/messages.h"

#include "base/fault.h"
#include "base/memory.h"
#include "group/describe.h"
#include "group/group.h"

#include <string.h>

typedef enum message_phase { NOT_OFFERED, OFFERED, WRITING, UNMATCHED, MATCHED, READING } message_phase;

/* A message's scratch. */
typedef struct message {
    message_phase phase;
    int peer; /* negative: any, so far */
    uint64_t id;
    size_t done; /* bytes */
} message;

_Static_assert(sizeof(message) <= sizeof((backend_op *)0)->scratch, "a message's scratch is too small");

/* All lanes of a board together take about this much. */
#define RINGS_BYTES ((size_t)256 << 10)
#define LEAST_RING_BYTES ((size_t)4096)

static size_t ring_bytes(int world_size) {
    const size_t share = RINGS_BYTES / (size_t)world_size / 4096 * 4096;
    return share > LEAST_RING_BYTES ? share : LEAST_RING_BYTES;
}

size_t shm_lane_bytes(int world_size) {
    return sizeof(shm_lane) + ring_bytes(world_size);
}

static shm_lane *lane(const shm_group *shm, int rank, int peer) {
    return (shm_lane *)(void *)((char *)(shm->boards[rank] + 1) + (size_t)peer * shm_lane_bytes(shm->world_size));
}

ls_status shm_mail_create(shm_group *shm) {
    shm->mail = ls_alloc_array((size_t)shm->world_size, sizeof *shm->mail);
    for (int peer = 0; shm->mail && peer < shm->world_size; peer++) shm->mail[peer].notes_end = &shm->mail[peer].notes;
    return shm->mail ? LS_OK : LS_ERR_MEMORY;
}

void shm_mail_free(shm_group *shm) {
    for (int peer = 0; shm->mail && peer < shm->world_size; peer++)
        for (shm_note *next = NULL; shm->mail[peer].notes; shm->mail[peer].notes = next) {
            next = shm->mail[peer].notes->next;
            ls_free(shm->mail[peer].notes);
        }
    ls_free(shm->mail);
}

static message *message_of(backend_op *op) {
    return (message *)(void *)op->scratch;
}

static uint64_t load(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_acquire);
}

/* What we wrote before can be seen with it. */
static void publish(const shm_group *shm, int peer, _Atomic uint64_t *value, uint64_t now) {
    atomic_store_explicit(value, now, memory_order_release);
    ls_word_advance(&shm->boards[peer]->bell);
}

void shm_message_start(shm_group *shm, backend_op *op) {
    message *m = message_of(op);
    *m = (message){.phase = UNMATCHED, .peer = op->call.root};
    if (op->call.kind != GROUP_SEND) return;
    m->phase = NOT_OFFERED;
    m->id = shm->mail[m->peer].next_id++;
}

/* --- sending ----------------------------------------------------------------------------------------------------------- */

/* In the order of their numbers, so that messages with one tag arrive in order. */
static backend_progress offer(const shm_group *shm, const backend_op *op, message *m) {
    shm_lane *own = lane(shm, shm->rank, m->peer), *peers = lane(shm, m->peer, shm->rank);
    const uint64_t offered = atomic_load_explicit(&own->offered, memory_order_relaxed);
    if (offered != m->id || offered - load(&peers->seen) >= SHM_OFFERS) return BACKEND_PENDING;
    own->offers[m->id % SHM_OFFERS] =
        (shm_offer){.tag = op->call.tag, .count = op->call.count, .dtype = (uint32_t)op->call.dtype};
    publish(shm, m->peer, &own->offered, m->id + 1);
    m->phase = OFFERED;
    ls_point("shm.message.offered");
    return BACKEND_MOVED;
}

static backend_progress await_grant(const shm_group *shm, message *m) {
    const shm_lane *own = lane(shm, shm->rank, m->peer), *peers = lane(shm, m->peer, shm->rank);
    if (load(&peers->granted) == atomic_load_explicit(&own->served, memory_order_relaxed) || peers->chosen != m->id)
        return BACKEND_PENDING;
    m->phase = WRITING;
    return BACKEND_MOVED;
}

/* At most to the ring's end. */
static size_t piece(size_t ring, uint64_t position, size_t available, size_t left) {
    const size_t to_end = ring - position % ring;
    const size_t now = available < left ? available : left;
    return now < to_end ? now : to_end;
}

static backend_progress write_piece(const shm_group *shm, const backend_op *op, message *m) {
    shm_lane *own = lane(shm, shm->rank, m->peer);
    const size_t ring = ring_bytes(shm->world_size), left = op->bytes - m->done;
    const uint64_t written = atomic_load_explicit(&own->written, memory_order_relaxed);
    const uint64_t read = load(&lane(shm, m->peer, shm->rank)->read);
    const size_t now = piece(ring, written, ring - (size_t)(written - read), left);
    if (now == 0 && left) return BACKEND_PENDING;
    if (now) copy_for_peers(own->ring + written % ring, (const char *)op->call.send + m->done, now);
    m->done += now;
    publish(shm, m->peer, &own->written, written + now);
    ls_point("shm.message.written");
    if (m->done < op->bytes) return BACKEND_MOVED;
    publish(shm, m->peer, &own->served, atomic_load_explicit(&own->served, memory_order_relaxed) + 1);
    return BACKEND_DONE;
}

/* --- receiving --------------------------------------------------------------------------------------------------------- */

static ls_status note_offers(const shm_group *shm, int peer) {
    shm_lane *own = lane(shm, shm->rank, peer);
    const shm_lane *peers = lane(shm, peer, shm->rank);
    const uint64_t offered = load(&peers->offered);
    for (uint64_t id = atomic_load_explicit(&own->seen, memory_order_relaxed); id < offered; id++) {
        shm_note *note = ls_alloc(sizeof *note);
        if (!note) return LS_ERR_MEMORY;
        note->id = id;
        note->offer = peers->offers[id % SHM_OFFERS];
        *shm->mail[peer].notes_end = note;
        shm->mail[peer].notes_end = &note->next;
        publish(shm, peer, &own->seen, id + 1);
    }
    return LS_OK;
}

static ls_status note_all_offers(const shm_group *shm) {
    for (int peer = 0; peer < shm->world_size; peer++)
        if (peer != shm->rank) LS_TRY(note_offers(shm, peer));
    return LS_OK;
}

static backend_progress differ(const shm_group *shm, backend_op *op, int peer, const shm_offer *offered) {
    char ours[CALL_TEXT_BYTES], theirs[CALL_TEXT_BYTES];
    const group_call call = {.kind = GROUP_SEND,
                             .dtype = (ls_dtype)offered->dtype,
                             .count = offered->count,
                             .root = shm->rank,
                             .tag = offered->tag};
    op->status = ls_fail(LS_ERR_MISMATCH, "rank %d called %s, rank %d %s; both have to have the same count and type",
                         peer, call_describe(&call, theirs), shm->rank, call_describe(&op->call, ours));
    return BACKEND_FAILED;
}

/* The first offer of `peer` with our tag. */
static backend_progress match(const shm_group *shm, backend_op *op, message *m, int peer) {
    shm_mail *mail = &shm->mail[peer];
    shm_note **link = &mail->notes;
    while (*link && (*link)->offer.tag != op->call.tag) link = &(*link)->next;
    shm_note *found = *link;
    if (!found) return BACKEND_PENDING;
    *link = found->next;
    if (!*link) mail->notes_end = link;
    const shm_offer offered = found->offer;
    m->id = found->id;
    ls_free(found);
    if (offered.count != op->call.count || offered.dtype != (uint32_t)op->call.dtype)
        return differ(shm, op, peer, &offered);
    m->peer = peer;
    m->phase = MATCHED;
    return BACKEND_MOVED;
}

static backend_progress match_any(const shm_group *shm, backend_op *op, message *m) {
    if (op->call.root >= 0) return match(shm, op, m, op->call.root);
    for (int peer = 0; peer < shm->world_size; peer++) {
        const backend_progress progress = peer == shm->rank ? BACKEND_PENDING : match(shm, op, m, peer);
        if (progress != BACKEND_PENDING) return progress;
    }
    return BACKEND_PENDING;
}

static backend_progress grant(const shm_group *shm, message *m) {
    shm_lane *own = lane(shm, shm->rank, m->peer);
    if (shm->mail[m->peer].is_receiving) return BACKEND_PENDING;
    shm->mail[m->peer].is_receiving = true;
    own->chosen = m->id;
    publish(shm, m->peer, &own->granted, atomic_load_explicit(&own->granted, memory_order_relaxed) + 1);
    m->phase = READING;
    ls_point("shm.message.granted");
    return BACKEND_MOVED;
}

static backend_progress read_piece(const shm_group *shm, const backend_op *op, message *m) {
    shm_lane *own = lane(shm, shm->rank, m->peer);
    const shm_lane *peers = lane(shm, m->peer, shm->rank);
    const size_t ring = ring_bytes(shm->world_size), left = op->bytes - m->done;
    const uint64_t read = atomic_load_explicit(&own->read, memory_order_relaxed);
    const size_t now = piece(ring, read, (size_t)(load(&peers->written) - read), left);
    if (now) {
        memcpy((char *)op->call.data + m->done, peers->ring + read % ring, now);
        m->done += now;
        publish(shm, m->peer, &own->read, read + now);
        ls_point("shm.message.read");
    }
    const bool is_served = load(&peers->served) == atomic_load_explicit(&own->granted, memory_order_relaxed);
    if (m->done < op->bytes || !is_served) return now ? BACKEND_MOVED : BACKEND_PENDING;
    shm->mail[m->peer].is_receiving = false;
    if (op->call.source) *op->call.source = m->peer;
    return BACKEND_DONE;
}

backend_progress shm_message_poll(shm_group *shm, backend_op *op) {
    message *m = message_of(op);
    if (mail_begins_with(shm->group, op) && (op->status = note_all_offers(shm)) != LS_OK) return BACKEND_FAILED;
    switch (m->phase) {
    case NOT_OFFERED: return offer(shm, op, m);
    case OFFERED: return await_grant(shm, m);
    case WRITING: return write_piece(shm, op, m);
    case UNMATCHED: return match_any(shm, op, m);
    case MATCHED: return grant(shm, m);
    case READING: return read_piece(shm, op, m);
    }
    op->status = ls_fail(LS_ERR_INTERNAL, "a message is in no phase");
    return BACKEND_FAILED;
}

bool shm_message_waits_for(const shm_group *shm, const backend_op *op, int peer) {
    const message *m = (const message *)(const void *)op->scratch;
    return peer != shm->rank && (m->peer < 0 || m->peer == peer);
}
