/* lockstep/group.h: process groups: ranks that run collectives together.
 *
 *     ls_group *group = NULL;
 *     if (ls_group_open(&group, NULL) == LS_OK) {                  // from the environment, else a world of one
 *         float mean = (float)ls_group_rank(group);
 *         ls_group_all_reduce(group, &mean, 1, LS_F32, LS_SUM, NULL);
 *         ls_group_close(&group);
 *     }
 *
 * Order: all ranks of a group call the same collectives in the same order. Any thread may call any function at any
 * time, but ls_group_close; calls take place in the order in which they were made.
 *
 * Waiting: with `work` NULL a call blocks until the operation is complete. Otherwise it returns at once, and `work`
 * receives a handle that the caller waits on and closes; until the work is complete the caller leaves the buffers
 * alone.
 *
 * Buffers: arrays of `count` elements of `dtype`, aligned to an element, in any memory; memory of ls_group_alloc is the
 * fastest. They may be NULL where the count is 0. A call that takes `send` and `receive` allows them to overlap only
 * where its comment says so.
 *
 * Failure: when a rank dies, leaves or calls something else, or when an operation exceeds the group's time limit, the
 * group is lost. That operation and every later one fail with the same sentence, which names the rank, the operation
 * and its number; the contents of the buffers are then undefined. Close the group; the ranks that are left may open
 * another.
 *
 * The collectives and their names are those of MPI (https://www.mpi-forum.org/docs) and of PyTorch's c10d;
 * docs/porting.md lists what differs. */
#ifndef LOCKSTEP_GROUP_H
#define LOCKSTEP_GROUP_H

#include <lockstep/base.h>
#include <lockstep/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_group ls_group;
typedef struct ls_work ls_work;

/* How the values of all ranks are combined into one.
 *
 * Values are combined in the order of the ranks, so the result has the same bits on every rank and in every run. There
 * are two exceptions, in which all ranks agree but another run may round differently: everything over NCCL, and over
 * MPI the sums, products and averages of f32 and f64 in all operations but ls_group_reduce_scatter.
 *
 *   f16, bf16      combined in f32 and rounded once, at the end
 *   integers       sums and products wrap around; an average is the sum in 64 bits divided by the number of ranks,
 *                  rounded toward zero: of the int8 values 120 and 100 it is 110
 *   floats         a NaN on any rank makes a maximum or minimum NaN
 *   bools          hold 0 or 1; sum and maximum are "or", product and minimum are "and"; there is no average
 *   bitwise ops    are for integers
 *
 * Over NCCL, 16-bit floats and NaNs are treated as NCCL treats them, and integers have no average (docs/nccl.md). */
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

/* "sum", "max", "bitwise or", ...; "unknown op" for a value that is none. The text is static. Any thread. */
LS_API const char *ls_op_name(ls_op op);

typedef struct ls_group_options {
    /* Where the ranks meet, and which of them this is. Leave all three zero to have them from the environment; pass all
     * three where ranks are threads of one process, or meet at a store of your own. */
    ls_store *store; /* needed during the call only: the group keeps a hold of its own */
    int rank;        /* 0 to world_size - 1 */
    int world_size;

    /* How long one operation may take, from its start. When it takes longer the group is lost. 0: 30 minutes;
     * LS_FOREVER: no limit. */
    int64_t timeout_ms;

    /* The backend, which moves the data:
     *
     *   "shm"    shared memory of one host
     *   "tcp"    connections between any hosts, and shared memory inside each
     *   "mpi"    the MPI under whose launcher the program runs
     *   "nccl"   NVIDIA's NCCL, between GPUs; it has not run on one yet (docs/nccl.md)
     *   NULL     the one that LOCKSTEP_BACKEND names; without it mpi under mpirun and mpiexec and where the program has
     *            initialised MPI, else shm where all ranks are on one host, else tcp */
    const char *backend;

    /* Over tcp, lets an all-reduce combine in whatever order is fastest (docs/process-groups.md). Ranks and reruns
     * still agree bit for bit, but the same values in a message of another size may round differently. The same on all
     * ranks. */
    bool relaxed_order;
} ls_group_options;

