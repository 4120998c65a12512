/* nodelist.h: lists of hosts as Slurm writes them. */
#ifndef LS_STORE_NODELIST_H
#define LS_STORE_NODELIST_H

#include <lockstep/base.h>

/* Writes the `index`-th host (from 0) of a list like "n[1-3,07],login" or "rack[0-1]n[1-2]" into `host`, `bytes` long.
 * LS_END: the list has fewer. Errors: LS_ERR_FORMAT names the list. */
ls_status store_nodelist_host(const char *list, int64_t index, char *host, size_t bytes);

#endif
