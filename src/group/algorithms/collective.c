/* collective.c: runs an algorithm: settles what the transport has done, lets the rank work, posts what may go.
 *
 *   start: choose, open streams ---> poll: settle ---> work ---> post ---> ... ---> nothing left: done
 *
 * 1. Of a stream at most TRANSPORT_WINDOW messages are under way.
 * 2. The transport's counts are of messages with bytes; a message of none is done when those before it are.
 * 3. Whether a message may go depends on what is done alone: the order in which peers are served changes no result. */
#include "group/algorithms/algorithm.h"

#include "base/memory.h"
#include "group/group.h"

#include <string.h>

static const algorithm *const algorithms[ALGORITHM_COUNT] = {
    [ALGORITHM_DIRECT] = &direct_algorithm,     [ALGORITHM_EXCHANGE] = &exchange_algorithm,
    [ALGORITHM_PAIRWISE] = &pairwise_algorithm, [ALGORITHM_BRUCK] = &bruck_algorithm,
    [ALGORITHM_BINOMIAL] = &binomial_algorithm, [ALGORITHM_DISSEMINATION] = &dissemination_algorithm,
    [ALGORITHM_CHAIN] = &chain_algorithm,       [ALGORITHM_DOUBLING] = &doubling_algorithm,
    [ALGORITHM_HALVING] = &halving_algorithm,   [ALGORITHM_RING] = &ring_algorithm,
};

ls_status collective_create(collective **created, const transport *network, bool relaxed_order) {
    const size_t ranks = (size_t)network->world_size;
    *created = NULL;
    if (network->world_size > COLLECTIVE_MOST_RANKS)
        return ls_fail(LS_ERR_UNSUPPORTED, "%d ranks: a group over connections has at most %d; open it over mpi",
                       network->world_size, COLLECTIVE_MOST_RANKS);
    collective *c = *created = ls_alloc(sizeof *c);
    if (!c) return LS_ERR_MEMORY;
    c->transport = network;
    c->rank = network->rank;
    c->world_size = network->world_size;
    c->relaxed_order = relaxed_order;
    c->lanes = ls_alloc_array(ranks, sizeof *c->lanes);
    c->peers = ls_alloc_array(ranks, sizeof *c->peers);
    c->sources = ls_alloc_array(ranks, sizeof *c->sources);
    c->counts = ls_alloc_array(ranks, sizeof *c->counts);
    /* Not zeroed: what no operation uses takes no memory. */
    c->scratch = ls_alloc_raw(COLLECTIVE_SCRATCH_BYTES);
    if (c->lanes && c->peers && c->sources && c->counts && c->scratch) return LS_OK;
    collective_close(created);
    return LS_ERR_MEMORY;
}

void collective_close(collective **closed) {
    collective *c = *closed;
    *closed = NULL;
    if (!c) return;
    ls_free(c->scratch);
    ls_free(c->counts);
    ls_free(c->sources);
    ls_free(c->peers);
    ls_free(c->lanes);
    ls_free(c);
}

void collective_open(collective *c, int peer, uint64_t outgoing, uint64_t incoming) {
    if (outgoing + incoming == 0) return;
    stream *lane = c->lanes[peer];
    /* Listed once, also where its two directions are opened apart. */
    if (lane[OUTGOING].end + lane[INCOMING].end == 0) c->peers[c->peer_count++] = peer;
    lane[OUTGOING].end += outgoing;
    lane[INCOMING].end += incoming;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static bool settle(const collective *c, int peer, direction way) {
    const transport *t = c->transport;
    stream *s = &c->lanes[peer][way];
    if (s->done == s->posted) return false;
    const uint64_t before = s->done;
    const uint64_t count = way == OUTGOING ? t->sent(t->network, peer) : t->received(t->network, peer);
    while (s->done < s->posted) {
        if (c->algorithm->message[way](c, peer, s->done).bytes) {
            if (s->messages_done == count) break;
            s->messages_done++;
        }
        s->done++;
    }
    return s->done != before;
}

static bool post(const collective *c, int peer, direction way) {
    const transport *t = c->transport;
    stream *s = &c->lanes[peer][way];
    const uint64_t before = s->posted;
    while (s->posted < s->end && s->messages_posted - s->messages_done < TRANSPORT_WINDOW) {
        const message next = c->algorithm->message[way](c, peer, s->posted);
        if (!next.is_ready) break;
        if (next.bytes && way == OUTGOING) t->send(t->network, peer, next.data, next.bytes);
        if (next.bytes && way == INCOMING) t->receive(t->network, peer, next.data, next.bytes);
        s->messages_posted += next.bytes > 0;
        s->posted++;
    }
    return s->posted != before;
}

/* What peers wait for goes first. */
static bool post_all(const collective *c) {
    bool moved = false;
    for (int i = 0; i < c->peer_count; i++) moved |= post(c, c->peers[i], OUTGOING);
    for (int i = 0; i < c->peer_count; i++) moved |= post(c, c->peers[i], INCOMING);
    return moved;
}

static bool settle_all(const collective *c) {
    bool moved = false;
    for (int i = 0; i < c->peer_count; i++) {
        moved |= settle(c, c->peers[i], OUTGOING);
        moved |= settle(c, c->peers[i], INCOMING);
    }
    return moved;
}

static bool are_streams_done(const collective *c) {
    for (int i = 0; i < c->peer_count; i++) {
        const stream *lane = c->lanes[c->peers[i]];
        if (lane[OUTGOING].done < lane[OUTGOING].end || lane[INCOMING].done < lane[INCOMING].end) return false;
    }
    return true;
}

/* --- operations --------------------------------------------------------------------------------------------------- */

void collective_start_by(collective *c, const group_call *call, uint64_t number, algorithm_name name) {
    /* Only the former call's peers have used lanes: a start costs no pass over all ranks. */
    for (int i = 0; i < c->peer_count; i++) memset(&c->lanes[c->peers[i]], 0, sizeof *c->lanes);
    c->peer_count = 0;
    c->call = *call;
    c->number = number;
    c->bytes = call_bytes(call);
    c->has_failed = false;
    c->kernel = reduce_kernel_of(call);
    c->algorithm = algorithms[name];
    c->algorithm->start(c);
    post_all(c);
}

void collective_start(collective *c, const group_call *call, uint64_t number) {
    const reduce_kernel *kernel = reduce_kernel_of(call);
    /* Partial results of a type that is combined in a wider one would be rounded on the way. */
    const collective_shape shape = {.kind = call->kind,
                                    .bytes = call_bytes(call),
                                    .world_size = c->world_size,
                                    .is_relaxed = c->relaxed_order && kernel && !kernel->next};
    collective_start_by(c, call, number, algorithm_choose(&shape));
}

collective_progress collective_poll(collective *c) {
    bool moved = settle_all(c);
    const bool is_finished = c->algorithm->work(c, &moved);
    /* Before posting: who has seen a difference begins no more messages. */
    if (c->has_failed) return COLLECTIVE_FAILED;
    if (post_all(c)) moved = true;
    /* Work ends before the last results are out; only then is the memory the caller's again. */
    if (is_finished && are_streams_done(c)) return COLLECTIVE_DONE;
    return moved ? COLLECTIVE_MOVED : COLLECTIVE_PENDING;
}
