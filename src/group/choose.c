/* choose.c: which backend carries a group, and who its ranks are.
 *
 * Ranks come from the caller's options, else from the environment; of MPI alone from itself, since it counts them for
 * the program too. A backend that is named (`options`, LOCKSTEP_BACKEND) is taken or is an error, never replaced. */
#include "group/group.h"

#include "base/environment.h"
#include "group/backend/mpi/load.h"
#include "store/rendezvous.h"

#include <string.h>

/* What may be named. */
static const char *const names[] = {"shm", "mpi", "nccl"};
#define NAMES_IN_WORDS "\"shm\", \"mpi\" and \"nccl\""

static bool is_known(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Who chose, for the sentence of a failure. */
static ls_status read_name(const ls_group_options *options, const char **name) {
    const char *variable = ls_env_text("LOCKSTEP_BACKEND");
    *name = options->backend ? options->backend : variable;
    if (!*name || is_known(*name)) return LS_OK;
    return ls_fail(options->backend ? LS_ERR_ARGUMENT : LS_ERR_ENVIRONMENT,
                   "cannot open a group: %s is \"%s\"; the backends are " NAMES_IN_WORDS,
                   options->backend ? "the option backend" : "LOCKSTEP_BACKEND", *name);
}

static bool says_ranks(const ls_group_options *options) {
    return options->store || options->world_size != 0 || options->rank != 0;
}

/* MPI counts its ranks; whoever says something else means another job. */
static ls_status choose_mpi(const ls_group_options *options, ls_group_options *found, const ls_backend **backend) {
    LS_TRY(mpi_load(backend, &found->rank, &found->world_size));
    if (!says_ranks(options) || (options->rank == found->rank && options->world_size == found->world_size))
        return LS_OK;
    return ls_fail(
        LS_ERR_ARGUMENT,
        "cannot open a group over MPI as rank %d of %d: to MPI this process is rank %d of %d; leave rank and "
        "world_size zero",
        options->rank, options->world_size, found->rank, found->world_size);
}

ls_status group_choose(const ls_group_options *options, ls_group_options *found, const ls_backend **backend) {
    const char *name = NULL;
    LS_TRY(read_name(options, &name));
    *found = *options;
    store_rendezvous place;
    bool is_mpi = name && strcmp(name, "mpi") == 0;
    if (!is_mpi && !says_ranks(options)) {
        LS_TRY(store_rendezvous_read(&place));
        found->rank = place.rank;
        found->world_size = place.world_size;
        /* Slurm starts programs of MPI as well as others: what the program has done tells. */
        const bool may_be_mpi = place.world_size == 1 || place.is_slurm;
        is_mpi = !name && ((place.is_mpi && place.world_size > 1) || (may_be_mpi && mpi_is_initialised()));
    }
    found->store = NULL;
    if (is_mpi) return choose_mpi(options, found, backend);
    const bool is_nccl = name && strcmp(name, "nccl") == 0;
    *backend = is_nccl ? &nccl_backend : found->world_size == 1 ? &solo_backend : &shm_backend;
    if (options->store)
        found->store = ls_store_keep(options->store);
    else if (!says_ranks(options) && found->world_size > 1) {
        LS_TRY(store_rendezvous_locate(&place));
        LS_TRY(store_rendezvous_meet(&place, options->timeout_ms, &found->store));
    }
    return LS_OK;
}
