/* loader.c: batches, read ahead on a thread.
 *
 *   reader thread    waits for a free slot, reads the samples of the next batch into its memory, advances `filled`
 *   consumer         gives the slot of the previous call back (`freed`), waits for the next one, hands out its tensors
 *
 * Slots are used in turn, so each side knows by its own count which one is next, and two words are all they share. The
 * reader knows of no end: it goes on into the next epoch; the consumer counts batches and reports the ends.
 *
 * Everything is allocated at creation: a slot has memory for a full batch and tensors over it, one set for full batches
 * and one for a shorter last batch. The memory is freed when the last tensor lets go of it, which may be after the
 * loader. */
#include "data/dataset.h"
#include "data/sampler.h"

#include "autograd/samples.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/wait.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <string.h>

/* One is with the consumer, one is ready, one is being read. */
#define SLOTS 3

/* How long one batch may take to read before the consumer gives up. */
#define READ_LIMIT_MS INT64_C(1800000)

typedef struct slot {
    uint8_t *x, *y;   /* sample after sample, x as the tensor stores it */
    int64_t *index;   /* each sample's place in the global order */
    ls_batch full;    /* tensors over the memory: of a full batch */
    ls_batch last;    /* and of the epoch's last, when that is shorter; else the same as `full` is used */
    bool is_last;     /* which of the two the reader filled */
    ls_error failure; /* LS_OK, or why this batch could not be read */
} slot;

/* What slots point into; counted, since tensors may outlive the loader. */
typedef struct pool {
    _Atomic int holders;
    uint8_t *memory;
} pool;

/*   filled, freed      counters of batches, cut to 32 bits: written by one side (release, after the slot), read by the
 *                      other (acquire, before the slot)
 *   is_closing         written by the consumer, read by the reader
 *   sampler's order, scratch, reader_...   the reader's while its thread runs; everything else is the consumer's     */
struct ls_loader {
    ls_dataset dataset;
    data_sampler sampler;
    size_t x_bytes, y_bytes; /* of one sample */
    pool *pool;
    slot slots[SLOTS];
    uint8_t *scratch; /* a sample of several channels in logical order; NULL where storage has that order too */

    ls_word filled, freed;
    atomic_bool is_closing;
    ls_thread thread;
    int64_t reader_epoch, reader_batch;

    int64_t epoch, batch; /* the consumer's position */
    uint64_t handed_out;  /* batches taken since the thread started */
};

/* ---- The reader's thread ---- */

/* Relaxed: who closes advances `freed` afterwards, which the reader acquires before it may wait again. */
static bool is_closing(const ls_loader *loader) {
    return atomic_load_explicit(&loader->is_closing, memory_order_relaxed);
}

/* From [c][pixels] to [pixels][c]. */
static void interleave(const uint8_t *from, uint8_t *to, int64_t channels, int64_t pixels, size_t element_bytes) {
    for (int64_t pixel = 0; pixel < pixels; pixel++)
        for (int64_t c = 0; c < channels; c++, to += element_bytes)
            memcpy(to, from + (size_t)(c * pixels + pixel) * element_bytes, element_bytes);
}

static ls_status read_sample(ls_loader *loader, int64_t sample, uint8_t *x, uint8_t *y) {
    const ls_dataset *set = &loader->dataset;
    uint8_t *logical = loader->scratch ? loader->scratch : x;
    /* On the reader's thread: the sentence that it leaves is carried over to the consumer with the slot. */
    const ls_status status = set->read(set->context, sample, logical, y);
    if (status != LS_OK) {
        /* A data set of the user's has no sentence to leave: then the status is all there is to say. */
        const ls_status error = status < 0 ? status : LS_ERR_IO;
        const char *reason = *ls_last_error() ? ls_last_error() : ls_status_name(status);
        return ls_fail(error, "loader: sample %" PRId64 " of the data set cannot be read: %s", sample, reason);
    }
    if (loader->scratch)
        interleave(logical, x, set->x_dims[0], set->x_dims[1] * set->x_dims[2], ls_dtype_size(set->x_dtype));
    return LS_OK;
}

