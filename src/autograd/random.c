/* random.c: seed, step number, samples, and the streams made of them. */
#include "autograd/random.h"

#include "autograd/philox.h"
#include "autograd/samples.h"
#include "autograd/state.h"
#include "base/context.h"

/* The last counter word keeps the streams of one seed apart. */
enum { STREAM_INITIALISATION = 1, STREAM_DROPOUT = 2 };

void ls_seed_set(uint64_t seed) {
    autograd_state *state = autograd_state_here();
    state->seed = seed;
    /* The same seed again yields the same net again. */
    state->draws = 0;
}

uint64_t ls_seed(void) {
    return autograd_state_here()->seed;
}

uint64_t ls_step_number(void) {
    return autograd_state_here()->step_number;
}

void ls_step_number_set(uint64_t number) {
    autograd_state_here()->step_number = number;
}

/* Not copied: the loader keeps its batch until its next call. */
void autograd_samples_set(const int64_t *indices, int64_t count) {
    autograd_state *state = autograd_state_here();
    state->samples = indices;
    state->sample_count = indices ? count : 0;
}

/* Ranks without a batch must not draw alike. */
int64_t random_sample_index(int64_t position, int64_t count) {
    const autograd_state *state = autograd_state_here();
    if (state->samples && state->sample_count == count) return state->samples[position];
    const int rank = ls_context_here()->rank;
    /* Far apart, so that no rank's batch reaches into the next one's numbers. */
    return position + (int64_t)(rank > 0 ? rank : 0) * ((int64_t)1 << 32);
}

/* Words of the counter: a number of 64 bits, a layer, the stream. */
static philox_block draw(uint64_t number, uint32_t layer, uint32_t stream) {
    const philox_block counter = {{(uint32_t)number, (uint32_t)(number >> 32), layer, stream}};
    return philox(counter, autograd_state_here()->seed);
}

double random_next_uniform(void) {
    autograd_state *state = autograd_state_here();
    const philox_block block = draw(state->draws++, 0, STREAM_INITIALISATION);
    const uint64_t bits = (uint64_t)block.word[1] << 32 | block.word[0];
    /* 53 bits, all that a double in [0, 1) can tell apart. */
    return (double)(bits >> 11) * 0x1p-53;
}

/* A key by Philox itself: seed, step and layer are more bits than one key and counter have room for. */
uint64_t random_dropout_key(uint32_t layer) {
    const philox_block block = draw(autograd_state_here()->step_number, layer, STREAM_DROPOUT);
    return (uint64_t)block.word[1] << 32 | block.word[0];
}
