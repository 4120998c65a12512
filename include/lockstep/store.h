/* lockstep/store.h: a small key-value store through which ranks find each other before they have a group.
 *
 * Keys are texts of at most LS_STORE_KEY_BYTES - 1 bytes; values are bytes, at most LS_STORE_VALUE_BYTES. Every handle
 * may be used from any thread.                                                                                       */
#ifndef LOCKSTEP_STORE_H
#define LOCKSTEP_STORE_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_STORE_KEY_BYTES 256
#define LS_STORE_VALUE_BYTES (1u << 20)

typedef struct ls_store ls_store;

/* A store within this process, for ranks that are threads. Closed by each who holds it: ls_store_keep adds a holder. */
LS_API ls_status ls_store_open_hash(ls_store **store);

/* The store of `lockstep run`, over the socket that this worker inherited. Errors: LS_ERR_ENVIRONMENT when the process
 * was not started by the launcher. */
LS_API ls_status ls_store_open_inherited(ls_store **store);

/* A store in the file `path`, which every process opens by the same path, also over a network's file system that knows
 * locks. Keys last while any process has it open: whoever opens it first begins with none, so a file that a killed run
 * left does no harm, and whoever closes it last removes it. Jobs of different ids (LOCKSTEP_JOB, or those of Slurm,
 * torchrun and MPI launchers) that share a path do not see each other's keys. The file belongs to the user, mode 0600.
 * Errors: LS_ERR_ARGUMENT; LS_ERR_IO and LS_ERR_ENVIRONMENT name the path; LS_ERR_FORMAT when it holds something
 * else. */
LS_API ls_status ls_store_open_file(ls_store **store, const char *path);

/* A store that one process serves over TCP, on a thread of its own, as long as it has the store open.
 *
 * host         of the server: a name, an IPv4 or IPv6 address ("10.0.0.1", "::1", "[::1]", "fe80::1%eth0"). All
 *              addresses of a name are tried. The server listens on those that are its own, on all where none is.
 * port         1 to 65535; for the server 0 takes a free one, which ls_store_port tells
 * is_server    true in one process
 * timeout_ms   how long a client looks for the server; 0: 30 minutes; LS_FOREVER
 *
 * Each connection proves that it knows the secret in the file LOCKSTEP_SECRET_FILE (mode 0600, 16 to 1,024 bytes, the
 * same for all) and is of this job, by HMAC-SHA256 both ways. Content is not encrypted. Without a secret only loopback
 * addresses are accepted, unless LOCKSTEP_ALLOW_UNAUTHENTICATED=1.
 *
 * Errors: LS_ERR_ENVIRONMENT (no such host, no secret or another one, another job), LS_ERR_STATE when the port is
 * taken, by both sides at once; LS_ERR_TIMEOUT names the addresses tried; LS_ERR_IO, LS_ERR_MEMORY. */
LS_API ls_status ls_store_open_tcp(ls_store **store, const char *host, int port, bool is_server, int64_t timeout_ms);

/* The TCP port on which this process serves the store; 0 when it does not. */
LS_API int ls_store_port(const ls_store *store);

/* A part of `store`: every key of `view` is the key "prefix/key" there. The view holds `store`.
 * prefix   1 to LS_STORE_KEY_BYTES - 3 bytes; with it keys have to keep below LS_STORE_KEY_BYTES */
LS_API ls_status ls_store_prefix(ls_store **view, ls_store *store, const char *prefix);

/* One more holder of the same store. Returns `store`; NULL is harmless. */
LS_API ls_store *ls_store_keep(ls_store *store);
LS_API void ls_store_close(ls_store **store);

/* Sets `key` to a copy of `bytes` bytes at `value`, whatever it was, and wakes those who wait for it. */
LS_API ls_status ls_store_set(ls_store *store, const char *key, const void *value, size_t bytes);

/* Waits until `key` is set, then copies at most `capacity` bytes into `value` and the full size into `bytes`.
 * timeout_ms: 0 means 30 minutes, LS_FOREVER no limit. Errors: LS_ERR_TIMEOUT names the key; LS_ERR_ARGUMENT when the
 * value is larger than `capacity`; LS_ERR_PEER_LOST when the store's server or a rank is gone, which ends all waits;
 * LS_ERR_ABORTED when the server's process has closed the store. */
LS_API ls_status ls_store_get(ls_store *store, const char *key, void *value, size_t capacity, size_t *bytes,
                              int64_t timeout_ms);

/* Waits until `key` is set; limits and errors as ls_store_get. */
LS_API ls_status ls_store_wait(ls_store *store, const char *key, int64_t timeout_ms);

/* Adds `amount` to the decimal number at `key` (0 when unset) and stores the sum in `result` (may be NULL). */
LS_API ls_status ls_store_add(ls_store *store, const char *key, int64_t amount, int64_t *result);

/* Sets `key` to `value` when it holds `expected` (expected_bytes 0: when it is unset). `was_set` tells. */
LS_API ls_status ls_store_compare_set(ls_store *store, const char *key, const void *expected, size_t expected_bytes,
                                      const void *value, size_t bytes, bool *was_set);

/* Removes `key`; `existed` (may be NULL) tells whether it was there. */
LS_API ls_status ls_store_delete(ls_store *store, const char *key, bool *existed);

/* The number of keys; in a view with a prefix, of those that have it. */
LS_API ls_status ls_store_count(ls_store *store, int64_t *count);

/* Whether `key` is set now. */
LS_API ls_status ls_store_check(ls_store *store, const char *key, bool *is_set);

#ifdef __cplusplus
}
#endif
#endif
