/* ranks.c: the ranks of a scene, and their backend. */
#include "models/shared.h"

#include "models/ranks.h"

#include "group/backend/shm/messages.h"

#include <poll.h>
#include <string.h>

#define WORKS 3  /* of each group, in its pool from the beginning */
#define BLOCKS 4 /* for whoever takes memory later */

/* One group of one rank. */
typedef struct member {
    shm_group shm;
    bool is_closed;
    int inside; /* threads in the backend */
} member;

typedef struct block {
    _Alignas(128) unsigned char bytes[128];
} block;

/* A board and behind it its lanes. All stand still but the lines that ranks_make counts among the state. */
static _Alignas(4096) unsigned char boards[MOST_GROUPS][MOST_RANKS][sizeof(shm_board) + ((size_t)512 << 10)];

static ranks_plan plan;
static ls_group *groups[MOST_GROUPS][MOST_RANKS];
static member *members[MOST_GROUPS][MOST_RANKS];
/* What ranks see of each other: the last operation that each has come to, and the last that each is through with. */
static _Atomic uint64_t *arrived[MOST_GROUPS][MOST_RANKS], *finished[MOST_GROUPS][MOST_RANKS];
static shm_board *board_table[MOST_GROUPS][MOST_RANKS];
static int no_processes[MOST_RANKS];
static struct pollfd polled[MOST_RANKS]; /* written before each use */
static int progress_thread;
static int callers[4], caller_count;

static struct {
    uint32_t live_lock;
    ls_live *live_first;
    int blocks_taken;
} * common;
static block *blocks[BLOCKS];

/* --- collectives -------------------------------------------------------------------------------------------------------- */

static member *member_of(const void *state) {
    return (member *)((char *)state - offsetof(member, shm));
}

/* Which group this is, for the tables. */
static int which_of(const shm_group *shm) {
    int which = 0;
    while (members[which][shm->rank] != member_of(shm)) which++;
    return which;
}

static void check_open(const void *state) {
    explore_claim(!member_of(state)->is_closed, "the backend is called after it was closed");
}

static void model_start(void *state, backend_op *op) {
    shm_group *shm = state;
    check_open(state);
    explore_claim(member_of(state)->inside == 0, "two threads drive one group");
    if (kind_is_message(op->call.kind)) {
        shm_message_start(shm, op);
        return;
    }
    op->scratch[0] = 0; /* the phase */
    atomic_store_explicit(arrived[which_of(shm)][shm->rank], op->number, memory_order_release);
}

static bool have_all_come(_Atomic uint64_t *const counts[], const shm_group *shm, uint64_t number) {
    for (int peer = 0; peer < shm->world_size; peer++)
        if (peer != shm->rank && atomic_load_explicit(counts[peer], memory_order_acquire) < number) return false;
    return true;
}

static backend_progress go_on(const shm_group *shm, backend_op *op) {
    const int which = which_of(shm);
    if (op->scratch[0] == 1) return have_all_come(finished[which], shm, op->number) ? BACKEND_DONE : BACKEND_PENDING;
    if (!have_all_come(arrived[which], shm, op->number)) return BACKEND_PENDING;
    if (!plan.has_second_phase) return BACKEND_DONE;
    op->scratch[0] = 1;
    atomic_store_explicit(finished[which][shm->rank], op->number, memory_order_release);
    return BACKEND_MOVED;
}

backend_progress shm_poll(void *state, backend_op *op) {
    shm_group *shm = state;
    check_open(state);
    explore_claim(++member_of(state)->inside == 1, "two threads drive one group");
    const backend_progress progress = kind_is_message(op->call.kind) ? shm_message_poll(shm, op) : go_on(shm, op);
    member_of(state)->inside--;
    return progress;
}

/* Only where groups are lost does anyone look whether peers are there. */
bool shm_waits_for(const shm_group *shm, const backend_op *op, int peer) {
    if (!plan.has_failures || peer == shm->rank) return false;
    return kind_is_message(op->call.kind) ? shm_message_waits_for(shm, op, peer) : true;
}

/* --- the rest of the backend -------------------------------------------------------------------------------------------- */

/* The real one's, and looked at before and after: closing must have waited. */
static uint32_t model_bell(void *state) {
    check_open(state);
    return shm_bell(state);
}

static void model_wake(void *state) {
    check_open(state);
    shm_wake(state);
    check_open(state);
}

static void model_nudge(void *state) {
    check_open(state);
    shm_nudge(state);
    check_open(state);
}

static void model_leave(void *state, const ls_error *why) {
    explore_claim(plan.has_failures, "a group is lost");
    check_open(state);
    shm_leave(state, why);
    check_open(state);
}

static void model_close(void *state) {
    check_open(state);
    explore_claim(member_of(state)->inside == 0, "a group is closed while somebody drives it");
    member_of(state)->is_closed = true;
}

