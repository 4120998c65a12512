/* kernels.c: which table serves an element type. Decided once a process; the tables never change afterwards, so that
 * any number of ranks, processes or threads, may share them. */
#include "tensor/kernels/kernels.h"

#include "base/environment.h"
#include "base/error.h"
#include "tensor/kernels/reference/reference.h"

#ifdef LS_HAVE_ONEDNN
#include "tensor/kernels/onednn/onednn.h"
#endif

#include <pthread.h>
#include <string.h>

const ls_kernels *kernels_reference(ls_dtype dtype) {
    if (dtype == LS_F32) return reference_f32();
    if (dtype == LS_F64) return reference_f64();
    return NULL;
}

#ifdef LS_HAVE_ONEDNN
static ls_kernels onednn_f32;
static pthread_once_t onednn_once = PTHREAD_ONCE_INIT;

static void fill_onednn(void) {
    /* Entries that oneDNN does not serve stay the plain loops. */
    onednn_f32 = *reference_f32();
    onednn_overwrite(&onednn_f32);
}

const ls_kernels *kernels_onednn(ls_dtype dtype) {
    if (dtype != LS_F32) return NULL;
    pthread_once(&onednn_once, fill_onednn);
    return &onednn_f32;
}

void kernels_thread_release(void) {
    onednn_thread_release();
}
#else
const ls_kernels *kernels_onednn(ls_dtype dtype) {
    (void)dtype;
    return NULL;
}

void kernels_thread_release(void) {}
#endif

/* What LOCKSTEP_KERNELS asks for. */
static enum { FASTEST, REFERENCE, ONEDNN, UNKNOWN } wish;
static pthread_once_t wish_once = PTHREAD_ONCE_INIT;

static void read_wish(void) {
    const char *const text = ls_env_text("LOCKSTEP_KERNELS");
    if (!text) {
        wish = FASTEST;
    } else if (strcmp(text, "reference") == 0) {
        wish = REFERENCE;
    } else {
        /* A word that is not known is an error of the first op: a job that trains on other kernels than asked for
         * is worse. */
        wish = strcmp(text, "onednn") == 0 ? ONEDNN : UNKNOWN;
    }
}

const ls_kernels *kernels_for(ls_dtype dtype) {
    const ls_kernels *const plain = kernels_reference(dtype);
    if (!plain) {
        ls_fail(LS_ERR_UNSUPPORTED, "there is no arithmetic on elements of type %s: use f32 or f64",
                ls_dtype_name(dtype));
        return NULL;
    }
    pthread_once(&wish_once, read_wish);
    if (wish == REFERENCE) return plain;

    /* oneDNN serves f32 only: that f64 runs on plain loops beside it is no reason to refuse. */
    const ls_kernels *const fast = kernels_onednn(dtype);
    if (wish == UNKNOWN || (wish == ONEDNN && !kernels_onednn(LS_F32))) {
        ls_fail(LS_ERR_ENVIRONMENT, "LOCKSTEP_KERNELS=%s: this build has %s; unset it for the fastest",
                ls_env_text("LOCKSTEP_KERNELS"), kernels_onednn(LS_F32) ? "reference and onednn" : "reference alone");
        return NULL;
    }
    return fast ? fast : plain;
}
