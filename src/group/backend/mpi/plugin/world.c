/* world.c: MPI begins and ends with the process.
 *
 * It is initialised by whoever comes first, the program or we, and finalised by the same. Ours ends at exit, since an
 * MPI that was finalised cannot begin again and a program may open another group. A rank that exits with a group still
 * open, or with an operation that never ended, does not finalise: finalising waits for all ranks, and launchers take a
 * rank that ends without it for a failure, which ends the job, as it should. */
#include "group/backend/mpi/plugin/state.h"

#include <stdlib.h>
#include <unistd.h>

mpi_process mpi_here = {.lock = PTHREAD_MUTEX_INITIALIZER};

ls_status mpi_failed(int code, const char *doing) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0, class = MPI_ERR_OTHER;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &class);
    /* A message of another length than its receiver's is how MPI sees ranks that call different things. */
    if (class == MPI_ERR_TRUNCATE)
        return mpi_here.services->fail(
            LS_ERR_MISMATCH,
            "rank %d: %s: the ranks' data differ in size (%s); all ranks have to call alike; "
            "LOCKSTEP_DEBUG=detail names who does not",
            mpi_here.rank, doing, text);
    return mpi_here.services->fail(LS_ERR_IO, "rank %d: %s: MPI failed: %s", mpi_here.rank, doing, text);
}

bool mpi_is_running(void) {
    int is_initialised = 0, is_finalised = 0;
    MPI_Initialized(&is_initialised);
    MPI_Finalized(&is_finalised);
    return is_initialised && !is_finalised;
}

bool mpi_may_call(const mpi_group *mpi) {
    if (mpi_here.level == MPI_THREAD_MULTIPLE) return true;
    /* Below, another thread might be inside MPI: whoever drove the group is not. */
    return pthread_equal(atomic_load_explicit(&mpi->poller, memory_order_relaxed), pthread_self());
}

/* At exit, if MPI is ours to end. A forked child has the parent's state, and no MPI. */
static void finish(void) {
    if (mpi_here.pid != getpid() || !mpi_is_running()) return;
    pthread_mutex_lock(&mpi_here.lock);
    const bool has_groups = mpi_here.groups != NULL;
    pthread_mutex_unlock(&mpi_here.lock);
    if (!has_groups && !atomic_load(&mpi_here.abandoned)) MPI_Finalize();
}

static ls_status initialise(void) {
    MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &mpi_here.level), "starting MPI");
    if (atexit(finish) != 0)
        return mpi_here.services->fail(LS_ERR_MEMORY, "MPI is started, but its end at exit cannot be arranged");
    return LS_OK;
}

/* Threads other than the one that initialised MPI may call it from MPI_THREAD_SERIALIZED on. */
static ls_status check_thread(void) {
    int is_main = 0;
    MPI_TRY(MPI_Query_thread(&mpi_here.level), "asking MPI's level of threads");
    MPI_TRY(MPI_Is_thread_main(&is_main), "asking MPI for its main thread");
    if (is_main || mpi_here.level >= MPI_THREAD_SERIALIZED) return LS_OK;
    return mpi_here.services->fail(LS_ERR_STATE,
                                   "MPI was initialised below MPI_THREAD_SERIALIZED: a group over it is opened by the "
                                   "thread that initialised MPI, or initialise it with MPI_THREAD_MULTIPLE");
}

/* The standard promises this much. */
#define LEAST_LARGEST_TAG 32767

static ls_status read_largest_tag(void) {
    int *largest = NULL, is_there = 0;
    MPI_TRY(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &is_there), "asking MPI for its largest tag");
    mpi_here.largest_tag = is_there ? *largest : LEAST_LARGEST_TAG;
    return LS_OK;
}

static ls_status start(const mpi_services *services, bool checks_calls, int *rank, int *world_size) {
    int is_initialised = 0, is_finalised = 0;
    mpi_here.services = services;
    MPI_Initialized(&is_initialised);
    MPI_Finalized(&is_finalised);
    if (is_finalised)
        return services->fail(
            LS_ERR_STATE, "MPI was finalised in this process and cannot begin again: open groups before MPI_Finalize");
    if (!is_initialised) LS_TRY(initialise());
    LS_TRY(check_thread());
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &mpi_here.rank), "asking MPI for the rank");
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &mpi_here.world_size), "asking MPI for the number of ranks");
    if (!mpi_here.is_started) {
        mpi_here.root = MPI_COMM_NULL;
        mpi_here.pid = getpid();
        mpi_here.checks_calls = checks_calls;
        LS_TRY(read_largest_tag());
        LS_TRY(mpi_prepare_notices());
        mpi_here.is_started = true;
    }
    *rank = mpi_here.rank;
    *world_size = mpi_here.world_size;
    return LS_OK;
}

extern const ls_backend mpi_backend;

__attribute__((visibility("default"))) const mpi_plugin ls_mpi_plugin = {.version = MPI_PLUGIN_VERSION,
                                                                         .backend_version = LS_BACKEND_VERSION,
                                                                         .layout = MPI_PLUGIN_LAYOUT,
                                                                         .backend = &mpi_backend,
                                                                         .start = start};
