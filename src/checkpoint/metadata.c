/* metadata.c: integers as decimal digits; the learning rate as JSON spells a double, in 17 digits, which name each
 * double exactly. jansson writes and reads it, so that the program's locale (a decimal comma) does not matter. */
#include "checkpoint/metadata.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPDATE_COUNTS "update_counts"
#define COUNT_BYTES 21 /* a space and 64 bits in digits */

/* Epochs, batches and updates are counted on from what a file says: far from where the counters would overflow. */
#define LARGEST_COUNT (INT64_MAX / 2)

/* ---- Writing. Each step is false when jansson was refused memory; later steps are then left out. ---- */

static bool set_text(json_t *metadata, const char *key, const char *text) {
    return json_object_set_new(metadata, key, json_string(text)) == 0;
}

static bool set_integer(json_t *metadata, const char *key, uint64_t value) {
    char text[24];
    /* A text, since JSON's numbers are doubles to many readers: a step past 2^53 would be rounded. */
    snprintf(text, sizeof text, "%" PRIu64, value);
    return set_text(metadata, key, text);
}

static bool set_double(json_t *metadata, const char *key, double value) {
    json_t *number = json_real(value);
    char *text = json_dumps(number, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    const bool is_set = text && set_text(metadata, key, text);
    free(text); /* jansson's own memory */
    json_decref(number);
    return is_set;
}

/* "3 3 0 3": the counts in the order of the module's parameters. */
static bool set_update_counts(json_t *metadata, const ls_optim *optim) {
    const int count = ls_optim_parameter_count(optim);
    int64_t *counts = ls_alloc_array((size_t)count, sizeof *counts);
    char *text = ls_alloc((size_t)count * COUNT_BYTES + 1);
    bool is_set = false;
    if (counts && text) {
        ls_optim_update_counts(optim, counts);
        size_t used = 0;
        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(text + used, COUNT_BYTES + 1, i ? " %" PRId64 : "%" PRId64, counts[i]);
        is_set = set_text(metadata, UPDATE_COUNTS, text);
    }
    ls_free(text);
    ls_free(counts);
    return is_set;
}

static bool set_state(json_t *metadata, const ls_checkpoint_state *state) {
    return set_integer(metadata, "step", state->step) && set_integer(metadata, "epoch", (uint64_t)state->epoch) &&
           set_integer(metadata, "batch", (uint64_t)state->batch) && set_integer(metadata, "seed", state->seed) &&
           set_double(metadata, "lr", state->lr);
}

ls_status metadata_write(json_t **metadata, const ls_optim *optim, const ls_checkpoint_state *state) {
    *metadata = NULL;
    if (state && !isfinite(state->lr)) return ls_fail(LS_ERR_ARGUMENT, "the state's lr is not a finite number");
    json_t *made = json_object();
    if (set_text(made, "lockstep", ls_version()) && (!state || set_state(made, state)) &&
        (!optim || set_update_counts(made, optim))) {
        *metadata = made;
        return LS_OK;
    }
    json_decref(made);
    return ls_fail(LS_ERR_MEMORY, "cannot make the metadata: memory was refused");
}

/* ---- Reading. strtoull would take signs, spaces and wrap: a hostile file gets digits alone. ---- */

/* Reads decimal digits up to `maximum` from `*text` and moves it past them; false when there are none or too many. */
static bool read_digits(const char **text, uint64_t maximum, uint64_t *value) {
    const char *c = *text;
    *value = 0;
    for (; *c >= '0' && *c <= '9'; c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        /* Before the multiplication, which could wrap. */
        if (*value > (maximum - digit) / 10) return false;
        *value = *value * 10 + digit;
    }
    const bool has_some = c != *text;
    *text = c;
    return has_some;
}

static ls_status read_integer(const safetensors *file, const char *key, uint64_t maximum, uint64_t *value) {
    const char *text = safetensors_text(file, key);
    if (!text)
        return ls_fail(LS_ERR_MISMATCH,
                       "there is no \"%s\" in its __metadata__: it holds weights, no training state to go on from",
                       key);
    const char *end = text;
    if (!read_digits(&end, maximum, value) || *end)
        return ls_fail(LS_ERR_FORMAT, "__metadata__: \"%s\" is \"%.64s\": expected a whole number up to %" PRIu64, key,
                       text, maximum);
    return LS_OK;
}

ls_status metadata_read_state(const safetensors *file, ls_checkpoint_state *state) {
    uint64_t epoch = 0, batch = 0;
    LS_TRY(read_integer(file, "step", UINT64_MAX, &state->step));
    LS_TRY(read_integer(file, "epoch", LARGEST_COUNT, &epoch));
    LS_TRY(read_integer(file, "batch", LARGEST_COUNT, &batch));
    LS_TRY(read_integer(file, "seed", UINT64_MAX, &state->seed));
    state->epoch = (int64_t)epoch;
    state->batch = (int64_t)batch;

    /* An integer is refused: what wrote it was not this code, which always writes a point or an exponent. */
    const char *text = safetensors_text(file, "lr");
    json_t *number = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    const bool is_number = json_is_real(number);
    state->lr = json_real_value(number);
    json_decref(number);
    /* Any real number will do: whether it makes sense as a rate is the optimizer's to say. */
    return is_number ? LS_OK : ls_fail(LS_ERR_FORMAT, "__metadata__: \"lr\" is missing or no real number");
}

ls_status metadata_read_update_counts(const safetensors *file, int64_t *counts, int count) {
    const char *text = safetensors_text(file, UPDATE_COUNTS);
    if (!text)
        return ls_fail(LS_ERR_MISMATCH,
                       "there is no \"" UPDATE_COUNTS "\" in its __metadata__: it holds no optimizer's state");
    /* One space between numbers, nothing else: what differs was not written by this code. */
    for (int i = 0; i < count; i++) {
        uint64_t value = 0;
        if ((i > 0 && *text++ != ' ') || !read_digits(&text, LARGEST_COUNT, &value))
            return ls_fail(LS_ERR_MISMATCH,
                           "__metadata__: \"" UPDATE_COUNTS "\" holds %d of %d numbers, one a parameter", i, count);
        counts[i] = (int64_t)value;
    }
    if (*text)
        return ls_fail(LS_ERR_MISMATCH,
                       "__metadata__: \"" UPDATE_COUNTS "\" holds more than %d numbers, one a parameter", count);
    return LS_OK;
}
