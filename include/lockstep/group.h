/* lockstep/group.h: process groups: ranks that run collectives together.
 *
 *     ls_group *group = NULL;
 *     if (ls_group_open(&group, NULL) == LS_OK) {                  // from the environment, else a world of one
 *         float mean = (float)ls_group_rank(group);
 *         ls_group_all_reduce(group, &mean, 1, LS_F32, LS_SUM, NULL);
 *         ls_group_close(&group);
 *     }
 *
 * All ranks of a group call the same collectives in the same order. Any thread may post; calls are ordered as they are
 * posted. `work` NULL makes a call block under the group's time limit; else it receives a handle to wait on, and the
 * buffers stay untouched by the caller until the work is complete.
 *
 * When a rank dies, leaves or calls something else, the group is lost: that call and all later ones fail with the same
 * sentence, which names the rank, the operation and its number. Contents of buffers are then undefined.              */
#ifndef LOCKSTEP_GROUP_H
#define LOCKSTEP_GROUP_H

#include <lockstep/base.h>
#include <lockstep/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_group ls_group;
typedef struct ls_work ls_work;

/* How values of several ranks become one, in rank order: every rank and every run has the same bits (over NCCL, and over
 * MPI sums, products and averages of f32 and f64 but a reduce-scatter's, every rank).
 *
 * f16 and bf16 are combined in f32 and rounded once, at the end (over NCCL: as it does). Sums and products of integers wrap
 * around. An average is the sum divided by the number of ranks; of integers the sum is formed in 64 bits and cut toward
 * zero: int8 120 and 100 average 110 (not over NCCL). A NaN in a maximum or minimum stays (over NCCL: as it does). Bools
 * hold 0 or 1: sum and maximum are "or", product and minimum "and"; they have no average. Bitwise ops are for integers. */
typedef enum ls_op {
    LS_SUM = 0,
    LS_MAX,
    LS_BITWISE_OR,
    LS_MIN,
    LS_PRODUCT,
    LS_AVERAGE,
    LS_BITWISE_AND,
    LS_BITWISE_XOR,
    LS_OP_COUNT
} ls_op;

LS_API const char *ls_op_name(ls_op op);

typedef struct ls_group_options {
    /* Ranks that are threads of one process pass all three; otherwise leave them zero: the environment tells. */
    ls_store *store; /* borrowed during the call; the group keeps its own hold */
    int rank;
    int world_size;

    int64_t timeout_ms; /* limit of one operation, from its launch; 0: 30 minutes; LS_FOREVER */

    /* What carries the group: "shm", shared memory of one host; "tcp", connections between any hosts, and shared memory
     * inside each; "mpi"; "nccl", on GPUs (docs/nccl.md; it has not run on one yet). NULL: what LOCKSTEP_BACKEND names,
     * else mpi under mpirun or mpiexec and where the program has initialised MPI, shm where all ranks are on one host, and
     * tcp otherwise. */
    const char *backend;

    /* Over tcp, lets an all-reduce add in whatever order is fastest (a ring, recursive doubling, halving and doubling).
     * Replicas are still equal, and so are reruns; other sizes may give other bits. The same on all ranks. */
    bool relaxed_order;
} ls_group_options;

/* Opens the group of all ranks and waits for them. `options` NULL means all defaults: the environment of `lockstep
 * run`, of torchrun, of Slurm's srun, of mpirun and mpiexec, or torchrun's names set by hand, and without any a world of
 * one rank; docs/start-up.md says how ranks find each other.
 * Errors: LS_ERR_ENVIRONMENT (RANK without WORLD_SIZE, a rank out of range, ...), LS_ERR_TIMEOUT naming who did not
 * come, LS_ERR_MEMORY, LS_ERR_IO, LS_ERR_PEER_LOST, LS_ERR_UNSUPPORTED naming the library and the package that MPI or
 * NCCL lacks here. On error nothing is left behind. */
LS_API ls_status ls_group_open(ls_group **group, const ls_group_options *options);

/* Leaves the group: local, never waits for peers, whose next operation fails with "rank N left". Pending work of this
 * rank ends with LS_ERR_ABORTED; memory of ls_group_alloc goes. A wrap or a reducer goes on: it has a duplicate of its
 * own. Other threads may be waiting for the group's work, or aborting it; none may be in another call on it. */
LS_API void ls_group_close(ls_group **group);

/* The calling rank, 0 to world size - 1, and the number of ranks. Fixed for the group's life; any thread. */
LS_API int ls_group_rank(const ls_group *group);
LS_API int ls_group_world_size(const ls_group *group);