static int no_spare_processors(const void *state) {
    (void)state;
    return -1;
}

static const ls_backend model_backend = {.name = "model",
                                         .reach = LS_REACH_HOST,
                                         .spare_processors = no_spare_processors,
                                         .close = model_close,
                                         .start = model_start,
                                         .poll = shm_poll,
                                         .examine = shm_examine,
                                         .describe_missing = shm_describe_missing,
                                         .bell = model_bell,
                                         .sleep = shm_sleep,
                                         .wake = model_wake,
                                         .nudge = model_nudge,
                                         .leave = model_leave};

/* --- what the library asks of the process ------------------------------------------------------------------------------- */

void *ranks_take_block(size_t bytes) {
    explore_claim(common->blocks_taken < BLOCKS && bytes <= sizeof(block), "a scene needs more memory than there is");
    return memset(blocks[common->blocks_taken++ % BLOCKS], 0, sizeof(block));
}

void *ranks_live_lock(void) {
    return &common->live_lock;
}

ls_live **ranks_live_first(void) {
    return &common->live_first;
}

bool ranks_have_others(void) {
    return plan.has_others;
}

void ranks_live_remove(const ls_live *live) {
    for (ls_live **link = &common->live_first; *link; link = &(*link)->next)
        if (*link == live) {
            *link = live->next;
            return;
        }
}

ls_status ranks_start_progress(ls_thread *thread, void (*body)(void *argument), void *argument) {
    thread->is_started = true;
    explore_start(progress_thread, body, argument);
    return LS_OK;
}

int ranks_progress_of(const ls_thread *thread) {
    return thread->is_started ? progress_thread : -1;
}

/* --- making them -------------------------------------------------------------------------------------------------------- */

static shm_lane *lane_at(int which, int rank, int peer, int ranks) {
    return (shm_lane *)(void *)(boards[which][rank] + sizeof(shm_board) + (size_t)peer * shm_lane_bytes(ranks));
}

/* Of a lane: its numbers and first offers, and the ring's beginning. */
static void share_lane(shm_lane *lane) {
    explore_share(&lane->offered, 128);
    explore_share(&lane->seen, 128);
    explore_share(lane->ring, 128);
    const void *const counters[] = {&lane->offered, &lane->written, &lane->served,
                                    &lane->seen,    &lane->granted, &lane->read};
    for (size_t i = 0; plan.lanes_are_quiet && i < sizeof counters / sizeof counters[0]; i++)
        explore_mark(counters[i], EXPLORE_QUIET);
}

static void make_board(int which, int rank) {
    shm_board *board = board_table[which][rank] = (shm_board *)(void *)boards[which][rank];
    explore_share(&board->standing, 128);
    explore_mark(&board->bell, EXPLORE_WORD);
    if (!plan.has_failures) explore_mark(&board->standing, EXPLORE_QUIET);
    if (plan.has_failures) explore_share(&board->why, 128);
    for (int peer = 0; plan.has_messages && peer < plan.ranks; peer++)
        if (peer != rank) share_lane(lane_at(which, rank, peer, plan.ranks));
    arrived[which][rank] = explore_alloc(2 * sizeof(uint64_t));
    finished[which][rank] = arrived[which][rank] + 1;
}

static void fill_pool(ls_group *group) {
    for (int i = 0; i < WORKS; i++) {
        ls_work *work = explore_alloc(sizeof *work);
        work->next = group->pool;
        group->pool = work;
        explore_mark(&work->is_begun, EXPLORE_QUIET);
        if (!plan.has_closing) explore_mark(&work->holders, EXPLORE_QUIET);
    }
}

/* What shows nothing in this scene. */
static void mark_group(ls_group *group) {
    explore_mark(&group->event, EXPLORE_WORD);
    explore_mark(&group->posted, EXPLORE_WORD);
    explore_mark(&group->turns, EXPLORE_HINT);
    explore_mark(&group->is_forked, EXPLORE_QUIET);
    if (!plan.has_messages) explore_mark(&group->mail_count, EXPLORE_QUIET);
    if (!plan.has_failures) explore_mark(&group->is_lost, EXPLORE_QUIET);
    if (plan.has_closing) return;
    explore_mark(&group->users, EXPLORE_QUIET);
    explore_mark(&group->inside, EXPLORE_QUIET);
}

/* One thread alone uses it. */
static void mark_single(ls_group *group) {
    const void *const fields[] = {&group->lock,       &group->driver, &group->first,  &group->waiters,
                                  &group->mail_count, &group->users,  &group->inside, &group->is_lost};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) explore_mark(fields[i], EXPLORE_QUIET);
    for (const ls_work *work = group->pool; work; work = work->next) {
        explore_mark(&work->holders, EXPLORE_QUIET);
        explore_mark(&work->is_complete, EXPLORE_QUIET);
    }
}