/* Opens the group of all ranks and waits until they have come. The caller closes it with ls_group_close.
 *
 * options   NULL or all zero: ranks find each other through the environment that `lockstep run`, torchrun, Slurm's
 *           srun, mpirun or mpiexec has set, or through torchrun's variables set by hand; without any of these the
 *           program is a world of one rank (docs/start-up.md). Read during the call only.
 *
 * Errors: LS_ERR_ARGUMENT; LS_ERR_ENVIRONMENT names the variable (RANK without WORLD_SIZE, a rank out of range, ...);
 * LS_ERR_TIMEOUT names the ranks that did not come; LS_ERR_UNSUPPORTED names the library that MPI or NCCL lacks, and
 * its package; LS_ERR_PEER_LOST, LS_ERR_STATE (the port is taken), LS_ERR_MEMORY, LS_ERR_IO. On an error nothing is
 * left behind, and `group` is NULL. */
LS_API ls_status ls_group_open(ls_group **group, const ls_group_options *options);

/* Leaves the group and sets *group to NULL; NULL is harmless. Messages that this rank has sent and that nobody has
 * received yet have 2 s to arrive; nothing else waits for other ranks: their next operation fails and names this rank
 * as having left. This rank's unfinished work ends with LS_ERR_ABORTED, and all memory of ls_group_alloc is freed. Wraps
 * and reducers made over the group go on, since each has a duplicate of its own. Meanwhile other threads may wait for the
 * group's work or abort the group, but be in no other call on it. */
LS_API void ls_group_close(ls_group **group);

/* The calling rank, from 0, and the number of ranks. Both stay as they are for the group's life. Never fail. */
LS_API int ls_group_rank(const ls_group *group);
LS_API int ls_group_world_size(const ls_group *group);

/* Opens a second group of the same ranks, whose operations are ordered by themselves. Collective: all ranks call it,
 * and it returns when all have. The caller closes the duplicate, before or after `group`.
 * Errors: LS_ERR_ARGUMENT (NULL), LS_ERR_STATE when another thread of this rank makes a group or allocates memory of
 * `group` at the same moment, and those of ls_group_open. They are alike on all ranks. */
LS_API ls_status ls_group_duplicate(ls_group **duplicate, ls_group *group);

/* Opens a group of some ranks of `group`: rank i of it is rank ranks[i] of `group`. Collective: all ranks of `group`
 * call it, with the same list, and it returns when all have. A rank that is not in the list gets a handle too, on which
 * every operation fails with LS_ERR_STATE; ls_group_is_member tells. Every rank closes its handle; groups may be closed in
 * any order.
 *
 * ranks   [count] different ranks of `group`, 1 at least; read during the call only
 *
 * Errors: LS_ERR_ARGUMENT (no rank, one twice or outside the group), LS_ERR_MISMATCH when lists differ,
 * LS_ERR_UNSUPPORTED where the backend cannot, and those of ls_group_duplicate. */
LS_API ls_status ls_group_subgroup(ls_group **subgroup, ls_group *group, const int *ranks, int count);

/* Splits `group` into one group for each colour: `subgroup` has the ranks that pass the same `colour`, in the order of
 * their keys, and of their ranks where keys are equal. Collective: all ranks of `group` call it. A rank that passes a
 * negative colour gets a handle that belongs to no group, as above. Errors: as above, and LS_ERR_MEMORY. */
LS_API ls_status ls_group_split(ls_group **subgroup, ls_group *group, int colour, int key);

/* Whether this rank is a member of the group. On a handle of a group that it does not belong to, ls_group_rank is -1
 * and ls_group_world_size is the number of members (0 after a negative colour). False for NULL. Never fails. */
LS_API bool ls_group_is_member(const ls_group *group);

/* Makes one group out of several of the same ranks: its operations go to each of them in turn, so that several are
 * under way at once (Li et al., "PyTorch Distributed", arXiv 2006.15704, section 5.4). Local, but all ranks make it of
 * the same groups in the same order. It keeps hold of the groups, so the caller may close its own handles at once.
 *
 * Memory of ls_group_alloc on it belongs to the first group; the others treat it as ordinary memory. Messages of
 * ls_group_send and ls_group_receive go through the first group, too.
 *
 * groups   [count] groups of the same ranks, none a round-robin group itself; 1 at least
 *
 * Errors: LS_ERR_ARGUMENT, LS_ERR_MEMORY, and the failure of a group that is lost. */
LS_API ls_status ls_group_round_robin(ls_group **group, ls_group *const *groups, int count);

/* Allocates memory that the backend can reach and so combines where it lies: aligned to a page, and zeroed. Collective:
 * all ranks call it with the same size, in the same order as their other allocations; it returns when every rank has
 * the memory, or fails on all. One thread of a rank at a time. Freed by ls_group_free, or with the group.
 * Errors: LS_ERR_MEMORY with the sizes that are wanted and left, LS_ERR_MISMATCH when sizes differ, LS_ERR_STATE when
 * another thread of this rank is in such a call, and those of ls_group_all_reduce. */