/* A second group of the same ranks with an order of operations of its own. Collective. */
LS_API ls_status ls_group_duplicate(ls_group **duplicate, ls_group *group);

/* A group of some ranks of `group`, with an order of operations of its own: rank i of it is ranks[i]. Collective in `group`:
 * all its ranks call, with the same list. Who is not in the list gets a handle too, whose every use is LS_ERR_STATE, "rank 3
 * is no member of this group". Groups close in any order.
 * Errors: LS_ERR_ARGUMENT (no rank, a rank twice or outside the group), LS_ERR_MISMATCH, LS_ERR_UNSUPPORTED, and those of
 * ls_group_open. */
LS_API ls_status ls_group_subgroup(ls_group **subgroup, ls_group *group, const int *ranks, int count);

/* Splits `group` into a group for each colour; ranks stand in the order of their keys, then of their ranks. Collective. A
 * rank with a negative colour is a member of none, as above. */
LS_API ls_status ls_group_split(ls_group **subgroup, ls_group *group, int colour, int key);

/* Whether this rank is one of the group's. Of a group it is no member of, its rank is -1, and the world size counts the
 * members: with a negative colour none. */
LS_API bool ls_group_is_member(const ls_group *group);

/* Several groups of the same ranks as one, whose operations go to each in turn, so that several are under way at once
 * ("PyTorch Distributed", section 5.4). All ranks make it of the same groups in the same order. It keeps hold of them; the
 * caller may close its handles. Memory of ls_group_alloc belongs to the first: only that one reduces it in place. Local. */
LS_API ls_status ls_group_round_robin(ls_group **group, ls_group *const *groups, int count);

/* Memory that the backend reduces where it lies, aligned to a page, zeroed. Collective: all ranks call with the same
 * size in the same order; returns when every rank has it, or fails on all. Freed by ls_group_free, at the latest with
 * the group.
 * Errors: LS_ERR_MEMORY with the sizes wanted and left, LS_ERR_MISMATCH, and those of any collective. */
LS_API ls_status ls_group_alloc(ls_group *group, size_t bytes, void **memory);

/* Gives memory of ls_group_alloc back, locally; no operation of this rank may be using it. NULL is harmless. */
LS_API void ls_group_free(ls_group *group, void *memory);

/* Combines `count` elements of `data` over all ranks, in place; every rank ends with the same bits.
 *
 * data     [count] elements of `dtype`; aligned to the element; best from ls_group_alloc (then nothing is copied)
 * dtype    any, as far as `op` is defined for it
 * work     receives a handle to wait on, owned by the caller; NULL makes the call block
 *
 * Errors: LS_ERR_ARGUMENT; LS_ERR_MISMATCH, LS_ERR_PEER_LOST, LS_ERR_ABORTED name the ranks in ls_last_error(). */
LS_API ls_status ls_group_all_reduce(ls_group *group, void *data, size_t count, ls_dtype dtype, ls_op op,
                                     ls_work **work);

/* Copies `count` elements of `data` from rank `root` to `data` on all others. Errors as above. */
LS_API ls_status ls_group_broadcast(ls_group *group, void *data, size_t count, ls_dtype dtype, int root,
                                    ls_work **work);

/* Gathers `count` elements of `send` of every rank into `receive` [world size][count], in rank order. `send` may be
 * this rank's place in `receive`. Errors as above. */
LS_API ls_status ls_group_all_gather(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                     ls_work **work);

/* Combines `count` elements of `data` over all ranks into rank `root`'s `data`; that of the others stays as it is. Errors as
 * above. */
LS_API ls_status ls_group_reduce(ls_group *group, void *data, size_t count, ls_dtype dtype, ls_op op, int root,
                                 ls_work **work);

/* Gathers `count` elements of `send` of every rank into rank `root`'s `receive` [world size][count]. `receive` is read on the
 * root only; the root's `send` may be its place in `receive`. Errors as above. */
LS_API ls_status ls_group_gather(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                 int root, ls_work **work);

/* Deals rank `root`'s `send` [world size][count] out: each rank gets `count` elements in `receive`. `send` is read on the
 * root only; the root's `receive` may be its place in `send`. Errors as above. */
LS_API ls_status ls_group_scatter(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                  int root, ls_work **work);

/* Combines `send` [world size][count] over all ranks, and each rank gets its row in `receive` [count], which may be this
 * rank's row of `send`. Errors as above. */
LS_API ls_status ls_group_reduce_scatter(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                         ls_op op, ls_work **work);

