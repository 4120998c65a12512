/* doctor.c: `lockstep doctor`: what this machine has of what Lockstep can use, and how to get what is missing.
 *
 * It tries what the library would do (open a library, make sealed memory) rather than read lists of packages: what
 * is installed and does not work is found too. Nothing is changed, and no rank is started. Each line says what a
 * thing brings or what to do without it. */
#include "tools/flight.h"
#include "tools/tools.h"

#include "launch/cores.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* One line a thing, in columns: to be read by people, and pasted into a report. */
static void say(const char *what, bool is_there, const char *there, const char *missing) {
    printf("%-22s %-4s %s\n", what, is_there ? "yes" : "no", is_there ? there : missing);
}

static bool is_on_path(const char *program) {
    const char *folders = getenv("PATH");
    for (const char *at = folders; at && *at; at += strspn(at, ":")) {
        char path[PATH_MAX];
        const size_t length = strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s/%s", (int)length, at, program);
        /* As a shell would find it; nothing is started. */
        if (access(path, X_OK) == 0) return true;
        at += length;
    }
    return false;
}

/* Both are what the shared-memory ranks stand on; some sandboxes refuse them. */
static bool has_pidfd(void) {
    const long descriptor = syscall(SYS_pidfd_open, getpid(), 0);
    if (descriptor >= 0) close((int)descriptor);
    return descriptor >= 0;
}

static bool has_sealed_memory(void) {
    const int descriptor = memfd_create("lockstep-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor >= 0) close(descriptor);
    return descriptor >= 0;
}

/* Opened at run time where they are: nothing of the library needs one of them. */
static const struct {
    const char *what, *name, *there, *missing;
} libraries[] = {
    {"Open MPI", "libmpi.so.40", "groups between hosts over it, under its mpirun",
     "groups between hosts run over tcp: install libopenmpi3 for its networks"},
    {"MPICH", "libmpich.so.12", "groups between hosts over it, under its mpiexec",
     "groups between hosts run over tcp: install libmpich12 for its networks"},
    {"PMIx", "libpmix.so.2", "ranks find rank 0 through mpirun and `srun --mpi=pmix`",
     "under those launchers set MASTER_ADDR and MASTER_PORT, or install libpmix2"},
    {"NCCL", "libnccl.so.2", "the nccl backend, for memory of GPUs", "only for GPUs: NVIDIA's package libnccl2"},
};

static bool can_be_opened(const char *name) {
    /* As the backends open it: a library that is installed but broken counts as missing. */
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (library) dlclose(library); /* NODELETE keeps it: not all of them bear to go */
    return library != NULL;
}

int doctor_main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--flight") == 0) return doctor_flight(argv[2]);
    if (argc > 1) {
        const bool is_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        if (!is_help) fprintf(stderr, "lockstep doctor: unknown option \"%s\", or it lacks its folder\n", argv[1]);
        fputs(
            "Usage: lockstep doctor [--flight DIR]\n\nSays what this machine has, what is missing, and how to get it.\n"
            "  --flight DIR   merges the ranks' flight recorders (LOCKSTEP_FLIGHT_DIR) and says which rank is stuck "
            "where\n",
            is_help ? stdout : stderr);
        return is_help ? 0 : 2;
    }
    /* First what the report is about: people send it to others. */
    struct utsname system;
    uname(&system);
    printf("lockstep %s on %s %s, %s\n", ls_version(), system.sysname, system.release, system.machine);
    printf("%-22s %-4d of %ld processors (affinity and cgroup quota counted)\n", "cores for ranks", launch_cores(),
           sysconf(_SC_NPROCESSORS_ONLN));
    say("pidfd", has_pidfd(), "a rank's death is seen at once", "needs Linux 5.3, or a sandbox that allows pidfd_open");
    say("sealed memory", has_sealed_memory(), "ranks share memory by memfd",
        "needs a sandbox that allows memfd_create");
#ifdef LS_HAVE_ONEDNN
    say("oneDNN", true, "fast kernels are built in", "");
#else
    say("oneDNN", false, "", "plain loops train many times slower: install libdnnl-dev and build again");
#endif
    /* Asked last of what is asked of this machine: opening a library runs code of its own. */
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++)
        say(libraries[i].what, can_be_opened(libraries[i].name), libraries[i].there, libraries[i].missing);
    say("gnuplot", is_on_path("gnuplot"), "draws training curves", "curves stay CSV: install gnuplot-nox");
    /* Where Debian's package puts it. */
    say("Fashion-MNIST", access("/usr/share/datasets/fashion-mnist", R_OK) == 0, "the examples' images",
        "install dataset-fashion-mnist");
    return 0;
}
