/* mpi.c: an MPI as a peer of `lockstep bench all-reduce`: mpi MOST_BYTES PROCESS FIRST, under its own mpirun. */
#include "../round.h"

#include <mpi.h>

static float *data_of(void *context, const bench_order *order) {
    (void)order;
    return (float *)context;
}

static int call(void *context, const bench_order *order, float *data) {
    (void)context;
    return MPI_Allreduce(MPI_IN_PLACE, data, (int)(order->bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
           MPI_SUCCESS;
}

/* The first number with a dot in what the library says of itself. */
static const char *find_version(char *text) {
    char *version = text;
    while (*version && !(version[0] >= '0' && version[0] <= '9' && strchr("0123456789.", version[1]))) version++;
    version[strspn(version, "0123456789.")] = '\0';
    return version;
}

int main(int argc, char **argv) {
    static bench_rank self;
    static char says[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (argc != 4) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
    bench_bind(self.rank, self.ranks);
    MPI_Get_library_version(says, &length);
    const char *impl = strstr(says, "Open MPI") ? "open-mpi" : strstr(says, "Intel") ? "intel-mpi" : "mpich";
    self.context = malloc(strtoull(argv[1], NULL, 10));
    self.data = data_of;
    self.call = call;
    int code = !self.context || bench_open(&self, argv[2], argv[3]) != 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (!code) code = bench_serve(&self, impl, find_version(says));
    free(self.context);
    MPI_Finalize();
    return code;
}
