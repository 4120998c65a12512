/* sampler.h: which samples a rank reads, and in which order. Pure: no thread, clock or I/O.
 *
 * An epoch has a global order: a permutation of the samples, the same on every rank. Rank r of W takes places r, r + W,
 * r + 2W, ... of it. So the ranks' k-th batches of B samples are together the places [k W B, (k + 1) W B): exactly what
 * one process with batches of W B takes, and gradients averaged over ranks are its gradients. */
#ifndef LS_DATA_SAMPLER_H
#define LS_DATA_SAMPLER_H

#include <lockstep/data.h>

typedef struct data_sampler {
    int64_t *order; /* [count], owned: the epoch's permutation */
    int64_t count;
    int64_t samples; /* of this rank an epoch */
    int64_t batches; /* of this rank an epoch */
    ls_loader_options options;
} data_sampler;

/* Errors: LS_ERR_ARGUMENT, LS_ERR_MEMORY. */
ls_status data_sampler_create(data_sampler *sampler, int64_t count, const ls_loader_options *options);
void data_sampler_free(data_sampler *sampler);

/* Makes the order of `epoch`: depends on the seed, the epoch and the count alone. */
void data_sampler_set_epoch(data_sampler *sampler, int64_t epoch);

/* Samples of batch `batch` of this rank: the batch size, less in the last batch. */
int64_t data_sampler_batch_samples(const data_sampler *sampler, int64_t batch);

/* The place in the epoch's global order of this rank's sample `i`, counted from the epoch's start. */
int64_t data_sampler_place(const data_sampler *sampler, int64_t i);

/* The sample at a place; places past the count repeat the order from its start. */
int64_t data_sampler_sample(const data_sampler *sampler, int64_t place);

#endif
