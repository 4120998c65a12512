/* Whom the environment makes of a process: the first complete set of variables says it, whatever others have left. */
#include "support/test.h"

#include "store/rendezvous.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_WORLD_SIZE",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NODELIST",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    "LOCKSTEP_LAUNCHER_PID",
                                    "LOCKSTEP_PLACE"};

/* "NAME=value" separated by spaces. */
static void set_environment(const char *settings) {
    char text[512];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    snprintf(text, sizeof text, "%s", settings);
    for (char *name = strtok(text, " "); name; name = strtok(NULL, " ")) {
        char *value = strchr(name, '=');
        *value = '\0';
        setenv(name, value + 1, 1);
    }
}

#define BY_HAND "RANK=1 WORLD_SIZE=2 "
#define SLURM "SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_STEP_NODELIST=n[1-2] "
#define OPEN_MPI "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=6 "
#define HYDRA "PMI_RANK=4 PMI_SIZE=8 "

/* `hosts`: 0 where nobody tells, 2 where there are several. */
static const struct line {
    const char *settings;
    int rank, world_size, hosts;
    bool is_mpi, is_slurm, is_launched;
} lines[] = {
    {"", 0, 1, 1, false, false, false},
    {BY_HAND SLURM OPEN_MPI HYDRA, 1, 2, 0, false, false, false},
    {BY_HAND "LOCKSTEP_LAUNCHER_PID=77 LOCKSTEP_PLACE=1/2", 1, 2, 0, false, false, true},
    {SLURM OPEN_MPI HYDRA, 2, 4, 0, false, true, false},
    {OPEN_MPI HYDRA, 3, 6, 0, true, false, false},
    {HYDRA, 4, 8, 0, true, false, false},
    /* Sets that are not complete: a batch script of Slurm's is no step; what is empty is not set. */
    {"SLURM_PROCID=2 SLURM_NTASKS=4 " OPEN_MPI, 3, 6, 0, true, false, false},
    {"RANK= WORLD_SIZE= " HYDRA, 4, 8, 0, true, false, false},
    {"RANK=7 " SLURM, 2, 4, 0, false, true, false},
    /* How many are on this host. */
    {BY_HAND "LOCAL_WORLD_SIZE=2", 1, 2, 1, false, false, false},
    {BY_HAND "LOCAL_WORLD_SIZE=1", 1, 2, 2, false, false, false},
    {OPEN_MPI "OMPI_COMM_WORLD_LOCAL_SIZE=6", 3, 6, 1, true, false, false},
    {OPEN_MPI "OMPI_COMM_WORLD_LOCAL_SIZE=3 LOCAL_WORLD_SIZE=6", 3, 6, 2, true, false, false},
    {HYDRA "MPI_LOCALNRANKS=8", 4, 8, 1, true, false, false},
};

static void the_first_complete_set_of_variables_says_who_a_process_is(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const struct line *line = &lines[i];
        store_rendezvous found;
        print_message("\"%s\"\n", line->settings);
        set_environment(line->settings);
        assert_int_equal(store_rendezvous_read(&found), LS_OK);
        assert_int_equal(found.rank, line->rank);
        assert_int_equal(found.world_size, line->world_size);
        assert_int_equal(found.hosts, line->hosts);
        assert_int_equal(found.is_mpi, line->is_mpi);
        assert_int_equal(found.is_slurm, line->is_slurm);
        assert_int_equal(found.is_launched, line->is_launched);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_complete_set_of_variables_says_who_a_process_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
