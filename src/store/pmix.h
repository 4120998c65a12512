/* pmix.h: rank 0's word to all others, through the PMIx of the launcher that started them (Open MPI's mpirun, `srun
 * --mpi=pmix`): https://pmix.github.io. Its library is opened at run time, so that nothing is missed where there is
 * none. */
#ifndef LS_STORE_PMIX_H
#define LS_STORE_PMIX_H

#include <lockstep/base.h>

/* Whether a launcher with PMIx has started this process. Opens nothing. */
bool store_pmix_is_there(void);

/* Collective over all ranks of the job: rank 0's `bytes` bytes at `word` arrive at all others'. Several in turn may
 * differ in size. PMIx knows no unlimited patience but its own: a `timeout_ms` of LS_FOREVER is that.
 * Errors: LS_ERR_UNSUPPORTED without the library, LS_ERR_ENVIRONMENT when PMIx counts its ranks in another way,
 * LS_ERR_TIMEOUT, LS_ERR_IO, LS_ERR_FORMAT when what arrives has another size. */
ls_status store_pmix_tell(int rank, void *word, size_t bytes, int64_t timeout_ms);

#endif
