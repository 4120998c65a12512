/* environment.c: rank and world size, as whoever started this process set them. */
#include "group/group.h"

#include "base/environment.h"
#include "store/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_RANKS 4096

/* Those who start ranks, by the variables they set. The first of which both are set counts. */
static const struct starter {
    const char *rank, *world_size;
    bool is_mpi;
} starters[] = {
    {"RANK", "WORLD_SIZE", false}, /* `lockstep run` and torchrun */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
    {"PMI_RANK", "PMI_SIZE", true}, /* MPICH and its kin */
};

/* A wrapper that gives two processes one rank, or ranks different world sizes, would make them wait for ranks that never
 * come: the launcher knows better. */
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

static ls_status read_starter(const struct starter *starter, int *rank, int *world_size) {
    const char *rank_text = ls_env_text(starter->rank), *size_text = ls_env_text(starter->world_size);
    int64_t size = 1, number = 0;
    LS_TRY(ls_env_integer(starter->world_size, 1, MOST_RANKS, &size));
    LS_TRY(ls_env_integer(starter->rank, 0, MOST_RANKS - 1, &number));
    if (number >= size)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "%s is \"%s\" and %s is \"%s\": a rank is from 0 to %" PRId64 "; correct one of them",
                       starter->rank, rank_text, starter->world_size, size_text, size - 1);
    if (!starter->is_mpi) LS_TRY(check_place(number, size));
    *rank = (int)number;
    *world_size = (int)size;
    return LS_OK;
}

ls_status group_read_environment(int *rank, int *world_size, bool *is_mpi) {
    *rank = 0;
    *world_size = 1;
    *is_mpi = false;
    const char *rank_text = ls_env_text("RANK"), *size_text = ls_env_text("WORLD_SIZE");
    if (!rank_text != !size_text)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "%s is \"%s\" but %s is not set: a rank needs both; start the program with `lockstep run`, set "
                       "both, or unset both for a world of one",
                       rank_text ? "RANK" : "WORLD_SIZE", rank_text ? rank_text : size_text,
                       rank_text ? "WORLD_SIZE" : "RANK");
    for (size_t i = 0; i < sizeof starters / sizeof starters[0]; i++) {
        if (!ls_env_text(starters[i].rank) || !ls_env_text(starters[i].world_size)) continue;
        *is_mpi = starters[i].is_mpi;
        return read_starter(&starters[i], rank, world_size);
    }
    return LS_OK;
}
