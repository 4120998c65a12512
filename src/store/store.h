/* store.h: what the library itself needs of a store beyond the public interface: descriptors that travel beside
 * keys. */
#ifndef LS_STORE_STORE_H
#define LS_STORE_STORE_H

#include <lockstep/store.h>

/* That travel together: the kernel's own limit is 253 a message. */
#define STORE_MOST_DESCRIPTORS 64

/* Puts duplicates of `count` descriptors under `key`, in place of what was there. They are dropped by
 * ls_store_delete, and with the store. Errors: LS_ERR_UNSUPPORTED for a store that reaches other hosts. */
ls_status store_set_descriptors(ls_store *store, const char *key, const int *descriptors, int count);

/* Waits for `key`, then receives `count` fresh close-on-exec descriptors, owned by the caller; on error none. */
ls_status store_get_descriptors(ls_store *store, const char *key, int *descriptors, int count, int64_t timeout_ms);

/* Before a store is given up after a failure that all ranks share: where this process serves it to others, waits a
 * moment (1.5 s at most) until they have let go, so that they learn of the failure itself and not of the server's
 * end. Other stores return at once. */
void store_settle(ls_store *store);

/* Whether all holders live in this process (ranks as threads): then pointers may travel as values. */
bool store_is_in_process(const ls_store *store);

#endif
