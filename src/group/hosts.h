/* hosts.h: which ranks share a host, as far as ways between them go: one kernel and one network namespace, within which
 * loopback and abstract sockets reach. */
#ifndef LS_GROUP_HOSTS_H
#define LS_GROUP_HOSTS_H

#include <lockstep/store.h>

/* Where this rank is: the same text on ranks that share a host, padded with zeroes. */
#define HOSTS_ID_BYTES 128
void hosts_read_own(char id[HOSTS_ID_BYTES]);

/* Collective: whether the ranks are on more than one host; they tell each other through the store. Errors: those of the store, with
 * the rank that did not tell. */
ls_status hosts_are_several(ls_store *store, int rank, int world_size, int64_t timeout_ms, bool *several);

#endif
