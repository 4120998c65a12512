/* lockstep/store.h: a small key-value store, through which ranks find each other before they have a group.
 *
 *     ls_store *store = NULL;
 *     if (ls_store_open_file(&store, "ranks.store") == LS_OK) {     // every process opens the same path
 *         ls_store_set(store, "greeting", "hello", 5);
 *         ls_store_wait(store, "greeting", LS_FOREVER);             // in any process, before or after the set
 *         ls_store_close(&store);
 *     }
 *
 * Keys are texts of 1 to LS_STORE_KEY_BYTES - 1 bytes; values are bytes, at most LS_STORE_VALUE_BYTES. Any thread may
 * use a handle. Every function that opens a store gives the caller a handle to close; on an error it is NULL.
 *
 * Besides what their comments name, calls on a store fail with LS_ERR_ARGUMENT (a key or value outside these limits,
 * NULL), LS_ERR_PEER_LOST (the store's server, or a rank that is known to it, is gone), LS_ERR_ABORTED (the server's
 * process has closed the store), LS_ERR_TIMEOUT (the server has not answered for 30 minutes), LS_ERR_FORKED (this
 * process is a child of the one that opened the store), LS_ERR_MEMORY and LS_ERR_IO. */
#ifndef LOCKSTEP_STORE_H
#define LOCKSTEP_STORE_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_STORE_KEY_BYTES 256
#define LS_STORE_VALUE_BYTES (1u << 20)

typedef struct ls_store ls_store;

/* Opens a store within this process, for ranks that are threads. One handle serves all threads; with ls_store_keep each
 * of them can have its own to close. Errors: LS_ERR_ARGUMENT, LS_ERR_MEMORY. */
LS_API ls_status ls_store_open_hash(ls_store **store);

/* Opens the store of `lockstep run`, over the socket that this process inherited from it.
 * Errors: LS_ERR_ENVIRONMENT when the process was not started by `lockstep run`; LS_ERR_PEER_LOST when the launcher is
 * gone; LS_ERR_TIMEOUT when it is stopped; LS_ERR_MEMORY, LS_ERR_IO. */
LS_API ls_status ls_store_open_inherited(ls_store **store);

/* Opens a store in the file `path`, which every process opens by the same path. A network file system will do if it has
 * locks (fcntl). The file belongs to the user, with mode 0600.
 *
 * Keys last as long as any process has the store open: the first to open it starts with none, so what a killed run left
 * does no harm, and the last to close it removes the file. Jobs that have different ids (LOCKSTEP_JOB, or the id that
 * Slurm, torchrun or an MPI launcher gives) may share a path and do not see each other's keys.
 *
 * Errors: LS_ERR_ARGUMENT; LS_ERR_IO and LS_ERR_ENVIRONMENT name the path; LS_ERR_FORMAT when the file holds something
 * else; LS_ERR_MEMORY. */
LS_API ls_status ls_store_open_file(ls_store **store, const char *path);

/* Opens a store that one process serves over TCP, on a thread of its own, as long as it has the store open.
 *
 * host         the server's: a name, or an IPv4 or IPv6 address ("10.0.0.1", "::1", "[::1]", "fe80::1%eth0"). Clients
 *              try all addresses of a name. The server listens on those that are this host's own; where none is, on all
 *              that this host has.
 * port         1 to 65535; for the server 0 takes a free one, which ls_store_port returns
 * is_server    true in exactly one process
 * timeout_ms   how long a client looks for the server; 0: 30 minutes; LS_FOREVER: no limit
 *
 * Each connection proves that it knows the secret in the file LOCKSTEP_SECRET_FILE (mode 0600, 16 to 1,024 bytes, the
 * same for all) and is of this job, by HMAC-SHA256 both ways. Content is not encrypted. Without a secret only loopback
 * addresses are accepted, unless LOCKSTEP_ALLOW_UNAUTHENTICATED=1.
 *
 * Errors: LS_ERR_ARGUMENT; LS_ERR_ENVIRONMENT (no such host; no secret, or another one; another job); LS_ERR_STATE at
 * once, for the server and its clients, when another program has the port; LS_ERR_TIMEOUT names what was tried;
 * LS_ERR_IO, LS_ERR_MEMORY. */
LS_API ls_status ls_store_open_tcp(ls_store **store, const char *host, int port, bool is_server, int64_t timeout_ms);

/* The TCP port on which this process serves the store; 0 when it serves none, and for NULL. Never fails. */
LS_API int ls_store_port(const ls_store *store);

/* Opens a view of a part of `store`: the key "key" of the view is the key "prefix/key" of `store`. The view keeps hold
 * of `store`, so the two may be closed in any order.
 *
 * prefix   1 to LS_STORE_KEY_BYTES - 3 bytes; prefix, slash and key together have at most LS_STORE_KEY_BYTES - 1
 *
 * Errors: LS_ERR_ARGUMENT, LS_ERR_MEMORY. */
LS_API ls_status ls_store_prefix(ls_store **view, ls_store *store, const char *prefix);

/* Adds a holder, who closes the store as well. Returns `store`; NULL is harmless. Never fails. */
LS_API ls_store *ls_store_keep(ls_store *store);

/* Lets go of the store and sets *store to NULL; NULL is harmless. The store is closed when its last holder lets go. */
LS_API void ls_store_close(ls_store **store);

/* Sets `key` to a copy of the `bytes` bytes at `value`, in place of what it held, and wakes all who wait for it. */
LS_API ls_status ls_store_set(ls_store *store, const char *key, const void *value, size_t bytes);

/* Waits until `key` is set, then copies its value.
 *
 * value        [capacity] receives as much of the value as fits
 * bytes        receives the value's full size, also when it does not fit; NULL: not wanted
 * timeout_ms   0: 30 minutes; LS_FOREVER: no limit
 *
 * Errors: LS_ERR_TIMEOUT names the key; LS_ERR_ARGUMENT when the value is larger than `capacity`; LS_ERR_PEER_LOST when
 * the server or a rank is gone, which ends all waits. */
LS_API ls_status ls_store_get(ls_store *store, const char *key, void *value, size_t capacity, size_t *bytes,
                              int64_t timeout_ms);

/* Waits until `key` is set. `timeout_ms` and errors as in ls_store_get. */
LS_API ls_status ls_store_wait(ls_store *store, const char *key, int64_t timeout_ms);

/* Adds `amount` to the number that `key` holds as decimal text (0 when it is not set), in one step, and returns the sum
 * in `result` (NULL: not wanted). Errors: LS_ERR_STATE when the value is no number; LS_ERR_ARGUMENT when the sum
 * exceeds 64 bits. */
LS_API ls_status ls_store_add(ls_store *store, const char *key, int64_t amount, int64_t *result);

/* Sets `key` to the `bytes` bytes at `value`, in one step, but only when it holds exactly the `expected_bytes` bytes at
 * `expected` (0: when it is not set). `was_set` (NULL: not wanted) receives whether it did. */
LS_API ls_status ls_store_compare_set(ls_store *store, const char *key, const void *expected, size_t expected_bytes,
                                      const void *value, size_t bytes, bool *was_set);

/* Removes `key`. `existed` (NULL: not wanted) receives whether it was set. */
LS_API ls_status ls_store_delete(ls_store *store, const char *key, bool *existed);

/* Counts the keys of the store; of a view, those with its prefix. */
LS_API ls_status ls_store_count(ls_store *store, int64_t *count);

/* Looks whether `key` is set now, without waiting for it. */
LS_API ls_status ls_store_check(ls_store *store, const char *key, bool *is_set);

#ifdef __cplusplus
}
#endif
#endif
