// oneccl.cpp: Intel's oneCCL as a peer of `lockstep bench all-reduce`: oneccl MOST_BYTES PROCESS FIRST, under Intel MPI's mpiexec,
// which also carries the address where its ranks meet.
#include "../round.h"

#include <memory>
#include <mpi.h>
#include <oneapi/ccl.hpp>

struct peer {
    std::unique_ptr<ccl::communicator> communicator;
    float *data;
};

static float *data_of(void *context, const bench_order *) {
    return static_cast<peer *>(context)->data;
}

static int call(void *context, const bench_order *order, float *data) {
    ccl::allreduce(data, data, order->bytes / sizeof(float), ccl::datatype::float32, ccl::reduction::sum,
                   *static_cast<peer *>(context)->communicator)
        .wait();
    return 0;
}

int main(int argc, char **argv) {
    static bench_rank self;
    if (argc != 4) return 2;
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
    bench_bind(self.rank, self.ranks);
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> meeting;
    ccl::kvs::address_type address;
    if (self.rank == 0) {
        meeting = ccl::create_main_kvs();
        address = meeting->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (self.rank != 0) meeting = ccl::create_kvs(address);
    peer context;
    context.communicator =
        std::make_unique<ccl::communicator>(ccl::create_communicator(self.ranks, self.rank, meeting));
    context.data = static_cast<float *>(malloc(strtoull(argv[1], nullptr, 10)));
    self.context = &context;
    self.data = data_of;
    self.call = call;
    int code = !context.data || bench_open(&self, argv[2], argv[3]) != 0;
    const auto version = ccl::get_library_version();
    char text[60];
    snprintf(text, sizeof text, "%u.%u.%u", version.major, version.minor, version.update);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!code) code = bench_serve(&self, "oneccl", text);
    free(context.data);
    context.communicator.reset();
    MPI_Finalize();
    return code;
}
