/* mpi_all_reduce.c: the measurement of `lockstep bench all-reduce` in MPI: mpi_all_reduce MOST_BYTES, under mpirun. Prints the
 * same lines, so that they stand beside ours. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {4,         64,      256,     1 << 10,  4 << 10,   16 << 10, 64 << 10,
                               256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20, 0};

#define MOST_OPERATIONS 4000

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(float *data, size_t bytes, int is_fresh, const char *impl, int rank, int ranks) {
    static double samples[MOST_OPERATIONS];
    const double one_us = 1 + (double)bytes / 2000;
    int count = (int)(100000 / one_us);
    count = count < 5 ? 5 : count > MOST_OPERATIONS ? MOST_OPERATIONS : count;
    memset(data, 0, bytes);
    for (int i = -2; i < count; i++) {
        for (size_t k = 0; is_fresh && k < bytes / sizeof(float); k++) data[k] = 1;
        const double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) samples[i] = (MPI_Wtime() - start) * 1e6;
    }
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    if (rank != 0) return;
    printf("{\"bench\":\"all-reduce\",\"impl\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"memory\":\"ordinary\",\"mode\":"
           "\"blocking\",\"pattern\":\"%s\",\"median_us\":%.3f,\"best_us\":%.3f,\"ratio\":0.000}\n",
           impl, ranks, bytes, is_fresh ? "fresh" : "repeat", samples[count / 2], samples[0]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    int rank = 0, ranks = 1, length = 0;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_library_version(version, &length);
    const char *impl = strstr(version, "Open MPI") ? "open-mpi" : strstr(version, "MPICH") ? "mpich" : "mpi";
    const size_t most_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : sizes[0];
    float *data = malloc(most_bytes);
    for (int i = 0; data && sizes[i] && sizes[i] <= most_bytes; i++)
        for (int is_fresh = 0; is_fresh < 2; is_fresh++) measure(data, sizes[i], is_fresh, impl, rank, ranks);
    free(data);
    MPI_Finalize();
    return 0;
}
