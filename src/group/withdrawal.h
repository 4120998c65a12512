/* withdrawal.h: ranks fail together at what they begin together through the store. A rank that cannot go on withdraws and says why,
 * where those who wait for it look, who then withdraw too. The first sentence counts; the last rank to withdraw takes it away,
 * since nobody looks any more: so however often they try, and whoever comes late, the store has no more than they need. */
#ifndef LS_GROUP_WITHDRAWAL_H
#define LS_GROUP_WITHDRAWAL_H

#include "base/error.h"

#include <lockstep/store.h>

/* Where the sentence of the rank that withdrew first is; `prefix` as in backend_place. */
void withdrawal_key(const char *prefix, char key[LS_STORE_KEY_BYTES]);

/* What is said there, within `timeout_ms`; status LS_OK: nobody has withdrawn. Errors: those of the store but LS_ERR_TIMEOUT, and
 * LS_ERR_FORMAT. */
ls_status withdrawal_read(ls_store *store, const char *prefix, int64_t timeout_ms, ls_error *said);

/* This rank of `world_size` withdraws, once, with this thread's last error. Returns `status`. */
ls_status withdrawal_say(ls_store *store, const char *prefix, int world_size, ls_status status);

/* Of ranks that have all met since: where one died, or held for done what another did not, not all have withdrawn. */
void withdrawal_forget(ls_store *store, const char *prefix);

#endif
