/* rendezvous.c: reading the environment. Pure but for reading /proc: nothing is opened and nobody is asked. */
#include "store/rendezvous.h"

#include "store/credentials.h"
#include "store/nodelist.h"
#include "store/pmix.h"
#include "store/wire.h"

#include "base/digest.h"
#include "base/environment.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_DERIVED_PORT = 20000, DERIVED_RANGE = 12000 };

/* --- who we are --------------------------------------------------------------------------------------------------- */

/* Those who start ranks, by the variables that they set. Where `also` is named it has to be set too: a batch script
 * of Slurm's has SLURM_PROCID, but is no step of its own. */
typedef struct starter {
    const char *rank, *size, *also, *local_size;
    bool is_mpi;
    ls_status (*locate)(store_rendezvous *found);
} starter;

static ls_status locate_by_hand(store_rendezvous *found);
static ls_status locate_slurm(store_rendezvous *found);
static ls_status locate_open_mpi(store_rendezvous *found);
static ls_status locate_hydra(store_rendezvous *found);

static const starter starters[] = {
    {"RANK", "WORLD_SIZE", NULL, "LOCAL_WORLD_SIZE", false, locate_by_hand},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST", NULL, false, locate_slurm},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_SIZE", true, locate_open_mpi},
    {"PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALNRANKS", true, locate_hydra},
};

/* The first whose set is complete; NULL without one. */
static const starter *find_starter(void) {
    /* The order is that of trust: what a user sets by hand comes before what launchers leave. */
    for (size_t i = 0; i < sizeof starters / sizeof starters[0]; i++) {
        const starter *each = &starters[i];
        if (ls_env_text(each->rank) && ls_env_text(each->size) && (!each->also || ls_env_text(each->also))) return each;
    }
    return NULL;
}

static ls_status fail_incomplete(const char *there, const char *missing) {
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "%s is \"%s\" but %s is not set: a rank needs both; start the program with `lockstep run`, set "
                   "both, or unset both for a world of one",
                   there, ls_env_text(there), missing);
}

/* A wrapper that gives two processes one rank, or ranks different world sizes, would make them wait for ranks that
 * never come: the launcher knows better. */
static ls_status check_place(int64_t rank, int64_t world_size) {
    const char *place = ls_env_text(STORE_ENV_PLACE);
    char read[64];
    snprintf(read, sizeof read, "%" PRId64 "/%" PRId64, rank, world_size);
    if (!place || strcmp(place, read) == 0) return LS_OK;
    const int rank_length = (int)strcspn(place, "/");
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "RANK is \"%" PRId64 "\" and WORLD_SIZE is \"%" PRId64
                   "\", but `lockstep run` started this process as rank %.*s of %s; leave both as they are, or unset "
                   "both for a world of one",
                   rank, world_size, rank_length, place, place + rank_length + (place[rank_length] == '/'));
}

/* WORLD_SIZE alone beside another starter's set is a user's own: it must not say something else. */
static ls_status check_world_size(const starter *by, int64_t size) {
    int64_t own = size;
    if (strcmp(by->size, "WORLD_SIZE") == 0) return LS_OK;
    const ls_status status = ls_env_integer("WORLD_SIZE", 1, STORE_MOST_RANKS, &own);
    if (status < 0) return status;
    if (own == size) return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT,
                   "WORLD_SIZE is \"%" PRId64 "\" but %s is \"%" PRId64 "\": unset the one that is wrong", own,
                   by->size, size);
}

/* On how many hosts: one when all ranks are on this one. */
static ls_status count_hosts(const starter *by, store_rendezvous *found) {
    int64_t local = 0;
    if (!by->local_size) return LS_OK;
    const ls_status status = ls_env_integer(by->local_size, 1, STORE_MOST_RANKS, &local);
    if (status < 0) return status;
    if (local > found->world_size)
        return ls_fail(LS_ERR_ENVIRONMENT, "%s is \"%" PRId64 "\" but %s is \"%d\": a host has at most all ranks",
                       by->local_size, local, by->size, found->world_size);
    /* How many there are does not matter, only whether there is more than this one. */
    if (local > 0) found->hosts = local == found->world_size ? 1 : 2;
    return LS_OK;
}