static void read_batch(ls_loader *loader, slot *into, int64_t batch) {
    /* The number, not the content, decides which of the two sets of tensors is handed out. */
    const int64_t count = data_sampler_batch_samples(&loader->sampler, batch);
    const int64_t first = batch * loader->sampler.options.batch;
    into->is_last = count < loader->sampler.options.batch;
    into->failure.status = LS_OK;
    for (int64_t i = 0; i < count && !is_closing(loader); i++) {
        const int64_t place = data_sampler_place(&loader->sampler, first + i);
        const int64_t sample = data_sampler_sample(&loader->sampler, place);
        into->index[i] = place;
        const ls_status status =
            read_sample(loader, sample, into->x + (size_t)i * loader->x_bytes, into->y + (size_t)i * loader->y_bytes);
        if (status == LS_OK) continue;
        ls_error_capture(&into->failure, status);
        /* Leave no sentence behind that the next failure could take for its own. */
        ls_error_raise(&(ls_error){.status = status});
        return;
    }
}

static void read_ahead(void *argument) {
    ls_loader *loader = argument;
    int64_t epoch = loader->reader_epoch, batch = loader->reader_batch;
    data_sampler_set_epoch(&loader->sampler, epoch);
    for (uint64_t count = 0;; count++, batch++) {
        if (batch == loader->sampler.batches) {
            batch = 0;
            data_sampler_set_epoch(&loader->sampler, ++epoch);
        }
        /* The consumer may take its time: it wakes this thread when it frees a slot or closes. */
        uint32_t freed;
        while (freed = atomic_load_explicit(&loader->freed, memory_order_acquire), (uint32_t)count - freed == SLOTS)
            ls_word_wait(&loader->freed, freed, LS_DEADLINE_NEVER);
        if (is_closing(loader)) return;

        const int64_t start_ns = ls_now_ns();
        read_batch(loader, &loader->slots[count % SLOTS], batch);
        trace_span("data", "read batch", start_ns, ls_now_ns());
        ls_word_advance(&loader->filled);
    }
}

static ls_status start_reader(ls_loader *loader) {
    if (loader->thread.is_started || loader->sampler.batches == 0) return LS_OK;
    atomic_store_explicit(&loader->filled, 0, memory_order_relaxed);
    atomic_store_explicit(&loader->freed, 0, memory_order_relaxed);
    atomic_store_explicit(&loader->is_closing, false, memory_order_relaxed);
    loader->handed_out = 0;
    /* Counted on by the reader for itself: it is ahead of the consumer. */
    loader->reader_epoch = loader->epoch;
    loader->reader_batch = loader->batch;
    return ls_thread_start(&loader->thread, "loader", read_ahead, loader);
}

static void stop_reader(ls_loader *loader) {
    if (!loader->thread.is_started) return;
    /* Seen between two samples: closing waits for one read, not for a batch. */
    atomic_store_explicit(&loader->is_closing, true, memory_order_relaxed);
    ls_word_advance(&loader->freed);
    ls_thread_join(&loader->thread);
}

/* ---- Memory ---- */

static void release_pool(void *context) {
    pool *self = context;
    if (atomic_fetch_sub_explicit(&self->holders, 1, memory_order_acq_rel) > 1) return;
    ls_free(self->memory);
    ls_free(self);
}

/* A tensor of `count` samples over memory of the pool. */
static ls_status make_tensor(ls_loader *loader, ls_tensor **tensor, ls_dtype dtype, int64_t count, int ndim,
                             const int64_t *dims, void *data) {
    int64_t all_dims[LS_MAX_DIMS] = {count};
    for (int i = 0; i < ndim; i++) all_dims[i + 1] = dims[i];
    const ls_layout layout = ndim == 3 ? LS_LAYOUT_NHWC : LS_LAYOUT_PLAIN;
    /* For the tensor, before it exists: release_pool is its way to let go. */
    atomic_fetch_add_explicit(&loader->pool->holders, 1, memory_order_relaxed);
    const ls_status status =
        ls_tensor_borrow(tensor, dtype, ndim + 1, all_dims, layout, data, release_pool, loader->pool);
    if (status) release_pool(loader->pool);
    return status;
}

