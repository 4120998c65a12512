/* lockstep/data.h: data sets, the distributed sampler, the loader.
 *
 * A data set is a count and a way to read sample i. The sampler deals the samples to the ranks; the loader reads ahead
 * on a thread of its own and hands out batches.                                                                      */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of samples (x, y). The struct is filled in by whoever makes it and copied by who uses it. */
typedef struct ls_dataset {
    int64_t count;
    ls_dtype x_dtype, y_dtype;
    int x_ndim, y_ndim; /* of one sample, without the batch; a label has y_ndim 0 */
    int64_t x_dims[LS_MAX_DIMS - 1], y_dims[LS_MAX_DIMS - 1];

    /* Writes sample `index` into x and y, elements in logical order. Called from the loader's thread, one call at a
     * time; a set that two loaders share must allow two. */
    ls_status (*read)(void *context, int64_t index, void *x, void *y);
    void (*close)(void *context); /* may be NULL */
    void *context;
} ls_dataset;

/* Frees what the data set holds and zeroes it; NULL and a zeroed one are harmless. */
LS_API void ls_dataset_close(ls_dataset *dataset);

/* A data set over the caller's arrays, which outlive it: x [count][x_dims], y [count][y_dims]. The shape fields of
 * `dataset` are filled in by the caller, the rest here. Errors: LS_ERR_ARGUMENT names the field, LS_ERR_MEMORY. */
LS_API ls_status ls_dataset_from_arrays(ls_dataset *dataset, const void *x, const void *y);

/* Images and labels of an IDX pair of files (MNIST's format), gzipped or not: x f32 [1, h, w] scaled to [0, 1] and then
 * (x - mean) / std (std 0: neither), y i64 scalar.
 * Errors: LS_ERR_IO, LS_ERR_FORMAT (bad magic, truncated, damaged gzip, counts that differ, trailing bytes),
 * LS_ERR_MEMORY. */
LS_API ls_status ls_dataset_open_idx(ls_dataset *dataset, const char *images_path, const char *labels_path, double mean,
                                     double std);

/* Fashion-MNIST, 60,000 images or the 10,000 of the test set, normalised by the training set's mean and deviation: from
 * `directory` when given, else from LOCKSTEP_DATA or where Debian's package dataset-fashion-mnist puts it.
 * Errors: as above; a missing one (LS_ERR_IO) says where it looked and which package brings it. */
LS_API ls_status ls_dataset_open_fashion_mnist(ls_dataset *dataset, const char *directory, bool is_test);

typedef struct ls_loader ls_loader;

typedef struct ls_loader_options {
    int64_t batch;        /* samples of this rank's batch; must be positive */
    int rank, world_size; /* world_size 0: a world of one */
    uint64_t seed;
    bool without_shuffle; /* deal in index order, for evaluation */
    bool drop_last; /* drop the samples that do not fill all ranks (default: repeat some, so that all have as many)
                             and the batch that is not full */
    bool uneven;    /* neither repeat nor drop: ranks may differ by one sample and one batch; for evaluation */
} ls_loader_options;

/* One batch. Tensors are the loader's and hold until the next call on it. x is nhwc where a sample has 3 dims. */
typedef struct ls_batch {
    ls_tensor *x;     /* [n, x_dims] */
    ls_tensor *y;     /* [n, y_dims] */
    ls_tensor *index; /* i64 [n]: each sample's place in the epoch's global order, which dropout draws depend on */
    int64_t count;    /* n */
} ls_batch;

/* Begins to read at once. `dataset` is borrowed and must outlive the loader. Used by one thread at a time, that which
 * trains. Closing waits for the sample that is being read, and for no other.
 * Errors: LS_ERR_ARGUMENT names the option, LS_ERR_MEMORY, LS_ERR_IO (no thread). */
LS_API ls_status ls_loader_create(ls_loader **loader, const ls_dataset *dataset, const ls_loader_options *options);
LS_API void ls_loader_close(ls_loader **loader);

/* The next batch; LS_END after the epoch's last, on every rank alike unless `uneven`, after which the next call begins
 * the next epoch with a new shuffle. A sample that cannot be read yields LS_OK with NULL tensors (count 0) and the
 * error set: it travels through ls_backward to all ranks. Errors: LS_ERR_TIMEOUT when a batch is not read within half
 * an hour. */
LS_API ls_status ls_loader_next(ls_loader *loader, ls_batch *batch);

/* Samples and batches of this rank an epoch. */
LS_API int64_t ls_loader_samples(const ls_loader *loader);
LS_API int64_t ls_loader_batches(const ls_loader *loader);

/* Where the loader stands: epoch and batches already handed out (either may be NULL); setting it continues from there,
 * for resuming. Errors: LS_ERR_ARGUMENT for a position that the epoch does not have, LS_ERR_IO (no thread: the next
 * call tries again). */
LS_API void ls_loader_position(const ls_loader *loader, int64_t *epoch, int64_t *batch);
LS_API ls_status ls_loader_set_position(ls_loader *loader, int64_t epoch, int64_t batch);

#ifdef __cplusplus
}
#endif
#endif