/* Row r of `send` [world size][count] goes to rank r, and the row of rank r in `receive` [world size][count] comes from it.
 * `send` and `receive` do not overlap. Errors as above. */
LS_API ls_status ls_group_all_to_all(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                     ls_work **work);

/* As ls_group_all_to_all with rows of different lengths, one behind the other: send_counts [world size] elements for each
 * rank, receive_counts [world size] from each. Both are copied. Ranks compare them: a difference is LS_ERR_MISMATCH. */
LS_API ls_status ls_group_all_to_all_uneven(ls_group *group, const void *send, const size_t *send_counts, void *receive,
                                            const size_t *receive_counts, ls_dtype dtype, ls_work **work);

/* Returns when every rank has called it. Errors as above. */
LS_API ls_status ls_group_barrier(ls_group *group, ls_work **work);

/* A message to rank `to`, of `count` elements: complete when it is received. Messages between two ranks with one tag arrive in
 * the order in which they were sent; they wait for no other message and no collective. Both ranks pass the same count and
 * type. Errors: LS_ERR_ARGUMENT (a rank that is not there, or this one), LS_ERR_UNSUPPORTED, and as above. */
LS_API ls_status ls_group_send(ls_group *group, const void *data, size_t count, ls_dtype dtype, int to, int tag,
                               ls_work **work);

/* A message with `tag` of rank `from`, or LS_ANY_RANK. `source`, if not NULL, receives whose it was; it and `data` have to
 * live until the work is complete. Errors as of ls_group_send. */
#define LS_ANY_RANK (-1)
LS_API ls_status ls_group_receive(ls_group *group, void *data, size_t count, ls_dtype dtype, int from, int tag,
                                  int *source, ls_work **work);

/* Waits until every rank has called it, and says who has not: rank 0 waits `timeout_ms` for the others, and all that came
 * learn its verdict, LS_ERR_TIMEOUT naming the ranks that did not come. The group is not lost, unless a rank is dead. Goes
 * beside the order of other calls, through the store (over MPI as messages of its own): a tool to find a rank that hangs,
 * slower than ls_group_barrier. Errors: LS_ERR_TIMEOUT, LS_ERR_PEER_LOST, those of the store. */
LS_API ls_status ls_group_monitored_barrier(ls_group *group, int64_t timeout_ms);

/* Several of the same kind at once: `n` arrays data[i] of counts[i] elements (or send[i], receive[i]), posted together, so that
 * nothing of another thread comes in between; `work` is complete when all are. The arrays of pointers and counts are
 * copied. n is at least 1. Errors as of each. */
LS_API ls_status ls_group_all_reduce_many(ls_group *group, void *const *data, const size_t *counts, int n,
                                          ls_dtype dtype, ls_op op, ls_work **work);
LS_API ls_status ls_group_broadcast_many(ls_group *group, void *const *data, const size_t *counts, int n,
                                         ls_dtype dtype, int root, ls_work **work);
LS_API ls_status ls_group_all_gather_many(ls_group *group, const void *const *send, void *const *receive,
                                          const size_t *counts, int n, ls_dtype dtype, ls_work **work);
LS_API ls_status ls_group_reduce_scatter_many(ls_group *group, const void *const *send, void *const *receive,
                                              const size_t *counts, int n, ls_dtype dtype, ls_op op, ls_work **work);

/* Ends the group from any thread, also while others wait: pending and later operations of all ranks fail with
 * LS_ERR_ABORTED and `reason`. */
LS_API void ls_group_abort(ls_group *group, const char *reason);

/* Drives what was posted a little further on the calling thread and returns at once. For loops that compute. */
LS_API void ls_group_progress(ls_group *group);

/* Waits until the work is complete and returns its status. timeout_ms: 0 and LS_FOREVER wait as long as the operation
 * may take, which the group's limit ends. A limit shorter than that which expires returns LS_ERR_TIMEOUT and changes
 * nothing. May be called again, by any thread, one at a time. */
LS_API ls_status ls_work_wait(ls_work *work, int64_t timeout_ms);

/* Waits for all of `works`, NULLs aside; returns the first error. The limit is for all together, as above. */
LS_API ls_status ls_work_wait_all(ls_work *const *works, int count, int64_t timeout_ms);

/* Whether the work has ended, well or badly; never waits. */
LS_API bool ls_work_is_complete(ls_work *work);

/* Lets go of the handle; an operation under way goes on, and its buffers must stay until it is complete. */
LS_API void ls_work_close(ls_work **work);

#ifdef __cplusplus
}
#endif
#endif