static ls_status make_batch(ls_loader *loader, const slot *over, ls_batch *batch, int64_t count) {
    const ls_dataset *set = &loader->dataset;
    batch->count = count;
    LS_TRY(make_tensor(loader, &batch->x, set->x_dtype, count, set->x_ndim, set->x_dims, over->x));
    LS_TRY(make_tensor(loader, &batch->y, set->y_dtype, count, set->y_ndim, set->y_dims, over->y));
    return make_tensor(loader, &batch->index, LS_I64, count, 0, NULL, over->index);
}

static void close_batch(ls_batch *batch) {
    ls_tensor_close(&batch->x);
    ls_tensor_close(&batch->y);
    ls_tensor_close(&batch->index);
}

/* Adds room for `count` elements to `bytes`, each array on a line of its own; false past what a size can hold. */
static bool add_room(size_t *bytes, int64_t count, size_t element_bytes) {
    size_t more = 0;
    return !__builtin_mul_overflow((size_t)count, element_bytes, &more) &&
           !__builtin_add_overflow(more, (size_t)LS_ALIGNMENT - 1, &more) &&
           !__builtin_add_overflow(*bytes, more / LS_ALIGNMENT * LS_ALIGNMENT, bytes);
}

static ls_status make_slots(ls_loader *loader) {
    const int64_t batch = loader->sampler.options.batch;
    size_t y_at = 0, index_at = 0, slot_bytes = 0, all_bytes = 0;
    bool is_possible = add_room(&y_at, batch, loader->x_bytes);
    index_at = y_at;
    is_possible = is_possible && add_room(&index_at, batch, loader->y_bytes);
    slot_bytes = index_at;
    is_possible = is_possible && add_room(&slot_bytes, batch, sizeof(int64_t)) &&
                  !__builtin_mul_overflow(slot_bytes, (size_t)SLOTS, &all_bytes);
    if (!is_possible)
        return ls_fail(LS_ERR_MEMORY, "loader: batches of %" PRId64 " samples are past what a size can hold", batch);

    loader->pool = ls_alloc(sizeof *loader->pool);
    if (!loader->pool) return LS_ERR_MEMORY;
    loader->pool->holders = 1;
    loader->pool->memory = ls_alloc_raw(all_bytes);
    if (!loader->pool->memory) return LS_ERR_MEMORY;

    for (int i = 0; i < SLOTS; i++) {
        slot *each = &loader->slots[i];
        /* One block for all slots, so that one count of holders decides when it goes. */
        each->x = loader->pool->memory + (size_t)i * slot_bytes;
        each->y = each->x + y_at;
        each->index = (int64_t *)(void *)(each->x + index_at);
        LS_TRY(make_batch(loader, each, &each->full, batch));
        const int64_t rest = loader->sampler.samples % batch;
        if (rest) LS_TRY(make_batch(loader, each, &each->last, rest));
    }
    /* Storage is nhwc: with one channel that is the logical order. */
    const ls_dataset *set = &loader->dataset;
    if (set->x_ndim != 3 || set->x_dims[0] == 1) return LS_OK;
    loader->scratch = ls_alloc_raw(loader->x_bytes);
    return loader->scratch ? LS_OK : LS_ERR_MEMORY;
}

/* ---- The consumer ---- */

ls_status ls_loader_create(ls_loader **loader, const ls_dataset *dataset, const ls_loader_options *options) {
    if (!loader || !dataset || !options || !dataset->read)
        return ls_fail(LS_ERR_ARGUMENT,
                       "ls_loader_create: the handle, the data set, its read or the options are NULL; give all");
    *loader = NULL;
    ls_loader *self = ls_alloc(sizeof *self);
    if (!self) return LS_ERR_MEMORY;
    self->dataset = *dataset;
    ls_status status = data_sample_bytes(dataset, &self->x_bytes, &self->y_bytes);
    if (status) goto out;
    if ((status = data_sampler_create(&self->sampler, dataset->count, options))) goto out;
    if ((status = make_slots(self))) goto out;
    if ((status = start_reader(self))) goto out;
    *loader = self;
    return LS_OK;
out:
    ls_loader_close(&self);
    return status;
}

