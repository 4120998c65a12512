/* load.c: chooses the MPI family of this process and opens its plugin.
 *
 * The plugin of another family than the launcher's or the program's own MPI would start a second, unconnected MPI:
 * every rank would be rank 0 of 1. So the choice goes by what is certain, and says so when nothing is. */
#include "group/backend/mpi/load.h"

#include "base/environment.h"
#include "base/memory.h"
#include "group/backend/mpi/plugin.h"
#include "group/group.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* An MPI family, and what of it a plugin needs at run time. */
typedef struct mpi_family {
    const char *name; /* of LOCKSTEP_MPI */
    const char *plugin, *library;
    const char *source; /* where to get it */
    const char *sign;   /* a variable that its launcher sets; NULL: none tells it from another family */
} mpi_family;

static const mpi_family families[] = {
    {"openmpi", "liblockstep-mpi-openmpi.so", "libmpi.so.40",
     "Open MPI (Debian's packages: libopenmpi3 to run, libopenmpi-dev to build the plugin)", "OMPI_COMM_WORLD_SIZE"},
    {"mpich", "liblockstep-mpi-mpich.so", "libmpich.so.12",
     "MPICH (Debian's packages: libmpich12 to run, libmpich-dev to build the plugin)", "PMI_RANK"},
    {"abi", "liblockstep-mpi-abi.so", "libmpi_abi.so.1", "an MPI with the standard ABI of MPI 5 (such as MPICH 5)",
     NULL},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

/* --- which family ------------------------------------------------------------------------------------------------ */

/* Whether this family's library is in the process and in use. It may have been opened by a module of the program's, so
 * its symbols are looked for in itself. */
static bool is_initialised(const mpi_family *family) {
    void *library = dlopen(family->library, RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return false;
    int (*initialized)(int *flag) = NULL;
    void *symbol = dlsym(library, "MPI_Initialized");
    memcpy(&initialized, &symbol, sizeof symbol); /* ISO C has no cast from an object's pointer to a function's */
    int flag = 0;
    if (initialized) initialized(&flag);
    dlclose(library);
    return flag;
}

static const mpi_family *find_initialised(void) {
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (is_initialised(&families[i])) return &families[i];
    return NULL;
}

bool mpi_is_initialised(void) {
    return find_initialised() != NULL;
}

static const mpi_family *find_named(const char *name) {
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

static ls_status choose_family(const mpi_family **chosen) {
    const mpi_family *present = find_initialised();
    const char *name = ls_env_text("LOCKSTEP_MPI");
    *chosen = name ? find_named(name) : present;
    if (name && !*chosen)
        return ls_fail(LS_ERR_ENVIRONMENT, "LOCKSTEP_MPI is \"%s\"; the MPI families are openmpi, mpich and abi", name);
    if (present && *chosen != present)
        return ls_fail(
            LS_ERR_ENVIRONMENT,
            "LOCKSTEP_MPI is \"%s\", but this program has initialised %s (%s): two MPIs in one process do not "
            "know of each other; unset LOCKSTEP_MPI",
            name, present->library, present->name);
    for (size_t i = 0; i < FAMILY_COUNT && !*chosen; i++)
        if (families[i].sign && ls_env_text(families[i].sign)) *chosen = &families[i];
    if (*chosen) return LS_OK;
    return ls_fail(LS_ERR_ENVIRONMENT, "the mpi backend was asked for, but neither an MPI launcher's variables nor an "
                                       "initialised MPI tell which MPI family it is: start the program with mpirun or "
                                       "mpiexec, or set LOCKSTEP_MPI to openmpi, mpich or abi");
}

/* --- its plugin -------------------------------------------------------------------------------------------------- */

/* The folder of the file that holds this code: the shared library, or a program that it is linked into. */
static ls_status find_own_folder(char folder[PATH_MAX]) {
    Dl_info unused;
    struct link_map *map = NULL;
    const int found = dladdr1(families, &unused, (void **)&map, RTLD_DL_LINKMAP);
    if (found && map && map->l_name[0]) {
        snprintf(folder, PATH_MAX, "%s", map->l_name);
    } else { /* the program itself has no name there */
        const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
        if (length < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot read where this program is (/proc/self/exe)");
        folder[length] = '\0';
    }
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(folder, PATH_MAX, ".");
    return LS_OK;
}

/* Beside the installed library; in a build folder; for a program in bin or tests beside lib. */
static const char *const places[] = {"lockstep", LS_LIBRARY_FOLDER "/lockstep", "../" LS_LIBRARY_FOLDER "/lockstep"};

#define PLACE_COUNT (sizeof places / sizeof places[0])

static ls_status find_plugin(const mpi_family *family, char path[PATH_MAX]) {
    char folder[PATH_MAX];
    LS_TRY(find_own_folder(folder));
    for (size_t i = 0; i < PLACE_COUNT; i++) {
        const int length = snprintf(path, PATH_MAX, "%s/%s/%s", folder, places[i], family->plugin);
        if (length < PATH_MAX && access(path, R_OK) == 0) return LS_OK;
    }
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "the mpi backend needs its plugin %s, which is not in %s/lockstep: this Lockstep was built without "
                   "%s; install that and build Lockstep again",
                   family->plugin, folder, family->source);
}

/* Open for the rest of the process, like the MPI under it; opening again yields the same one. NULL with the error
 * set. */
static const mpi_plugin *open_plugin(const mpi_family *family) {
    char path[PATH_MAX];
    if (find_plugin(family, path) != LS_OK) return NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        ls_fail(LS_ERR_UNSUPPORTED, "the mpi backend needs %s of %s: %s", family->library, family->source, dlerror());
        return NULL;
    }
    const mpi_plugin *plugin = dlsym(handle, MPI_PLUGIN_SYMBOL);
    if (plugin && plugin->version == MPI_PLUGIN_VERSION && plugin->backend_version == LS_BACKEND_VERSION &&
        plugin->layout == MPI_PLUGIN_LAYOUT)
        return plugin;
    ls_fail(LS_ERR_UNSUPPORTED,
            "%s belongs to another version of Lockstep (version %d.%u of a plugin was expected, %d.%u was found): "
            "install both "
            "from one build",
            path, MPI_PLUGIN_VERSION, MPI_PLUGIN_LAYOUT, plugin ? (int)plugin->version : -1,
            plugin ? plugin->layout : 0);
    return NULL;
}

ls_status mpi_load(const ls_backend **backend, int *rank, int *world_size) {
    static const mpi_services services = {.fail = ls_fail,
                                          .raise = ls_error_raise,
                                          .log = ls_log,
                                          .alloc = ls_alloc,
                                          .free = ls_free,
                                          .word_wait = ls_word_wait,
                                          .word_advance = ls_word_advance,
                                          .dtype_size = ls_dtype_size,
                                          .kernel_for = reduce_kernel_for,
                                          .reduce_into = reduce_into,
                                          .describe_call = call_describe,
                                          .describe_op = op_describe,
                                          .compare_records = compare_records,
                                          .compare_counts = compare_counts,
                                          .agree = group_agree};
    const mpi_family *family = NULL;
    bool checks_calls = false;
    LS_TRY(read_compares_all_calls(&checks_calls));
    LS_TRY(choose_family(&family));
    const mpi_plugin *plugin = open_plugin(family);
    if (!plugin) return LS_ERR_UNSUPPORTED; /* all that can fail there */
    LS_TRY(plugin->start(&services, checks_calls, rank, world_size));
    *backend = plugin->backend;
    return LS_OK;
}
