/* buckets.h: which parameter goes in which bucket, and where in it. Pure: no thread, clock or I/O; memory at setup
 * only. */
#ifndef LS_DDP_BUCKETS_H
#define LS_DDP_BUCKETS_H

#include <lockstep/base.h>

/* Parameters start on this many bytes in a bucket: a cache line and the widest vector. */
#define BUCKET_ALIGNMENT 64

#define BUCKET_CAP_BYTES ((size_t)25 << 20)
#define FIRST_BUCKET_CAP_BYTES ((size_t)1 << 20)

/* What is to be laid out. */
typedef struct bucket_request {
    int parameter_count;
    const size_t *bytes;    /* [parameter_count] payload of each gradient */
    const ls_dtype *dtypes; /* [parameter_count] */
    const int *order;       /* [parameter_count] parameters in the order in which gradients are expected */
    size_t cap_bytes;       /* 0: BUCKET_CAP_BYTES */
    size_t first_cap_bytes; /* 0: the smaller of FIRST_BUCKET_CAP_BYTES and the cap */
} bucket_request;

/* The layout. Bucket b holds members[first_member[b]] ... members[first_member[b + 1] - 1], in this order in memory. */
typedef struct bucket_plan {
    int parameter_count;
    int bucket_count;
    int *bucket_of;     /* [parameter_count] */
    size_t *offset_of;  /* [parameter_count] bytes from the start of its bucket */
    int *members;       /* [parameter_count] */
    int *first_member;  /* [bucket_count + 1] */
    size_t *bytes_of;   /* [bucket_count] with padding */
    ls_dtype *dtype_of; /* [bucket_count] */
} bucket_plan;

/* Lays the parameters out: along `order`, one open bucket a dtype, which is closed when its payload reaches the cap; a
 * parameter larger than the cap has a bucket of its own. The first bucket of a dtype has the first cap. Buckets are
 * numbered by the place of their last parameter in `order`: the order in which they become ready. (PyTorch's rule, but
 * for parameters above the cap.) Errors: LS_ERR_MEMORY. */
ls_status bucket_plan_init(bucket_plan *plan, const bucket_request *request);

/* Frees a plan; a zeroed one is harmless. */
void bucket_plan_clear(bucket_plan *plan);

/* Whether both lay out every parameter alike. */
bool bucket_plan_equal(const bucket_plan *a, const bucket_plan *b);

#endif
