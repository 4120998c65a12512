/* The loader as a training loop sees it: order, ends, resuming, failures, memory. */
#include "support/faults.h"
#include "support/test.h"

#include "autograd/random.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/wait.h"

#include <lockstep/autograd.h>
#include <lockstep/data.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Sample i is (i, 10 i); reading number `broken` fails. */
typedef struct numbers {
    int64_t broken;
    ls_status failure;
    _Atomic int64_t reads;
    int64_t wait_ms;
} numbers;

static ls_status read_number(void *context, int64_t index, void *x, void *y) {
    numbers *set = context;
    atomic_fetch_add(&set->reads, 1);
    if (set->wait_ms) ls_sleep_until(ls_deadline_after_ms(set->wait_ms));
    if (index == set->broken) return set->failure;
    *(float *)x = (float)index;
    *(int64_t *)y = 10 * index;
    return LS_OK;
}

static ls_dataset make_set(numbers *context, int64_t count) {
    return (ls_dataset){.count = count,
                        .x_dtype = LS_F32,
                        .y_dtype = LS_I64,
                        .x_ndim = 1,
                        .x_dims = {1},
                        .read = read_number,
                        .context = context};
}

static ls_loader *make(const ls_dataset *set, ls_loader_options options) {
    ls_loader *loader = NULL;
    assert_int_equal(ls_loader_create(&loader, set, &options), LS_OK);
    assert_non_null(loader);
    return loader;
}

static int64_t x_at(const ls_batch *batch, int64_t i) {
    return (int64_t)((const float *)ls_tensor_data(batch->x))[i];
}

static int64_t place_at(const ls_batch *batch, int64_t i) {
    return ((const int64_t *)ls_tensor_data(batch->index))[i];
}

static void batches_come_in_order_and_the_epoch_ends(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 7);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 3, .without_shuffle = true});
    assert_int_equal(ls_loader_samples(loader), 7);
    assert_int_equal(ls_loader_batches(loader), 3);
    ls_batch batch;
    for (int epoch = 0; epoch < 3; epoch++) {
        int64_t next = 0;
        for (int k = 0; k < 3; k++) {
            assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
            assert_int_equal(batch.count, k < 2 ? 3 : 1);
            assert_int_equal(ls_tensor_ndim(batch.x), 2);
            assert_int_equal(ls_tensor_dim(batch.x, 0), batch.count);
            assert_int_equal(ls_tensor_ndim(batch.y), 1);
            assert_int_equal(ls_tensor_dim(batch.y, 0), batch.count);
            assert_int_equal(ls_tensor_dim(batch.index, 0), batch.count);
            for (int64_t i = 0; i < batch.count; i++, next++) {
                assert_int_equal(x_at(&batch, i), next);
                assert_int_equal(((const int64_t *)ls_tensor_data(batch.y))[i], 10 * next);
                assert_int_equal(place_at(&batch, i), next);
            }
        }
        assert_int_equal(ls_loader_next(loader, &batch), LS_END);
        assert_null(batch.x);
        assert_int_equal(batch.count, 0);
    }
    ls_loader_close(&loader);
    assert_null(loader);
    ls_loader_close(&loader);
}

/* The tensors are used again and again: a cache keyed by the version must not take the old content for the new. */
static void each_batch_is_a_new_version_of_its_tensors(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 40);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 1});
    ls_batch batch;
    const ls_tensor *tensors[40][3];
    uint64_t versions[40][3];
    bool was_used_again = false;
    for (int k = 0; k < 40; k++) {
        assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
        const ls_tensor *const all[] = {batch.x, batch.y, batch.index};
        for (int i = 0; i < 3; i++) {
            tensors[k][i] = all[i];
            versions[k][i] = ls_tensor_version(all[i]);
            for (int before = 0; before < k; before++) {
                if (tensors[before][i] != tensors[k][i]) continue;
                was_used_again = true;
                assert_true(versions[before][i] != versions[k][i]);
            }
        }
    }
    assert_true(was_used_again);
    ls_loader_close(&loader);
}

static void two_epochs_differ_without_being_told(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 100);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 100, .seed = 4});
    int64_t first[100];
    ls_batch batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    for (int i = 0; i < 100; i++) first[i] = x_at(&batch, i);
    assert_int_equal(ls_loader_next(loader, &batch), LS_END);
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    int same = 0, seen[100] = {0};
    for (int i = 0; i < 100; i++) {
        same += first[i] == x_at(&batch, i);
        seen[x_at(&batch, i)]++;
    }
    assert_true(same < 20);
    for (int i = 0; i < 100; i++) assert_int_equal(seen[i], 1);
    ls_loader_close(&loader);
}

