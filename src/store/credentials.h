/* credentials.h: the job's secret and id, as the environment tells them. */
#ifndef LS_STORE_CREDENTIALS_H
#define LS_STORE_CREDENTIALS_H

#include "store/handshake.h"
#include "store/store.h"

#define STORE_ENV_SECRET_FILE "LOCKSTEP_SECRET_FILE"
#define STORE_ENV_UNAUTHENTICATED "LOCKSTEP_ALLOW_UNAUTHENTICATED"
#define STORE_ENV_JOB "LOCKSTEP_JOB" /* our launcher's, or the user's own */

/* Reads the secret from the file that LOCKSTEP_SECRET_FILE names, and finds an id of the job that all its processes
 * share and no other job at the same place has: LOCKSTEP_JOB, else that of Slurm, torchrun or an MPI launcher; ""
 * without any.
 * Errors: LS_ERR_ENVIRONMENT names the file: not there, readable by others, of another user, shorter than 16 bytes
 * or longer than 1024. */
ls_status store_credentials_read(store_credentials *credentials);

/* Gives credentials without a secret a random one. Errors: LS_ERR_IO. */
ls_status store_credentials_draw(store_credentials *credentials);

/* What connections between the ranks that share `store` prove. Collective over those that call it with one `key`:
 *
 *   over TCP             the same as the connections of the store itself
 *   any other, private   the secret of LOCKSTEP_SECRET_FILE; without one, rank 0 draws 32 random bytes and leaves them
 *                        under `key`, which nobody but this user can read (within a process, and under our launcher)
 *   any other            the secret of LOCKSTEP_SECRET_FILE; without one, none
 *
 * The caller wipes them (explicit_bzero). Waits for rank 0 as ls_store_get does, until `timeout_ms`. Errors: those
 * of store_credentials_read and of the store. */
ls_status store_job_credentials(ls_store *store, const char *key, int rank, int64_t timeout_ms,
                                store_credentials *credentials);

/* Whether the user waived proofs beyond loopback. Errors: LS_ERR_ENVIRONMENT when the variable is neither 0 nor 1. */
ls_status store_may_be_unauthenticated(bool *may);

#endif
