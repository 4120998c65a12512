/* notice.c: a rank that leaves a group, or loses it, says so; and how a rank sleeps.
 *
 * A notice goes to a few neighbours over a communicator that is never freed, since a message that comes for a freed one
 * may be taken for its successor's. Who fails because of a notice loses its group too, and tells its own neighbours: so
 * all who wait learn of it. A notice counts for operations that its sender had not completed; those it had have its
 * part, and end. */
#include "group/backend/mpi/plugin/state.h"

#include "base/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOTICE_TAG 1

/* --- sending ----------------------------------------------------------------------------------------------------- */

/* As many bytes as there is text; MPI sends such small messages at once, without waiting for the receiver. */
static int notice_bytes(const mpi_notice *notice) {
    return (int)(offsetof(mpi_notice, why.text) + strlen(notice->why.text) + 1);
}

static int send_to(mpi_letter *letter, int to) {
    const int code = MPI_Isend(&letter->notice, notice_bytes(&letter->notice), MPI_BYTE, to, NOTICE_TAG, mpi_here.root,
                               &letter->requests[letter->count]);
    if (code != MPI_SUCCESS) return code;
    letter->count++;
    mpi_here.sent[to]++;
    return MPI_SUCCESS;
}

int mpi_send_letter(mpi_letter *letter) {
    int code = MPI_SUCCESS;
    pthread_mutex_lock(&mpi_here.lock);
    for (int i = 0; i < letter->neighbour_count; i++) {
        const int now = send_to(letter, letter->neighbours[i]);
        if (now != MPI_SUCCESS) code = now;
    }
    letter->next = mpi_here.outbox;
    mpi_here.outbox = letter;
    pthread_mutex_unlock(&mpi_here.lock);
    return code;
}

/* The group's own. Whom it does not reach hears of it from the others, or at the time limit. */
static void send_own(mpi_group *mpi) {
    mpi_send_letter(mpi->letter);
    mpi->letter = NULL;
}

void mpi_leave(void *state, const ls_error *why) {
    mpi_group *mpi = state;
    if (atomic_exchange(&mpi->has_left, true)) return;
    mpi_notice *notice = &mpi->letter->notice;
    notice->group = mpi->number;
    notice->rank = mpi->rank;
    notice->done = atomic_load_explicit(&mpi->done, memory_order_relaxed);
    notice->why = *why;
    if (why->status == LS_OK) {
        char host[64] = "";
        gethostname(host, sizeof host - 1);
        snprintf(notice->why.text, sizeof notice->why.text, "rank %d (%s, process %d)", mpi->rank, host, (int)getpid());
    }
    if (mpi_may_call(mpi) && mpi_is_running())
        send_own(mpi);
    else
        atomic_store_explicit(&mpi->is_letter_due, true, memory_order_release); /* then closing sends it */
}

void mpi_post_letter(mpi_group *mpi) {
    if (mpi->letter && atomic_load_explicit(&mpi->is_letter_due, memory_order_acquire)) send_own(mpi);
    mpi_here.services->free(mpi->letter);
    mpi->letter = NULL;
}

static bool is_sent(mpi_letter *letter) {
    int is_complete = 1;
    while (is_complete && letter->count > 0) {
        MPI_Test(&letter->requests[letter->count - 1], &is_complete, MPI_STATUS_IGNORE);
        if (is_complete) letter->count--;
    }
    return letter->count == 0;
}

static void clear_outbox(void) {
    pthread_mutex_lock(&mpi_here.lock);
    for (mpi_letter **link = &mpi_here.outbox; *link;) {
        mpi_letter *letter = *link;
        if (!is_sent(letter)) {
            link = &letter->next;
            continue;
        }
        *link = letter->next;
        mpi_here.services->free(letter);
    }
    pthread_mutex_unlock(&mpi_here.lock);
}

/* --- receiving --------------------------------------------------------------------------------------------------- */

/* Of several, the one that hinders the earliest collective counts. */
static void keep_leave(mpi_group *mpi, const mpi_notice *notice) {
    if (!mpi->has_notice || notice->done < mpi->notice.done) {
        mpi->notice = *notice;
        mpi->has_notice = true;
    }
    if (notice->why.status == LS_OK) mpi->left[notice->rank] = true;
    if (mpi->loss.status == LS_OK) mpi->loss = notice->why;
}

static void keep(const mpi_notice *notice) {
    pthread_mutex_lock(&mpi_here.lock);
    mpi_group *mpi = mpi_here.groups;
    while (mpi && mpi->number != notice->group) mpi = mpi->next;
    if (mpi && notice->word)
        mpi_keep_word(mpi, notice);
    else if (mpi)
        keep_leave(mpi, notice);
    pthread_mutex_unlock(&mpi_here.lock);
}