static void ranks_together_read_the_global_batch(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 48);
    ls_loader *one = make(&set, (ls_loader_options){.batch = 12, .seed = 8}), *ranks[4];
    for (int r = 0; r < 4; r++)
        ranks[r] = make(&set, (ls_loader_options){.batch = 3, .seed = 8, .rank = r, .world_size = 4});
    for (int k = 0; k < 4; k++) {
        ls_batch whole, part;
        assert_int_equal(ls_loader_next(one, &whole), LS_OK);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(ls_loader_next(ranks[r], &part), LS_OK);
            assert_int_equal(part.count, 3);
            for (int64_t i = 0; i < 3; i++) {
                const int64_t at =
                    place_at(&part, i) - 12 * k; /* places are the global order's: also dropout's draws agree */
                assert_in_range(at, 0, 11);
                assert_int_equal(x_at(&part, i), x_at(&whole, at));
                assert_int_equal(place_at(&part, i), place_at(&whole, at));
            }
        }
    }
    for (int r = 0; r < 4; r++) ls_loader_close(&ranks[r]);
    ls_loader_close(&one);
}

static void images_are_stored_nhwc(void **state) {
    (void)state;
    /* Two images of 3 channels, 2x2, numbered in logical order. */
    float x[2][3][2][2];
    uint8_t y[2] = {0, 1};
    for (int i = 0; i < 24; i++) (&x[0][0][0][0])[i] = (float)i;
    ls_dataset set = {.count = 2, .x_dtype = LS_F32, .y_dtype = LS_U8, .x_ndim = 3, .x_dims = {3, 2, 2}};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_OK);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 2, .without_shuffle = true});
    ls_batch batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    assert_int_equal(ls_tensor_layout(batch.x), LS_LAYOUT_NHWC);
    assert_int_equal(ls_tensor_dim(batch.x, 1), 3);
    const float *stored = ls_tensor_data(batch.x);
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 3; c++)
            for (int pixel = 0; pixel < 4; pixel++)
                assert_true(stored[(n * 4 + pixel) * 3 + c] == (float)(n * 12 + c * 4 + pixel));
    float logical[24];
    assert_int_equal(ls_tensor_copy_out(batch.x, logical), LS_OK);
    assert_memory_equal(logical, x, sizeof x);
    ls_loader_close(&loader);
    ls_dataset_close(&set);
}

static void a_sample_that_cannot_be_read_spoils_its_batch_alone(void **state) {
    (void)state;
    numbers context = {.broken = 4, .failure = LS_ERR_IO};
    const ls_dataset set = make_set(&context, 21); /* so many batches that its memory is used again */
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 3, .without_shuffle = true});
    ls_batch batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    assert_int_equal(batch.count, 3);
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    assert_null(batch.x);
    assert_null(batch.y);
    assert_null(batch.index);
    assert_int_equal(batch.count, 0);
    assert_non_null(strstr(ls_last_error(), "sample 4"));
    assert_non_null(strstr(ls_last_error(), "LS_ERR_IO"));
    for (int first = 6; first < 21; first += 3) {
        assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
        assert_int_equal(batch.count, 3);
        assert_int_equal(x_at(&batch, 0), first);
    }
    assert_int_equal(ls_loader_next(loader, &batch), LS_END);
    ls_loader_close(&loader);
}

static void a_read_that_answers_end_is_an_error_too(void **state) {
    (void)state;
    numbers context = {.broken = 0, .failure = LS_END};
    const ls_dataset set = make_set(&context, 1);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 1});
    for (int epoch = 0; epoch < 2; epoch++) {
        ls_batch batch;
        assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
        assert_null(batch.x);
        assert_non_null(strstr(ls_last_error(), "sample 0"));
        assert_int_equal(ls_last_status(), LS_ERR_IO);                  /* what a step without a batch fails with */
        assert_null(strstr(ls_last_error(), "cannot be read: loader")); /* the sentence of the time before */
        assert_int_equal(ls_loader_next(loader, &batch), LS_END);
    }
    ls_loader_close(&loader);
}

