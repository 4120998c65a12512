/* choose.c: which backend carries a group, and who its ranks are.
 *
 * Ranks come from the caller's options, else from the environment; of MPI alone from itself, since it counts them for
 * the program too. A backend that is named (`options`, LOCKSTEP_BACKEND) is taken or is an error, never replaced. */
#include "group/group.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/environment.h"
#include "group/backend/mpi/load.h"
#include "group/hosts.h"
#include "store/rendezvous.h"
#include "store/store.h"

#include <string.h>

/* What may be named. MPI's table is known when its plugin is loaded. */
static const struct {
    const char *name;
    const ls_backend *backend;
} choices[] = {{"shm", &shm_backend}, {"tcp", &hosts_backend}, {"nccl", &nccl_backend}, {"mpi", NULL}};
#define NAMES_IN_WORDS "\"shm\", \"tcp\", \"mpi\" and \"nccl\""

static bool find_backend(const char *name, const ls_backend **backend) {
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (strcmp(choices[i].name, name) != 0) continue;
        *backend = choices[i].backend;
        return true;
    }
    return false;
}

/* Who chose, for the sentence of a failure. */
static ls_status read_name(const ls_group_options *options, const char **name, const ls_backend **backend) {
    const char *variable = ls_env_text("LOCKSTEP_BACKEND");
    *name = options->backend ? options->backend : variable;
    *backend = NULL;
    if (!*name || find_backend(*name, backend)) return LS_OK;
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

/* Nobody has named a backend: shared memory where all ranks are on one host. `hosts` as in store_rendezvous; where nobody
 * tells, the ranks ask each other. */
static ls_status choose_by_place(const ls_group_options *found, int hosts, const ls_backend **backend) {
    const int64_t timeout_ms = found->timeout_ms ? found->timeout_ms : GROUP_DEFAULT_TIMEOUT_MS;
    bool several = hosts > 1;
    ls_status status = LS_OK;
    const int64_t outer_ns = ls_context_limit(ls_deadline_after_ms(timeout_ms));
    if (hosts == 0 && found->store && !store_is_in_process(found->store))
        status = hosts_are_several(found->store, found->rank, found->world_size, timeout_ms, &several);
    ls_context_limit(outer_ns);
    *backend = several ? &hosts_backend : &shm_backend;
    return status;
}

ls_status group_choose(const ls_group_options *options, ls_group_options *found, const ls_backend **backend) {
    const char *name = NULL;
    LS_TRY(read_name(options, &name, backend));
    *found = *options;
    store_rendezvous place = {0};
    bool is_mpi = name && !*backend;
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
    if (options->store)
        found->store = ls_store_keep(options->store);
    else if (!says_ranks(options) && found->world_size > 1) {
        LS_TRY(store_rendezvous_locate(&place));
        place.backend = name;
        LS_TRY(store_rendezvous_meet(&place, options->timeout_ms, &found->store));
    }
    if (found->world_size == 1 && *backend != &nccl_backend) *backend = &solo_backend;
    if (*backend) return LS_OK;
    const ls_status status = choose_by_place(found, place.is_launched ? 1 : place.hosts, backend);
    if (status != LS_OK && !options->store) store_settle(found->store); /* the others learn of the failure itself */
    if (status != LS_OK) ls_store_close(&found->store);
    return status;
}