static bool receive(void) {
    MPI_Message message;
    mpi_notice notice;
    int has_come = 0;
    if (MPI_Improbe(MPI_ANY_SOURCE, NOTICE_TAG, mpi_here.root, &has_come, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !has_come)
        return false;
    if (MPI_Mrecv(&notice, (int)sizeof notice, MPI_BYTE, &message, MPI_STATUS_IGNORE) == MPI_SUCCESS) keep(&notice);
    atomic_fetch_add_explicit(&mpi_here.received, 1, memory_order_relaxed);
    return true;
}

void mpi_read_notices(void) {
    while (receive()) {}
    clear_outbox();
}

/* Called by MPI_Finalize, whosever call that is, on every rank: nothing sent may be left unreceived. */
static int receive_all(MPI_Comm self, int key, void *unused, void *state) {
    (void)self, (void)key, (void)unused, (void)state;
    int expected = 0;
    if (mpi_here.root == MPI_COMM_NULL) return MPI_SUCCESS;
    const int code = MPI_Reduce_scatter_block(mpi_here.sent, &expected, 1, MPI_INT, MPI_SUM, mpi_here.root);
    while (code == MPI_SUCCESS && (mpi_here.outbox || atomic_load(&mpi_here.received) < expected)) mpi_read_notices();
    return code;
}

/* MPI calls such a function first of all, while it still works in full. */
ls_status mpi_prepare_notices(void) {
    int key = MPI_KEYVAL_INVALID;
    mpi_here.sent = mpi_here.services->alloc((size_t)mpi_here.world_size * sizeof *mpi_here.sent);
    if (!mpi_here.sent) return LS_ERR_MEMORY;
    MPI_TRY(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, receive_all, &key, NULL), "preparing MPI's end");
    MPI_TRY(MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL), "preparing MPI's end");
    return LS_OK;
}

static ls_status gone(const backend_op *op, const char *who) {
    char call[CALL_TEXT_BYTES + 32];
    return mpi_here.services->fail(LS_ERR_PEER_LOST,
                                   "%s left the group before it had done its part of %s; close the group", who,
                                   mpi_here.services->describe_op(op, call));
}

static ls_status examine_collective(mpi_group *mpi, const backend_op *op) {
    mpi_notice notice;
    pthread_mutex_lock(&mpi_here.lock);
    const bool is_hindered = mpi->has_notice && mpi->notice.done < op->number;
    if (is_hindered) notice = mpi->notice;
    pthread_mutex_unlock(&mpi_here.lock);
    if (!is_hindered) return LS_OK;
    return notice.why.status == LS_OK ? gone(op, notice.why.text) : mpi_here.services->raise(&notice.why);
}

static ls_status examine_message(mpi_group *mpi, const backend_op *op) {
    char who[32];
    pthread_mutex_lock(&mpi_here.lock);
    const ls_error loss = mpi->loss;
    const int rank = mpi_awaited_and_gone(mpi, op, mpi->left);
    pthread_mutex_unlock(&mpi_here.lock);
    if (loss.status != LS_OK) return mpi_here.services->raise(&loss);
    snprintf(who, sizeof who, "rank %d", rank);
    return rank < 0 ? LS_OK : gone(op, who);
}

ls_status mpi_examine(void *state, backend_op *op) {
    mpi_read_notices();
    return kind_is_message(op->call.kind) ? examine_message(state, op) : examine_collective(state, op);
}

void mpi_describe_missing(void *state, const backend_op *op, char *text, size_t bytes) {
    (void)state;
    (void)op;
    snprintf(text, bytes, "MPI does not tell which rank");
}

/* --- sleeping ---------------------------------------------------------------------------------------------------- */

/* MPI has no descriptor to sleep on, and moves data only inside its calls. So data that flows is served without a
 * pause, known by polls that take their time; while nothing comes, the pauses grow with the wait, by its 64th part. */
#define BUSY_POLL_NS (5 * 1000)
#define BUSY_TURN_NS (1 * LS_NS_PER_MS)
#define SHORTEST_NAP_NS (20 * 1000)
#define LONGEST_NAP_NS (1 * LS_NS_PER_MS)

uint32_t mpi_bell(void *state) {
    return atomic_load_explicit(&((mpi_group *)state)->bell, memory_order_acquire);
}

void mpi_wake(void *state) {
    mpi_here.services->word_advance(&((mpi_group *)state)->bell);
}

static int64_t nap_ns(backend_op *op, int64_t now_ns) {
    mpi_scratch *s = (mpi_scratch *)(void *)op->scratch;
    if (s->waits_since_ns == 0) s->waits_since_ns = now_ns;
    const int64_t part_ns = (now_ns - s->waits_since_ns) / 64;
    return part_ns < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : part_ns < LONGEST_NAP_NS ? part_ns : LONGEST_NAP_NS;
}

backend_progress mpi_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    mpi_group *mpi = state;
    int64_t now_ns = ls_now_ns();
    const int64_t turn_end_ns = now_ns + BUSY_TURN_NS;
    for (bool is_busy = true; is_busy && now_ns < turn_end_ns;) {
        const int64_t before_ns = now_ns;
        const backend_progress progress = mpi_poll(mpi, op);
        if (progress != BACKEND_PENDING) return progress;
        now_ns = ls_now_ns();
        is_busy = now_ns - before_ns > BUSY_POLL_NS;
        if (!is_busy) {
            const int64_t end_ns = now_ns + nap_ns(op, now_ns);
            mpi_here.services->word_wait(&mpi->bell, bell, end_ns < deadline_ns ? end_ns : deadline_ns);
        } else if (mpi->spare_processors < 0) {
            sched_yield();
        }
    }
    return BACKEND_PENDING;
}
