/* mpi_hosts_all_reduce.c: the measurement of hosts_all_reduce.c in MPI.
 *
 *   mpi_hosts_all_reduce BYTES ROUNDS, under mpirun */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const size_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    float *data = calloc(1, bytes + 1);
    for (int round = 0; data && argc == 3 && round < atoi(argv[2]); round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) printf("%.1f\n", (MPI_Wtime() - start) * 1e6);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