static void resuming_anywhere_yields_what_would_have_come(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 11);
    const ls_loader_options options = {.batch = 2, .rank = 1, .world_size = 2, .seed = 77};
    ls_loader *straight = make(&set, options);
    int64_t first_x[64], epochs[64], batches[64];
    int steps = 0;
    ls_batch batch;
    while (steps < 20) { /* five epochs and more of three batches, with their ends */
        ls_loader_position(straight, &epochs[steps], &batches[steps]);
        first_x[steps] = ls_loader_next(straight, &batch) == LS_OK ? x_at(&batch, 0) : -1;
        steps++;
    }
    for (int from = 0; from < steps; from++) {
        ls_loader *resumed = make(&set, options);
        assert_int_equal(ls_loader_set_position(resumed, epochs[from], batches[from]), LS_OK);
        for (int k = from; k < steps; k++) {
            int64_t epoch, done;
            ls_loader_position(resumed, &epoch, &done);
            assert_int_equal(epoch, epochs[k]);
            assert_int_equal(done, batches[k]);
            assert_int_equal(ls_loader_next(resumed, &batch) == LS_OK ? x_at(&batch, 0) : -1, first_x[k]);
        }
        ls_loader_close(&resumed);
    }
    assert_int_equal(ls_loader_set_position(straight, 0, 4), LS_ERR_ARGUMENT);
    assert_int_equal(ls_loader_set_position(straight, -1, 0), LS_ERR_ARGUMENT);
    assert_int_equal(ls_loader_set_position(straight, 0, -1), LS_ERR_ARGUMENT);
    ls_loader_close(&straight);
}

static void an_empty_epoch_ends_at_once(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset none = make_set(&context, 0), one = make_set(&context, 1);
    ls_loader *loader = make(&none, (ls_loader_options){.batch = 3});
    ls_batch batch;
    for (int i = 0; i < 3; i++) assert_int_equal(ls_loader_next(loader, &batch), LS_END);
    ls_loader_close(&loader);
    /* One sample, two ranks, uneven: the second has none. */
    loader = make(&one, (ls_loader_options){.batch = 3, .rank = 1, .world_size = 2, .uneven = true});
    for (int i = 0; i < 3; i++) assert_int_equal(ls_loader_next(loader, &batch), LS_END);
    ls_loader_close(&loader);
    assert_int_equal(context.reads, 0);
}

static void it_reads_ahead_and_no_further(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 1000);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 10});
    const int64_t deadline_ns = ls_deadline_after_ms(10000);
    while (atomic_load(&context.reads) < 30 && ls_now_ns() < deadline_ns) ls_sleep_until(ls_deadline_after_ms(1));
    ls_sleep_until(ls_deadline_after_ms(30));
    assert_int_equal(context.reads, 30);
    ls_loader_close(&loader);
}

static void closing_does_not_wait_for_the_rest_of_a_slow_batch(void **state) {
    (void)state;
    numbers context = {.broken = -1, .wait_ms = 20};
    const ls_dataset set = make_set(&context, 10000);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 10000});
    ls_sleep_until(ls_deadline_after_ms(50));
    ls_loader_close(&loader);
    assert_in_range(context.reads, 0, 1000);
}

static void after_the_start_nothing_is_allocated(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 50);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 8});
    ls_batch batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    const uint64_t count = ls_alloc_count();
    for (int i = 0; i < 500; i++) ls_loader_next(loader, &batch);
    assert_int_equal(ls_alloc_count(), count);
    ls_loader_close(&loader);
}

static void a_kept_tensor_may_outlive_the_loader(void **state) {
    (void)state;
    const uint64_t live = ls_alloc_live();
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 5);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 5, .without_shuffle = true});
    ls_batch batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    ls_tensor *kept = ls_tensor_keep(batch.x);
    ls_loader_close(&loader);
    assert_true(((const float *)ls_tensor_data(kept))[4] == 4);
    ls_tensor_close(&kept);
    assert_int_equal(ls_alloc_live(), live);
}

/* Half of the elements of each row of ones are zeroed; the row's draws go by its place in the global order. */
static void draw(const ls_batch *batch, float (*rows)[16]) {
    static float ones[12 * 16];
    for (int i = 0; i < 12 * 16; i++) ones[i] = 1;
    ls_tensor *x = NULL;
    assert_int_equal(ls_tensor_borrow(&x, LS_F32, 2, (int64_t[]){batch->count, 16}, LS_LAYOUT_PLAIN, ones, NULL, NULL),
                     LS_OK);
    ls_tensor *dropped = ls_dropout(x, 0.5, 1);
    assert_non_null(dropped);
    assert_int_equal(ls_tensor_copy_out(dropped, rows), LS_OK);
    ls_tensor_close(&dropped);
    ls_tensor_close(&x);
}

