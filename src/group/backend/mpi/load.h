/* load.h: the mpi backend from the library's side: plugins, one for each MPI family, of which one is opened at run
 * time. */
#ifndef LS_GROUP_MPI_LOAD_H
#define LS_GROUP_MPI_LOAD_H

#include "group/backend.h"

/* Whether the program has initialised an MPI that a plugin of ours knows. */
bool mpi_is_initialised(void);

/* Opens the plugin that fits this process, initialises MPI unless the program has, and tells its rank and number of
 * ranks. The plugin stays open: an MPI cannot be begun twice. Errors: LS_ERR_UNSUPPORTED names the plugin, library and
 * package that are missing; LS_ERR_ENVIRONMENT; LS_ERR_STATE when MPI was finalised or this thread may not call it. */
ls_status mpi_load(const ls_backend **backend, int *rank, int *world_size);

#endif