LS_API ls_status ls_group_alloc(ls_group *group, size_t bytes, void **memory);

/* Frees memory of ls_group_alloc on this rank alone; no unfinished operation of this rank may use it. NULL is
 * harmless. */
LS_API void ls_group_free(ls_group *group, void *memory);

/* --- collectives -----------------------------------------------------------------------------------------------------
 *
 * In each of them all ranks pass the same count, dtype, op and root. They share these errors:
 *
 *   The call is refused, and the group goes on: LS_ERR_ARGUMENT; LS_ERR_UNSUPPORTED (the backend has no such operation,
 *   or not for this dtype and op); LS_ERR_MEMORY; LS_ERR_STATE (this rank is no member of the group, or the thread may
 *   not call: docs/mpi.md); LS_ERR_FORKED (this process is a child of the one that opened the group).
 *
 *   The group is lost, said by the call or by waiting on its work: LS_ERR_MISMATCH (calls differ), LS_ERR_PEER_LOST (a
 *   rank died or left), LS_ERR_ABORTED (the group was aborted or closed, or the time limit expired), LS_ERR_IO. The
 *   sentence names the ranks. */

/* All-reduce: combines `count` elements of `data` over all ranks, in place. Every rank ends with the same bits.
 *
 * data    [count] elements of `dtype`
 * dtype   any for which `op` is defined
 * work    receives a handle to wait on, owned by the caller (ls_work_close); NULL: the call blocks */
LS_API ls_status ls_group_all_reduce(ls_group *group, void *data, size_t count, ls_dtype dtype, ls_op op,
                                     ls_work **work);

/* Broadcast: `data` [count] on every rank becomes a copy of rank `root`'s. */
LS_API ls_status ls_group_broadcast(ls_group *group, void *data, size_t count, ls_dtype dtype, int root,
                                    ls_work **work);

/* All-gather: `receive` [world size][count] on every rank receives the `send` [count] of all ranks, in rank order.
 * `send` may be this rank's own row of `receive`. */
LS_API ls_status ls_group_all_gather(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                     ls_work **work);

/* Reduce: combines `data` [count] of all ranks into rank `root`'s `data`. On the other ranks it stays as it is. */
LS_API ls_status ls_group_reduce(ls_group *group, void *data, size_t count, ls_dtype dtype, ls_op op, int root,
                                 ls_work **work);

/* Gather: rank `root`'s `receive` [world size][count] receives the `send` [count] of all ranks, in rank order. On the
 * other ranks `receive` is not used and may be NULL. The root's `send` may be its own row of `receive`. */
LS_API ls_status ls_group_gather(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                 int root, ls_work **work);

/* Scatter: row r of rank `root`'s `send` [world size][count] goes to rank r's `receive` [count]. On the other ranks
 * `send` is not used and may be NULL. The root's `receive` may be its own row of `send`. */
LS_API ls_status ls_group_scatter(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                  int root, ls_work **work);

/* Reduce-scatter: combines `send` [world size][count] over all ranks; rank r receives row r of the result in `receive`
 * [count], which may be its own row of `send`. */
LS_API ls_status ls_group_reduce_scatter(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                         ls_op op, ls_work **work);

/* All-to-all: row r of `send` [world size][count] goes to rank r, and row r of `receive` [world size][count] comes from
 * rank r. The two do not overlap. */
LS_API ls_status ls_group_all_to_all(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                     ls_work **work);

/* All-to-all with rows of different lengths, which lie one behind the other in `send` and `receive`.
 *
 * send_counts      [world size] elements for each rank; copied
 * receive_counts   [world size] elements from each rank; copied
 *
 * Ranks compare the counts: when rank a sends b another number than b expects of a, the error is LS_ERR_MISMATCH. */
LS_API ls_status ls_group_all_to_all_uneven(ls_group *group, const void *send, const size_t *send_counts, void *receive,
                                            const size_t *receive_counts, ls_dtype dtype, ls_work **work);

/* Barrier: complete when every rank has called it. */
LS_API ls_status ls_group_barrier(ls_group *group, ls_work **work);

/* Several calls of one kind, posted together so that no call of another thread comes between them. Call i is that of
 * the function above with data[i] (or send[i] and receive[i]) and counts[i]; `work` is complete when all of them are.
 * When one is refused, none is posted.
 *
 * data, send, receive   [n] buffers; the arrays of pointers are copied
 * counts                [n] elements; copied
 * n                     1 or more */