ls_status store_rendezvous_read(store_rendezvous *found) {
    /* Nobody has said anything of ranks: one, on this host. */
    *found = (store_rendezvous){.world_size = 1, .hosts = 1};
    const starter *by = find_starter();
    if (!by && ls_env_text("RANK")) return fail_incomplete("RANK", "WORLD_SIZE");
    if (!by && ls_env_text("WORLD_SIZE")) return fail_incomplete("WORLD_SIZE", "RANK");
    if (!by) return LS_OK;
    int64_t size = 1, rank = 0;
    LS_TRY(ls_env_integer(by->size, 1, STORE_MOST_RANKS, &size));
    LS_TRY(ls_env_integer(by->rank, 0, STORE_MOST_RANKS - 1, &rank));
    if (rank >= size)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "%s is \"%s\" and %s is \"%s\": a rank is from 0 to %" PRId64 "; correct one of them", by->rank,
                       ls_env_text(by->rank), by->size, ls_env_text(by->size), size - 1);
    LS_TRY(check_world_size(by, size));
    found->is_launched = by == &starters[0] && ls_env_text(STORE_ENV_LAUNCHER);
    if (found->is_launched) LS_TRY(check_place(rank, size));
    found->rank = (int)rank;
    found->world_size = (int)size;
    found->is_mpi = by->is_mpi;
    found->is_slurm = by->locate == locate_slurm;
    found->rank_name = by->rank;
    found->size_name = by->size;
    found->hosts = 0;
    return count_hosts(by, found);
}

ls_status store_rendezvous_locate(store_rendezvous *found) {
    const starter *by = find_starter();
    if (found->is_launched || !by || found->world_size == 1) return LS_OK;
    const char *own = ls_env_text(STORE_ENV_JOB);
    /* Before the starter's: the user's own name for the job keeps apart what a launcher does not. */
    if (own) snprintf(found->job, sizeof found->job, "%s", own);
    return by->locate(found);
}

/* --- where rank 0 is ---------------------------------------------------------------------------------------------- */

/* Ports that the job's identity leads to, on all ranks the same: far enough apart that two jobs seldom share one. */
static void derive_ports(store_rendezvous *found) {
    uint64_t number = ls_digest_text(found->job);
    for (found->port_count = 0; found->port_count < STORE_DERIVED_PORTS; found->port_count++) {
        /* Knuth's linear congruential generator (MMIX), of whose bits the high ones are the random ones. */
        number = number * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        found->ports[found->port_count] = FIRST_DERIVED_PORT + (int)((number >> 33) % DERIVED_RANGE);
    }
}

/* MASTER_ADDR and MASTER_PORT, if both are set. LS_END: neither is, or the address alone. */
static ls_status take_master(store_rendezvous *found) {
    int64_t port = 0;
    const char *host = ls_env_text("MASTER_ADDR");
    const ls_status status = ls_env_integer("MASTER_PORT", 1, 65535, &port);
    if (status < 0) return status;
    if (host && strlen(host) >= sizeof found->host)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "MASTER_ADDR is \"%.64s...\": it has %zu characters, a host's name at most %d", host,
                       strlen(host), STORE_HOST_NAME_BYTES - 1);
    if (host) snprintf(found->host, sizeof found->host, "%s", host);
    if (!host || port == 0) return LS_END;
    found->ports[0] = (int)port;
    found->port_count = 1;
    return LS_OK;
}

static ls_status fail_master(const store_rendezvous *found) {
    const char *host = ls_env_text("MASTER_ADDR"), *port = ls_env_text("MASTER_PORT");
    return ls_fail(
        LS_ERR_ENVIRONMENT,
        "%s is \"%d\" and %s is \"%d\", but MASTER_ADDR is %s%s%s and MASTER_PORT is %s%s%s: without the store of "
        "`lockstep run`, both have to say where rank 0 is to be met; set them, or start the program with "
        "`lockstep run`",
        found->rank_name, found->rank, found->size_name, found->world_size, host ? "\"" : "", host ? host : "not set",
        host ? "\"" : "", port ? "\"" : "", port ? port : "not set", port ? "\"" : "");
}

