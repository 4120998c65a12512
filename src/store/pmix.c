/* pmix.c: PMIx_Put and Commit by rank 0, a fence, PMIx_Get by the others.
 *
 * What is declared here of PMIx's interface is what all its versions since 3 have alike (its standard, chapters 3
 * and 5). PMIx itself knows whether the process has initialised it, which an MPI does as well. Where we did, it is
 * finalised at the process's end: a launcher takes one that ends without for a failed one, and what is initialised
 * once more after that loses count of its fences (seen with Open MPI 4.1 and PMIx 4.2). */
#include "store/pmix.h"

#include "base/environment.h"
#include "base/error.h"
#include "base/fault.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libpmix.so.2"
#define KEY "lockstep.rank-0"

/* By PMIx's numbers, which its standard fixes. */
enum { TYPE_BOOL = 1, TYPE_INTEGER = 6, TYPE_BYTES = 27, SCOPE_ALL = 3, FAILED_BY_TIME = -24 };

#define ALL_RANKS (UINT32_MAX - 1)

typedef struct pmix_process {
    char job[256];
    uint32_t rank;
} pmix_process;

typedef struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        int integer;
        struct {
            char *bytes;
            size_t count;
        } object;
        void *others[3]; /* the size of its largest member */
    } data;
} pmix_value;

typedef struct pmix_info {
    char key[512];
    uint32_t flags;
    pmix_value value;
} pmix_info;

typedef struct pmix_library {
    int (*is_initialised)(void);
    int (*init)(pmix_process *self, pmix_info *infos, size_t count);
    int (*finalize)(const pmix_info *infos, size_t count);
    int (*put)(uint8_t scope, const char *key, pmix_value *value);
    int (*commit)(void);
    int (*fence)(const pmix_process *who, size_t who_count, const pmix_info *infos, size_t count);
    int (*get)(const pmix_process *whose, const char *key, const pmix_info *infos, size_t count, pmix_value **value);
    const char *(*describe)(int status);
} pmix_library;

bool store_pmix_is_there(void) {
    return ls_env_text("PMIX_NAMESPACE") && ls_env_text("PMIX_RANK");
}

/* Whether it is there. Stays open: it may have threads of its own. */
static bool open_library(pmix_library *pmix) {
    /* Local names: another library of the process may bring a PMIx of its own. */
    void *opened = ls_fault(LS_FAULT_SYSCALL) ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct {
        const char *name;
        void *place;
    } wanted[] = {{"PMIx_Initialized", &pmix->is_initialised},
                  {"PMIx_Init", &pmix->init},
                  {"PMIx_Finalize", &pmix->finalize},
                  {"PMIx_Put", &pmix->put},
                  {"PMIx_Commit", &pmix->commit},
                  {"PMIx_Fence", &pmix->fence},
                  {"PMIx_Get", &pmix->get},
                  {"PMIx_Error_string", &pmix->describe}};
    bool is_whole = opened != NULL;
    for (size_t i = 0; is_whole && i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(opened, wanted[i].name);
        memcpy(wanted[i].place, &found, sizeof found); /* C has no cast from an object's pointer to a function's */
        is_whole = found != NULL;
    }
    if (opened) dlclose(opened); /* NODELETE keeps it */
    return is_whole;
}

static ls_status fail_in(const pmix_library *pmix, const char *call, int status) {
    return ls_fail(status == FAILED_BY_TIME ? LS_ERR_TIMEOUT : LS_ERR_IO, "ranks cannot meet through PMIx: %s: %s",
                   call, pmix->describe(status));
}

static ls_status put(const pmix_library *pmix, void *word, size_t bytes) {
    pmix_value value = {.type = TYPE_BYTES, .data.object = {.bytes = word, .count = bytes}};
    int status = pmix->put(SCOPE_ALL, KEY, &value);
    if (status != 0) return fail_in(pmix, "PMIx_Put", status);
    /* Put is local: only a commit makes it travel with the fence. */
    status = pmix->commit();
    return status == 0 ? LS_OK : fail_in(pmix, "PMIx_Commit", status);
}