static void make_member(int which, int rank) {
    ls_group *group = groups[which][rank] = explore_alloc(sizeof *group);
    member *made = members[which][rank] = explore_alloc(sizeof *made);
    made->shm = (shm_group){.group = group,
                            .rank = rank,
                            .world_size = plan.ranks,
                            .boards = board_table[which],
                            .processes = no_processes,
                            .polled = polled};
    if (plan.has_messages) {
        shm_mail *mail = made->shm.mail = explore_alloc(MOST_RANKS * sizeof *mail);
        for (int peer = 0; peer < plan.ranks; peer++) mail[peer].notes_end = &mail[peer].notes;
    }
    group->backend = &model_backend;
    group->state = &made->shm;
    group->rank = rank;
    group->world_size = plan.ranks;
    group->timeout_ms = LS_FOREVER;
    group->drivers = rank == 0 ? plan.drivers : DRIVEN_BY_CALLERS;
    group->holders = 1;
    *(int *)(void *)&group->users = 1;
    if (plan.has_others && rank == 0) library_list_group(group);
    fill_pool(group);
    mark_group(group);
    const bool is_first = which == 0 && rank == 0;
    if (plan.several == SEVERAL_NOWHERE || (plan.several == SEVERAL_IN_FIRST && !is_first)) mark_single(group);
}

void ranks_make(const ranks_plan *wanted) {
    plan = *wanted;
    if (!plan.ranks) plan.ranks = 2;
    if (!plan.groups) plan.groups = 1;
    caller_count = 0;
    progress_thread = plan.drivers == DRIVEN_BY_ALL ? explore_dormant_thread("progress") : -1;
    common = explore_alloc(sizeof *common);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = explore_alloc(sizeof(block));
    for (int rank = 0; rank < plan.ranks; rank++) no_processes[rank] = -1;
    for (int which = 0; which < plan.groups; which++) {
        for (int rank = 0; rank < plan.ranks; rank++) make_board(which, rank);
        for (int rank = 0; rank < plan.ranks; rank++) make_member(which, rank);
    }
}

/* --- for scenes --------------------------------------------------------------------------------------------------------- */

ls_group *ranks_group(int rank, int which) {
    return groups[which][rank];
}

void ranks_arrive(ls_group *group, uint64_t number) {
    atomic_store_explicit(arrived[which_of(group->state)][group->rank], number, memory_order_release);
    ls_full_barrier();
    group->backend->nudge(group->state);
}

void ranks_have_arrived(ls_group *group, uint64_t number) {
    *(uint64_t *)(void *)arrived[which_of(group->state)][group->rank] = number;
}

int ranks_add_caller(const char *name, void (*body)(void *argument), ls_group *group) {
    const int thread = callers[caller_count++] = explore_dormant_thread(name);
    if (body) explore_start(thread, body, group);
    return thread;
}

ls_work *ranks_post_before(ls_group *group) {
    ls_work *work = group->pool;
    group->pool = work->next;
    work->next = NULL;
    work->op.call = (group_call){.kind = GROUP_BARRIER, .dtype = LS_U8};
    work->group = group;
    *(int *)(void *)&work->holders = 2;
    *(int *)(void *)&group->users += 1;
    *(ls_work **)(void *)&group->first = group->tail = work;
    if (group->drivers == DRIVEN_BY_ALL) library_start_progress(group);
    return work;
}

void ranks_send_before(int from, uint8_t tag) {
    shm_lane *lane = lane_at(0, from, 0, plan.ranks);
    lane->offers[0] = (shm_offer){.tag = tag, .count = 1, .dtype = LS_U8};
    lane->ring[0] = tag;
    *(uint64_t *)(void *)&lane->offered = *(uint64_t *)(void *)&lane->written = *(uint64_t *)(void *)&lane->served = 1;
}

bool ranks_has_begun_collective(void) {
    return explore_peek(arrived[0][0], sizeof(uint64_t)) > 0;
}

bool ranks_has_begun_message(void) {
    return explore_peek(&lane_at(0, 0, 1, plan.ranks)->offered, sizeof(uint64_t)) > 0;
}

bool ranks_are_done(void) {
    for (int i = 0; i < caller_count; i++)
        if (!explore_has_ended(callers[i])) return false;
    for (int which = 0; which < plan.groups; which++)
        for (int rank = 0; rank < plan.ranks; rank++) {
            const ls_group *group = groups[which][rank];
            if (members[which][rank]->is_closed) continue;
            if (explore_peek(&group->first, sizeof(void *)) || explore_peek(&group->driver, sizeof(uint32_t)) ||
                explore_peek(&group->mail_count, sizeof(int)))
                return false;
        }
    return true;
}

bool ranks_have_freed(const ls_group *group) {
    return explore_is_freed(group);
}