static ls_status locate_by_hand(store_rendezvous *found) {
    const char *run = ls_env_text("TORCHELASTIC_RUN_ID"), *restarts = ls_env_text("TORCHELASTIC_RESTART_COUNT");
    const char *agent = ls_env_text("TORCHELASTIC_USE_AGENT_STORE");
    const ls_status status = take_master(found);
    if (status == LS_END) return fail_master(found);
    LS_TRY(status);
    if (!agent || strcmp(agent, "True") != 0) {
        /* A restarted job is another one: ranks of the attempt before must not be let in. */
        if (!found->job[0] && run)
            snprintf(found->job, sizeof found->job, "torchrun/%s/%s", run, restarts ? restarts : "0");
        return LS_OK;
    }
    /* The agent listens on that port as long as the job lives: so on that host the port is the job's name. */
    snprintf(found->job, sizeof found->job, "agent/%s/%s/%d", run ? run : "", restarts ? restarts : "0",
             found->ports[0]);
    derive_ports(found);
    return LS_OK;
}

static ls_status locate_slurm(store_rendezvous *found) {
    const char *job = ls_env_text("SLURM_JOB_ID"), *step = ls_env_text("SLURM_STEP_ID");
    const char *restarts = ls_env_text("SLURM_RESTART_COUNT"), *nodes = ls_env_text("SLURM_STEP_NODELIST");
    char second[STORE_HOST_NAME_BYTES];
    ls_status status = take_master(found);
    if (status < 0) return status;
    if (!found->job[0])
        snprintf(found->job, sizeof found->job, "slurm/%s.%s/%s", job ? job : "", step ? step : "",
                 restarts ? restarts : "0");
    if (status == LS_END) derive_ports(found);
    /* Several hosts or one: SLURM_NNODES is of the job, and a step may have fewer. */
    const ls_status has_second = store_nodelist_host(nodes, 1, second, sizeof second);
    if (has_second < 0) return ls_fail_within(has_second, "SLURM_STEP_NODELIST");
    found->hosts = has_second == LS_END ? 1 : 2;
    found->asks_pmix = status == LS_END && found->hosts == 2 && store_pmix_is_there();
    if (found->asks_pmix) return LS_OK;
    if (found->host[0]) return LS_OK;
    if (found->hosts == 1)
        snprintf(found->host, sizeof found->host, "127.0.0.1");
    else
        LS_TRY(store_nodelist_host(nodes, 0, found->host, sizeof found->host));
    return LS_OK;
}

/* An MPI's launcher tells ranks and not where they are: on one host they meet over loopback, on several through
 * PMIx. `job`: its name for the job. */
static ls_status locate_mpi(store_rendezvous *found, const char *job) {
    const ls_status status = take_master(found);
    if (status < 0) return status;
    if (!found->job[0]) snprintf(found->job, sizeof found->job, "%s", job);
    if (status == LS_OK) return LS_OK;
    found->asks_pmix = found->hosts != 1 && store_pmix_is_there();
    if (found->asks_pmix) return LS_OK;
    if (found->hosts != 1 && !(found->host[0] && ls_env_text(STORE_ENV_JOB))) return fail_master(found);
    if (found->hosts == 1) snprintf(found->host, sizeof found->host, "127.0.0.1");
    derive_ports(found);
    return LS_OK;
}

static ls_status locate_open_mpi(store_rendezvous *found) {
    const char *name = ls_env_text("PMIX_NAMESPACE");
    char job[STORE_JOB_BYTES];
    snprintf(job, sizeof job, "open-mpi/%s", name ? name : "");
    return locate_mpi(found, job);
}

/* The process above this one whose name is `name`, for instance a proxy that started all ranks of this host; 0:
 * none. Programs may be wrapped, so that it need not be the parent. */
static int find_ancestor(const char *name) {
    int process = getppid();
    /* Bounded: parents may change while we climb. */
    for (int steps = 0; steps < 64 && process > 1; steps++) {
        char path[64], line[512] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", process);
        FILE *file = fopen(path, "re");
        /* A process of another user, or one that has ended meanwhile. */
        if (!file) return 0;
        const bool is_read = fgets(line, sizeof line, file) != NULL;
        fclose(file);
        /* "77 (name of any kind) S 76 ..." */
        char *begin = strchr(line, '('), *end = strrchr(line, ')');
        if (!is_read || !begin || !end) return 0;
        *end = '\0';
        if (strcmp(begin + 1, name) == 0) return process;
        if (sscanf(end + 1, " %*c %d", &process) != 1) return 0;
    }
    return 0;
}

/* Hydra gives a job no name, but each job has a proxy of its own on each host. */
static ls_status locate_hydra(store_rendezvous *found) {
    char job[STORE_JOB_BYTES];
    snprintf(job, sizeof job, "hydra/%d", found->hosts == 1 ? find_ancestor("hydra_pmi_proxy") : 0);
    return locate_mpi(found, job);
}