LS_API ls_status ls_group_all_reduce_many(ls_group *group, void *const *data, const size_t *counts, int n,
                                          ls_dtype dtype, ls_op op, ls_work **work);
LS_API ls_status ls_group_broadcast_many(ls_group *group, void *const *data, const size_t *counts, int n,
                                         ls_dtype dtype, int root, ls_work **work);
LS_API ls_status ls_group_all_gather_many(ls_group *group, const void *const *send, void *const *receive,
                                          const size_t *counts, int n, ls_dtype dtype, ls_work **work);
LS_API ls_status ls_group_reduce_scatter_many(ls_group *group, const void *const *send, void *const *receive,
                                              const size_t *counts, int n, ls_dtype dtype, ls_op op, ls_work **work);

/* A barrier that says who is missing, to find a rank that hangs. Rank 0 waits `timeout_ms` (0: the group's limit) for
 * the others; every rank that came returns its verdict. It takes no place in the order of the group's other calls: it
 * works while one of them hangs, and a rank that comes late loses nothing. Slower than ls_group_barrier: ranks tell
 * each other through the store, or over MPI by messages.
 * Errors: LS_ERR_TIMEOUT names the ranks that did not come, and the group is not lost; LS_ERR_PEER_LOST when a rank is
 * dead; those of the store. */
LS_API ls_status ls_group_monitored_barrier(ls_group *group, int64_t timeout_ms);

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Sends `data` [count] to rank `to`. The work is complete when the message is received. Messages from one rank to
 * another with the same tag arrive in the order in which they were sent; apart from that a message waits for no other
 * message and for no collective. Both ranks pass the same count and dtype.
 *
 * tag   any; over MPI 0 to what it allows, at least 32767
 *
 * Errors: those of collectives; LS_ERR_ARGUMENT also when `to` is this rank or none of the group's. */
LS_API ls_status ls_group_send(ls_group *group, const void *data, size_t count, ls_dtype dtype, int to, int tag,
                               ls_work **work);

/* Receives a message with `tag` from rank `from`, or with LS_ANY_RANK from whichever rank's comes first.
 *
 * data     [count] elements of `dtype`, as the message has
 * source   receives the sender's rank; NULL: not wanted. Like `data`, it has to live until the work is complete.
 *
 * Errors: those of ls_group_send. */
#define LS_ANY_RANK (-1)
LS_API ls_status ls_group_receive(ls_group *group, void *data, size_t count, ls_dtype dtype, int from, int tag,
                                  int *source, ls_work **work);

/* --- the life of operations --------------------------------------------------------------------------------------- */

/* Ends the group on all ranks, also while other threads wait: their operations and all later ones fail with
 * LS_ERR_ABORTED and `reason` (copied; NULL: none is given). Every rank still closes its handle. Any thread; returns at
 * once. */
LS_API void ls_group_abort(ls_group *group, const char *reason);

/* Carries the group's unfinished operations a little further on the calling thread, and returns after some 100
 * microseconds at most. For a loop that computes while operations are under way, on a machine without a processor to
 * spare. */
LS_API void ls_group_progress(ls_group *group);

/* Waits until the operation is complete and returns its status.
 *
 * timeout_ms   0 and LS_FOREVER: as long as the operation may take by the group's own limit. A shorter limit that
 *              expires is LS_ERR_TIMEOUT and changes nothing: wait again.
 *
 * Any thread, one at a time for each work; may be called again. Errors: LS_ERR_ARGUMENT (NULL), those of
 * collectives. */
LS_API ls_status ls_work_wait(ls_work *work, int64_t timeout_ms);

/* Waits for `works` [count], of which some may be NULL, and returns the first error in that order. `timeout_ms`, as
 * above, is for all together. */
LS_API ls_status ls_work_wait_all(ls_work *const *works, int count, int64_t timeout_ms);

/* Whether the operation has ended, well or badly; true for NULL. Never waits, but carries it a little further, as
 * ls_group_progress does. Any thread. */
LS_API bool ls_work_is_complete(ls_work *work);

/* Closes the handle and sets *work to NULL; NULL is harmless. An operation that is under way goes on, and its buffers
 * must stay until it is complete. A work may be closed after its group. */
LS_API void ls_work_close(ls_work **work);

#ifdef __cplusplus
}
#endif
#endif