static ls_status get(const pmix_library *pmix, const pmix_process *self, const pmix_info *limit, void *word,
                     size_t bytes) {
    pmix_process first = *self;
    pmix_value *value = NULL;
    /* Rank 0 of our own job, whatever others run under the same launcher. */
    first.rank = 0;
    const int status = pmix->get(&first, KEY, limit, 1, &value);
    if (status != 0 || !value) return fail_in(pmix, "PMIx_Get", status);
    /* Of one job, but maybe of two versions: the size is all that is believed. */
    const bool fits = value->type == TYPE_BYTES && value->data.object.count == bytes;
    if (fits) memcpy(word, value->data.object.bytes, bytes);
    if (value->type == TYPE_BYTES && value->data.object.bytes) {
        explicit_bzero(value->data.object.bytes, value->data.object.count);
        free(value->data.object.bytes); /* PMIx took it from malloc */
    }
    free(value);
    return fits ? LS_OK : ls_fail(LS_ERR_FORMAT, "what rank 0 says through PMIx is not what this version expects");
}

static ls_status tell(const pmix_library *pmix, const pmix_process *self, int rank, void *word, size_t bytes,
                      int64_t timeout_ms) {
    pmix_process all = *self;
    /* The fence carries what was put to all hosts: what these have of an earlier word is of no use. */
    pmix_info infos[2] = {{.key = "pmix.timeout", .value = {.type = TYPE_INTEGER}},
                          {.key = "pmix.collect", .value = {.type = TYPE_BOOL, .data.flag = true}}};
    infos[0].value.data.integer = timeout_ms < 0 || timeout_ms > INT64_C(1000000000) ? 0 : (int)(timeout_ms / 1000 + 1);
    all.rank = ALL_RANKS;
    if (self->rank != (uint32_t)rank)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "to its launcher this process is rank %d, to PMIx rank %u: ranks cannot meet through PMIx; set "
                       "MASTER_ADDR and MASTER_PORT",
                       rank, (unsigned)self->rank);
    const ls_status was_put = rank == 0 ? put(pmix, word, bytes) : LS_OK;
    const int fenced = pmix->fence(&all, 1, infos, 2); /* also after a failure: the others are in it */
    LS_TRY(was_put);
    if (fenced != 0) return fail_in(pmix, "PMIx_Fence", fenced);
    return rank == 0 ? LS_OK : get(pmix, self, infos, word, bytes);
}

/* At the process's end. What was told is told, so nothing is to be said of a failure. */
static void finalize(void) {
    pmix_library pmix = {.init = NULL};
    if (open_library(&pmix) && pmix.is_initialised()) (void)pmix.finalize(NULL, 0);
}

/* Counts once more in a process that has initialised it, whatever MPI does: so `self` is filled in each case. */
static ls_status initialise(const pmix_library *pmix, pmix_process *self) {
    const bool was_initialised = pmix->is_initialised();
    const int status = pmix->init(self, NULL, 0);
    if (status != 0) return fail_in(pmix, "PMIx_Init", status);
    /* Not ours: the count goes back, and whoever initialised it finalises it. */
    if (was_initialised)
        (void)pmix->finalize(NULL, 0);
    else if (atexit(finalize) != 0)
        return ls_fail(LS_ERR_MEMORY, "cannot arrange for PMIx to be finalised at the process's end");
    return LS_OK;
}

ls_status store_pmix_tell(int rank, void *word, size_t bytes, int64_t timeout_ms) {
    pmix_library pmix = {.init = NULL};
    pmix_process self = {.rank = 0};
    if (!open_library(&pmix))
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "this job's launcher brings PMIx, but its library %s cannot be opened; install it (Debian: "
                       "libpmix2), or say where rank 0 is: MASTER_ADDR and MASTER_PORT",
                       LIBRARY);
    LS_TRY(initialise(&pmix, &self));
    return tell(&pmix, &self, rank, word, bytes, timeout_ms);
}
