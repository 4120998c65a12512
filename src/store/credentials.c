/* credentials.c: the secret travels in a file of the user's own, never in an argument or a variable, which others
 * can read. */
#include "store/credentials.h"

#include "store/backend.h"

#include "base/environment.h"
#include "base/error.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* 16 bytes are 128 bits where they are random; a word that somebody thought of is mostly shorter. */
enum { LEAST_SECRET_BYTES = 16, DRAWN_SECRET_BYTES = 32 };

static ls_status check_file(const char *path, int file) {
    struct stat about;
    if (fstat(file, &about) != 0) return ls_fail_errno(LS_ERR_ENVIRONMENT, errno, "cannot look at \"%s\"", path);
    if (!S_ISREG(about.st_mode))
        return ls_fail(LS_ERR_ENVIRONMENT, STORE_ENV_SECRET_FILE " is \"%s\": that is no regular file", path);
    /* Whoever may change the file may make the job take a secret of his. */
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       STORE_ENV_SECRET_FILE " is \"%s\", which belongs to user %u: it must be this user's (%u)", path,
                       (unsigned)about.st_uid, (unsigned)geteuid());
    /* Refused rather than warned of, as ssh does with its keys: a warning is read by nobody in a job of a thousand
     * ranks. */
    if (about.st_mode & (S_IRWXG | S_IRWXO))
        return ls_fail(LS_ERR_ENVIRONMENT,
                       STORE_ENV_SECRET_FILE " is \"%s\" with mode %04o: others can reach it; chmod 600 \"%s\"", path,
                       (unsigned)(about.st_mode & 07777), path);
    return LS_OK;
}

/* The bytes of the file as they are, but for newlines at the end. */
static ls_status read_secret(const char *path, int file, store_credentials *credentials) {
    unsigned char bytes[STORE_SECRET_BYTES + 1];
    size_t used = 0;
    ssize_t count = 0;
    while (used < sizeof bytes && ((count = read(file, bytes + used, sizeof bytes - used)) > 0 || errno == EINTR))
        if (count > 0)
            used += (size_t)count;
        else if (count == 0)
            break;
    if (count < 0) return ls_fail_errno(LS_ERR_ENVIRONMENT, errno, "cannot read the secret in \"%s\"", path);
    /* Editors and `echo` end a file with a newline, `printf` does not: the secret is the same. */
    while (used > 0 && used < sizeof bytes && (bytes[used - 1] == '\n' || bytes[used - 1] == '\r')) used--;
    if (used < LEAST_SECRET_BYTES || used > STORE_SECRET_BYTES)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       STORE_ENV_SECRET_FILE
                       " is \"%s\", which holds %s%zu bytes: a secret has %d to %d; for instance: "
                       "(umask 077; openssl rand -hex 32 > \"%s\")",
                       path, used > STORE_SECRET_BYTES ? "more than " : "",
                       used > STORE_SECRET_BYTES ? (size_t)STORE_SECRET_BYTES : used, LEAST_SECRET_BYTES,
                       STORE_SECRET_BYTES, path);
    memcpy(credentials->secret, bytes, used);
    credentials->secret_bytes = used;
    /* The secret leaves no copy on the stack. */
    explicit_bzero(bytes, sizeof bytes);
    return LS_OK;
}

static ls_status read_secret_file(store_credentials *credentials) {
    const char *path = ls_env_text(STORE_ENV_SECRET_FILE);
    if (!path) return LS_OK;
    /* O_NONBLOCK: a path that leads to a pipe must not hang the job. */
    const int file = LS_SYSCALL(EMFILE, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file < 0)
        return ls_fail_errno(LS_ERR_ENVIRONMENT, errno, STORE_ENV_SECRET_FILE " is \"%s\", which cannot be opened",
                             path);
    ls_status status = check_file(path, file);
    if (status == LS_OK) status = read_secret(path, file, credentials);
    close(file);
    return status;
}

/* Names that a job's processes share. Each launcher sets its own, so that the first that is there tells; a restarted
 * job is another one. */
static void find_job(char *job) {
    const char *own = ls_env_text(STORE_ENV_JOB), *torch = ls_env_text("TORCHELASTIC_RUN_ID");
    const char *slurm = ls_env_text("SLURM_JOB_ID"), *step = ls_env_text("SLURM_STEP_ID");
    const char *pmix = ls_env_text("PMIX_NAMESPACE");
    const char *restarts = ls_env_text(torch ? "TORCHELASTIC_RESTART_COUNT" : "SLURM_RESTART_COUNT");
    job[0] = '\0';
    /* The user's own name for the job comes before all that launchers set. */
    if (own)
        snprintf(job, STORE_JOB_BYTES, "%s", own);
    else if (torch)
        snprintf(job, STORE_JOB_BYTES, "torchrun/%s/%s", torch, restarts ? restarts : "0");
    else if (slurm && step)
        snprintf(job, STORE_JOB_BYTES, "slurm/%s.%s/%s", slurm, step, restarts ? restarts : "0");
    else if (pmix)
        snprintf(job, STORE_JOB_BYTES, "pmix/%s", pmix);
}

ls_status store_credentials_read(store_credentials *credentials) {
    /* Zeroed whole: unused bytes of the secret are compared by nobody, but travel where the struct does. */
    *credentials = (store_credentials){0};
    find_job(credentials->job);
    return read_secret_file(credentials);
}

ls_status store_credentials_draw(store_credentials *credentials) {
    const ssize_t drawn = LS_SYSCALL(EAGAIN, getrandom(credentials->secret, DRAWN_SECRET_BYTES, 0));
    if (drawn != DRAWN_SECRET_BYTES) return ls_fail_errno(LS_ERR_IO, errno, "cannot draw the job's secret");
    credentials->secret_bytes = DRAWN_SECRET_BYTES;
    return LS_OK;
}

/* Rank 0 draws the secret, the others fetch it. */
static ls_status share_secret(ls_store *store, const char *key, int rank, int64_t timeout_ms,
                              store_credentials *credentials) {
    size_t bytes = 0;
    if (rank == 0) {
        LS_TRY(store_credentials_draw(credentials));
        return ls_store_set(store, key, credentials->secret, credentials->secret_bytes);
    }
    LS_TRY(ls_store_get(store, key, credentials->secret, DRAWN_SECRET_BYTES, &bytes, timeout_ms));
    if (bytes != DRAWN_SECRET_BYTES)
        return ls_fail(LS_ERR_STATE, "store key \"%s\" holds %zu bytes, not a secret of %d", key, bytes,
                       DRAWN_SECRET_BYTES);
    credentials->secret_bytes = bytes;
    return LS_OK;
}

ls_status store_job_credentials(ls_store *store, const char *key, int rank, int64_t timeout_ms,
                                store_credentials *credentials) {
    /* A store with proofs is over a network, and its ranks know its secret by now. */
    if (store->credentials) {
        *credentials = *store->credentials;
        return LS_OK;
    }
    LS_TRY(store_credentials_read(credentials));
    if (credentials->secret_bytes > 0 || !store->is_private) return LS_OK;
    return share_secret(store, key, rank, timeout_ms, credentials);
}

ls_status store_may_be_unauthenticated(bool *may) {
    int64_t value = 0;
    const ls_status status = ls_env_integer(STORE_ENV_UNAUTHENTICATED, 0, 1, &value);
    /* One word for one wish: anything but 0 and 1 may be a typing error, and this is no place to guess. */
    *may = value == 1;
    return status < 0 ? status : LS_OK;
}