static void dropout_draws_go_by_the_place_in_the_global_batch(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 24);
    ls_loader *one = make(&set, (ls_loader_options){.batch = 12, .seed = 8}), *ranks[3];
    for (int r = 0; r < 3; r++)
        ranks[r] = make(&set, (ls_loader_options){.batch = 4, .seed = 8, .rank = r, .world_size = 3});
    ls_seed_set(5);
    for (int k = 0; k < 2; k++) {
        float whole[12][16], part[4][16];
        ls_batch batch;
        assert_int_equal(ls_loader_next(one, &batch), LS_OK);
        draw(&batch, whole);
        assert_memory_not_equal(whole[0], whole[1], sizeof whole[0]);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(ls_loader_next(ranks[r], &batch), LS_OK);
            draw(&batch, part);
            for (int64_t i = 0; i < 4; i++)
                assert_memory_equal(part[i], whole[place_at(&batch, i) - 12 * k], sizeof part[i]);
        }
    }
    for (int r = 0; r < 3; r++) ls_loader_close(&ranks[r]);
    ls_loader_close(&one);
}

/* They lie in the loader's memory, which the reader fills anew. */
static void the_places_of_a_batch_are_forgotten_with_it(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 24);
    ls_loader *loader = make(&set, (ls_loader_options){.batch = 4, .rank = 1, .world_size = 3});
    ls_batch batch;
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    assert_int_equal(random_sample_index(3, 4), 1 + 3 * 3);
    assert_int_equal(ls_loader_set_position(loader, 0, 1), LS_OK);
    assert_int_equal(random_sample_index(3, 4), 3);
    assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
    assert_int_equal(random_sample_index(3, 4), 12 + 1 + 3 * 3);
    ls_loader_close(&loader);
    assert_int_equal(random_sample_index(3, 4), 3);
}

static void wrong_arguments_are_named(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    ls_dataset set = make_set(&context, 5);
    ls_loader *loader = NULL;
    assert_int_equal(ls_loader_create(&loader, &set, &(ls_loader_options){.batch = 0}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_loader_create(&loader, &set, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_loader_create(&loader, NULL, &(ls_loader_options){.batch = 1}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_loader_create(&loader, &set, &(ls_loader_options){.batch = INT64_MAX}), LS_ERR_MEMORY);
    set.read = NULL;
    assert_int_equal(ls_loader_create(&loader, &set, &(ls_loader_options){.batch = 1}), LS_ERR_ARGUMENT);
    assert_null(loader);
}

static void a_fault_at_any_call_is_told_and_leaves_nothing(void **state) {
    (void)state;
    numbers context = {.broken = -1};
    const ls_dataset set = make_set(&context, 7);
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_loader *loader = NULL;
        ls_status status = ls_loader_create(&loader, &set, &(ls_loader_options){.batch = 2});
        ls_batch batch;
        if (status == LS_OK) status = ls_loader_next(loader, &batch);
        if (status == LS_OK) status = ls_loader_set_position(loader, 3, 1);
        /* A position that was set goes on from there, even when its thread could not start at first. */
        if (loader && status != LS_OK) {
            ls_fault_disarm();
            assert_int_equal(ls_loader_next(loader, &batch), LS_OK);
        } else if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(loader);
        }
        ls_loader_close(&loader);
    }
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_order_and_the_epoch_ends),
        cmocka_unit_test(each_batch_is_a_new_version_of_its_tensors),
        cmocka_unit_test(two_epochs_differ_without_being_told),
        cmocka_unit_test(ranks_together_read_the_global_batch),
        cmocka_unit_test(images_are_stored_nhwc),
        cmocka_unit_test(a_sample_that_cannot_be_read_spoils_its_batch_alone),
        cmocka_unit_test(a_read_that_answers_end_is_an_error_too),
        cmocka_unit_test(resuming_anywhere_yields_what_would_have_come),
        cmocka_unit_test(an_empty_epoch_ends_at_once),
        cmocka_unit_test(it_reads_ahead_and_no_further),
        cmocka_unit_test(closing_does_not_wait_for_the_rest_of_a_slow_batch),
        cmocka_unit_test(after_the_start_nothing_is_allocated),
        cmocka_unit_test(a_kept_tensor_may_outlive_the_loader),
        cmocka_unit_test(dropout_draws_go_by_the_place_in_the_global_batch),
        cmocka_unit_test(the_places_of_a_batch_are_forgotten_with_it),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_fault_at_any_call_is_told_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
