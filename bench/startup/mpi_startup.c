/* mpi_startup.c: the measurement of `lockstep bench startup` in MPI: prints, after the first barrier, when that was. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
    int rank = 0, length = 0;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    struct timespec now;
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    clock_gettime(CLOCK_MONOTONIC, &now);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(version, &length);
    if (rank == 0)
        printf("met %lld %s\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec,
               strstr(version, "Open MPI") ? "open-mpi"
               : strstr(version, "MPICH")  ? "mpich"
                                           : "mpi");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
