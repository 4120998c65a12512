/* sampler.c: the shuffle and the deal. */
#include "data/sampler.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>

ls_status data_sampler_create(data_sampler *sampler, int64_t count, const ls_loader_options *options) {
    *sampler = (data_sampler){.count = count, .options = *options};
    ls_loader_options *o = &sampler->options;
    /* A program that knows of no ranks has one. */
    if (o->world_size == 0) o->world_size = 1;
    if (o->batch < 1)
        return ls_fail(LS_ERR_ARGUMENT, "loader: batch is %" PRId64 ": expected 1 or more samples", o->batch);
    if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
        return ls_fail(LS_ERR_ARGUMENT, "loader: rank is %d of %d: expected a rank from 0 to the world size less one",
                       o->rank, o->world_size);
    if (o->drop_last && o->uneven)
        return ls_fail(LS_ERR_ARGUMENT, "loader: drop_last and uneven exclude each other; choose one");

    /* What each rank gets for sure, and what is left over for the first `rest` of them. */
    const int64_t whole = count / o->world_size, rest = count % o->world_size;
    sampler->samples = whole;
    /* Only whole batches on every rank: dropping per rank drops alike, since all ranks have `whole`. */
    if (o->drop_last)
        sampler->samples -= whole % o->batch;
    else if (o->uneven)
        sampler->samples += o->rank < rest;
    else
        sampler->samples += rest > 0;
    sampler->batches = sampler->samples / o->batch + (sampler->samples % o->batch > 0);

    /* Eight bytes a sample, allocated once: an epoch shuffles in place. */
    sampler->order = ls_alloc_array((size_t)count, sizeof *sampler->order);
    if (!sampler->order) return LS_ERR_MEMORY;
    return LS_OK;
}

void data_sampler_free(data_sampler *sampler) {
    ls_free(sampler->order);
    *sampler = (data_sampler){0};
}

/* Splitmix64 (Steele, Lea and Flood, 2014): a counter through a mixing function. */
static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t next_random(uint64_t *state) {
    return mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* An unbiased draw from [0, bound): what lies past the last whole multiple of the bound is drawn again. */
static uint64_t draw_below(uint64_t *state, uint64_t bound) {
    const uint64_t surplus = -bound % bound; /* 2^64 mod bound */
    uint64_t value = next_random(state);
    while (value < surplus) value = next_random(state);
    return value % bound;
}

void data_sampler_set_epoch(data_sampler *sampler, int64_t epoch) {
    int64_t *order = sampler->order;
    for (int64_t i = 0; i < sampler->count; i++) order[i] = i;
    if (sampler->options.without_shuffle) return;

    /* Mixed twice, so that neighbouring seeds and epochs share nothing. Then Fisher and Yates, from the end. */
    uint64_t state = mix(mix(sampler->options.seed + UINT64_C(0x9e3779b97f4a7c15)) + (uint64_t)epoch);
    for (int64_t i = sampler->count - 1; i > 0; i--) {
        const int64_t j = (int64_t)draw_below(&state, (uint64_t)i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}

int64_t data_sampler_batch_samples(const data_sampler *sampler, int64_t batch) {
    const int64_t left = sampler->samples - batch * sampler->options.batch;
    /* The last batch of an epoch may be short, on all ranks alike unless `uneven`. */
    return left < sampler->options.batch ? left : sampler->options.batch;
}

int64_t data_sampler_place(const data_sampler *sampler, int64_t i) {
    /* Dealt like cards, so that ranks together go through the global order batch by batch. */
    return i * sampler->options.world_size + sampler->options.rank;
}

int64_t data_sampler_sample(const data_sampler *sampler, int64_t place) {
    return sampler->order[place % sampler->count];
}
