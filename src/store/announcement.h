/* announcement.h: rank 0 says through PMIx at which addresses and port it serves the store, and the job's secret
 * with it: so that neither has to be agreed on before the job starts. The secret is that of LOCKSTEP_SECRET_FILE on
 * rank 0, else drawn. It is as safe as the launcher's own connections. */
#ifndef LS_STORE_ANNOUNCEMENT_H
#define LS_STORE_ANNOUNCEMENT_H

#include "store/tcp.h"

/* Opens the store, collective over all ranks; of `endpoint` its host and ports are not looked at. Rank 0, which
 * keeps serving what it may have served to the job already, uses the addresses of store_interfaces_find.
 * Errors: those of store_pmix_tell; rank 0's own failure, on all ranks; those of ls_store_open_tcp. */
ls_status store_announced_open(ls_store **store, const store_endpoint *endpoint);

#endif
