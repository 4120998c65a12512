/* plugin.h: the contract between the library and a plugin of the mpi backend.
 *
 * A plugin is compiled against one MPI family's headers, because families differ in what a handle is; the library
 * itself never sees an MPI header, and runs where MPI is absent. The two know each other through two tables: the plugin
 * exports one symbol, `ls_mpi_plugin`, and calls back through what `start` was given, so the library exports nothing
 * for it. */
#ifndef LS_GROUP_MPI_PLUGIN_H
#define LS_GROUP_MPI_PLUGIN_H

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/wait.h"
#include "group/backend.h"
#include "group/compare.h"
#include "group/describe.h"
#include "group/reduce.h"

#define MPI_PLUGIN_VERSION 1

/* The library's functions that plugins call; each is as in the header that declares it. */
typedef struct mpi_services {
    ls_status (*fail)(ls_status status, const char *format, ...) LS_PRINTF(2, 3);
    ls_status (*raise)(const ls_error *error);
    void (*log)(ls_log_level level, const char *format, ...) LS_PRINTF(2, 3);
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    bool (*word_wait)(ls_word *word, uint32_t seen, int64_t deadline_ns);
    void (*word_advance)(ls_word *word);
    size_t (*dtype_size)(ls_dtype dtype);
    const reduce_kernel *(*kernel_for)(ls_dtype dtype, ls_op op);
    void (*reduce_into)(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                        size_t offset_bytes, size_t count, void *into);
    const char *(*describe_call)(const group_call *call, char text[CALL_TEXT_BYTES]);
    const char *(*describe_op)(const backend_op *op, char text[CALL_TEXT_BYTES + 32]);
    ls_status (*compare_records)(const call_record *records, int world_size, uint64_t number);
    ls_status (*compare_counts)(const size_t *sent, int rank, int world_size, const backend_op *op);
    ls_status (*agree)(ls_group *group, group_kind kind, size_t count, ls_status status, uint64_t *number);
} mpi_services;

typedef struct mpi_plugin {
    uint32_t version; /* MPI_PLUGIN_VERSION; first, so that any two versions can read each other's */
    uint32_t backend_version;
    uint32_t layout; /* MPI_PLUGIN_LAYOUT */
    const ls_backend *backend;

    /* Initialises MPI unless the program has. May be called again; one thread at a time. */
    ls_status (*start)(const mpi_services *services, bool checks_calls, int *rank, int *world_size);
} mpi_plugin;

/* Differs where a structure or enumeration of the contract has changed and no version with it. */
#define MPI_PLUGIN_LAYOUT                                                                     \
    ((uint32_t)(sizeof(ls_backend) * 3 + sizeof(backend_op) * 5 + sizeof(backend_place) * 7 + \
                sizeof(mpi_services) * 11 + GROUP_KIND_COUNT * 8192 + LS_OP_COUNT * 65536 + LS_DTYPE_COUNT * 524288))

#define MPI_PLUGIN_SYMBOL "ls_mpi_plugin"

#endif