void ls_loader_close(ls_loader **loader) {
    if (!loader || !*loader) return;
    ls_loader *self = *loader;
    *loader = NULL;
    stop_reader(self);
    autograd_samples_set(NULL, 0);
    for (int i = 0; i < SLOTS; i++) {
        close_batch(&self->slots[i].full);
        close_batch(&self->slots[i].last);
    }
    if (self->pool) release_pool(self->pool);
    ls_free(self->scratch);
    data_sampler_free(&self->sampler);
    ls_free(self);
}

/* Gives the slot of the previous call back to the reader and forgets the epoch's samples. */
static void give_back(ls_loader *loader) {
    autograd_samples_set(NULL, 0);
    const uint32_t freed = atomic_load_explicit(&loader->freed, memory_order_relaxed);
    /* Unless it was given back already: a call that failed is repeated. */
    if (freed != (uint32_t)loader->handed_out) ls_word_advance(&loader->freed);
}

/* Waits until the reader has filled the next slot. */
static ls_status wait_for_batch(ls_loader *loader) {
    const int64_t start_ns = ls_now_ns(), deadline_ns = start_ns + READ_LIMIT_MS * LS_NS_PER_MS;
    uint32_t filled;
    bool has_waited = false, in_time = true;
    while (filled = atomic_load_explicit(&loader->filled, memory_order_acquire),
           filled == (uint32_t)loader->handed_out) {
        if (!in_time)
            return ls_fail(LS_ERR_TIMEOUT,
                           "loader: batch %" PRId64 " of epoch %" PRId64 " has not been read after %" PRId64
                           " minutes; look at what the data set's read waits for",
                           loader->batch, loader->epoch, READ_LIMIT_MS / 60000);
        has_waited = true;
        in_time = ls_word_wait(&loader->filled, filled, deadline_ns);
    }
    if (has_waited) trace_span("wait", "data", start_ns, ls_now_ns());
    return LS_OK;
}

ls_status ls_loader_next(ls_loader *loader, ls_batch *batch) {
    *batch = (ls_batch){0};
    LS_TRY(start_reader(loader)); /* a no-op unless setting the position failed to */
    give_back(loader);
    if (loader->batch == loader->sampler.batches) {
        loader->batch = 0;
        loader->epoch++;
        return LS_END;
    }
    LS_TRY(wait_for_batch(loader));

    const slot *from = &loader->slots[loader->handed_out % SLOTS];
    loader->handed_out++;
    loader->batch++;
    if (ls_error_raise(&from->failure) != LS_OK) return LS_OK;
    *batch = from->is_last ? from->last : from->full;
    /* The reader wrote behind the tensors' backs: this tells them that their content is new. */
    ls_tensor_data_mut(batch->x);
    ls_tensor_data_mut(batch->y);
    ls_tensor_data_mut(batch->index);
    autograd_samples_set(from->index, batch->count);
    return LS_OK;
}

int64_t ls_loader_samples(const ls_loader *loader) {
    return loader->sampler.samples;
}

int64_t ls_loader_batches(const ls_loader *loader) {
    return loader->sampler.batches;
}

void ls_loader_position(const ls_loader *loader, int64_t *epoch, int64_t *batch) {
    if (epoch) *epoch = loader->epoch;
    if (batch) *batch = loader->batch;
}

ls_status ls_loader_set_position(ls_loader *loader, int64_t epoch, int64_t batch) {
    if (epoch < 0 || batch < 0 || batch > loader->sampler.batches)
        return ls_fail(LS_ERR_ARGUMENT,
                       "ls_loader_set_position: epoch %" PRId64 ", batch %" PRId64
                       ": expected an epoch of 0 or more and a batch "
                       "from 0 to %" PRId64 "; was it saved with another batch size or world size?",
                       epoch, batch, loader->sampler.batches);
    stop_reader(loader);
    autograd_samples_set(NULL, 0);
    loader->epoch = epoch;
    loader->batch = batch;
    return start_reader(loader);
}
