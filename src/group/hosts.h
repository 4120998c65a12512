/* hosts.h: which ranks share a host, as far as ways between them go: one kernel and one network namespace, within which
 * loopback and abstract sockets reach. */
#ifndef LS_GROUP_HOSTS_H
#define LS_GROUP_HOSTS_H

#include <lockstep/store.h>

/* Where this rank is: the same text on ranks that share a host, padded with zeroes. */
#define HOSTS_ID_BYTES 128
void hosts_read_own(char id[HOSTS_ID_BYTES]);

/* Collective: each rank tells the others, through the store under `prefix`, where it is. host_of[rank] [world_size] receives its
 * host's number; hosts are numbered in the order of their first ranks, and are `count`. Errors: those of the store, with the
 * rank that did not tell. */
ls_status hosts_find(ls_store *store, const char *prefix, int rank, int world_size, int64_t deadline_ns, int *host_of,
                     int *count);

/* The same for an opening whose ranks have no prefix of their own yet, and only whether there is more than one host. */
ls_status hosts_are_several(ls_store *store, int rank, int world_size, int64_t timeout_ms, bool *several);

#endif
