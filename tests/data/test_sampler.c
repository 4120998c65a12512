/* The deal: who reads what, and that N ranks together read what one process reads. */
#include "support/test.h"

#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static data_sampler make(int64_t count, ls_loader_options options) {
    data_sampler sampler;
    assert_int_equal(data_sampler_create(&sampler, count, &options), LS_OK);
    data_sampler_set_epoch(&sampler, 0);
    return sampler;
}

static void assert_samples(int64_t count, ls_loader_options options, int64_t samples, int64_t batches) {
    data_sampler sampler = make(count, options);
    assert_int_equal(sampler.samples, samples);
    assert_int_equal(sampler.batches, batches);
    data_sampler_free(&sampler);
}

static void ten_samples_on_four_ranks_are_three_each_or_two_dropped(void **state) {
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        assert_samples(10, (ls_loader_options){.batch = 1, .rank = rank, .world_size = 4}, 3, 3);
        assert_samples(10, (ls_loader_options){.batch = 2, .rank = rank, .world_size = 4}, 3, 2);
        assert_samples(10, (ls_loader_options){.batch = 1, .rank = rank, .world_size = 4, .drop_last = true}, 2, 2);
        assert_samples(10, (ls_loader_options){.batch = 2, .rank = rank, .world_size = 4, .drop_last = true}, 2, 1);
        assert_samples(10, (ls_loader_options){.batch = 3, .rank = rank, .world_size = 4, .drop_last = true}, 0, 0);
        assert_samples(10, (ls_loader_options){.batch = 2, .rank = rank, .world_size = 4, .uneven = true},
                       rank < 2 ? 3 : 2, rank < 2 ? 2 : 1);
        assert_samples(0, (ls_loader_options){.batch = 2, .rank = rank, .world_size = 4}, 0, 0);
        assert_samples(1, (ls_loader_options){.batch = 2, .rank = rank, .world_size = 4}, 1, 1);
    }
}

static void padding_repeats_the_order_from_its_start(void **state) {
    (void)state;
    data_sampler sampler = make(2, (ls_loader_options){.batch = 1, .world_size = 5, .seed = 9});
    for (int64_t place = 0; place < 5; place++)
        assert_int_equal(data_sampler_sample(&sampler, place), sampler.order[place % 2]);
    data_sampler_free(&sampler);
}

static void the_order_depends_on_seed_and_epoch_alone(void **state) {
    (void)state;
    data_sampler one = make(1000, (ls_loader_options){.batch = 8, .rank = 0, .world_size = 2, .seed = 1});
    data_sampler two = make(1000, (ls_loader_options){.batch = 3, .rank = 1, .world_size = 2, .seed = 1});
    data_sampler other = make(1000, (ls_loader_options){.batch = 8, .rank = 0, .world_size = 2, .seed = 2});
    const size_t bytes = 1000 * sizeof(int64_t);
    int64_t first[1000];
    memcpy(first, one.order, bytes);
    assert_memory_equal(one.order, two.order, bytes);
    assert_memory_not_equal(one.order, other.order, bytes);
    data_sampler_set_epoch(&one, 1);
    assert_memory_not_equal(one.order, first, bytes);
    assert_memory_not_equal(one.order, other.order, bytes);
    data_sampler_set_epoch(&one, 0);
    assert_memory_equal(one.order, first, bytes);
    data_sampler_free(&one);
    data_sampler_free(&two);
    data_sampler_free(&other);
}

/* 24 orders of 4 samples, 24,000 epochs: chi squared with 23 degrees of freedom stays under 60 (p about 1e-5), and the
 * seed is fixed. A biased or short-sighted shuffle is far beyond. */
static void every_order_is_equally_likely(void **state) {
    (void)state;
    data_sampler sampler = make(4, (ls_loader_options){.batch = 1, .seed = 3});
    int seen[256] = {0};
    for (int64_t epoch = 0; epoch < 24000; epoch++) {
        data_sampler_set_epoch(&sampler, epoch);
        int code = 0;
        for (int i = 0; i < 4; i++) code = code << 2 | (int)sampler.order[i];
        seen[code]++;
    }
    double chi_squared = 0;
    int kinds = 0;
    for (int i = 0; i < 256; i++) {
        if (!seen[i]) continue;
        kinds++;
        chi_squared += (seen[i] - 1000.0) * (seen[i] - 1000.0) / 1000.0;
    }
    assert_int_equal(kinds, 24);
    assert_true(chi_squared < 60);
    data_sampler_free(&sampler);
}

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Collects batch `batch` of all ranks as places and samples, sorted by place. Returns how many. */
static int64_t gather(int64_t count, ls_loader_options options, int64_t epoch, int64_t batch, int64_t (*pairs)[2]) {
    int64_t total = 0;
    for (options.rank = 0; options.rank < options.world_size; options.rank++) {
        data_sampler sampler = make(count, options);
        data_sampler_set_epoch(&sampler, epoch);
        const int64_t here = batch < sampler.batches ? data_sampler_batch_samples(&sampler, batch) : 0;
        for (int64_t i = 0; i < here; i++, total++) {
            pairs[total][0] = data_sampler_place(&sampler, batch * options.batch + i);
            pairs[total][1] = data_sampler_sample(&sampler, pairs[total][0]);
        }
        data_sampler_free(&sampler);
    }
    qsort(pairs, (size_t)total, sizeof *pairs, compare);
    return total;
}

static void many_ranks_make_up_the_global_batches_of_one_process(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    static int64_t many[4096][2], one[4096][2];
    for (int round = 0; round < 300; round++) {
        const int world_size = 1 + rand() % 6;
        const int64_t batch = 1 + rand() % 7, count = 1 + rand() % 200;
        ls_loader_options options = {.batch = batch, .world_size = world_size, .seed = (uint64_t)rand()};
        options.without_shuffle = rand() % 4 == 0;
        options.uneven = rand() % 2;
        options.drop_last = !options.uneven && rand() % 2;
        ls_loader_options alone = options;
        alone.world_size = 1;
        alone.batch = batch * world_size;
        const int64_t epoch = rand() % 3, batches = (count + batch * world_size - 1) / (batch * world_size);
        for (int64_t k = 0; k < batches; k++) {
            const int64_t by_many = gather(count, options, epoch, k, many),
                          by_one = gather(count, alone, epoch, k, one);
            /* Where the last batch is not full, padding adds places and nothing else. */
            if (!options.drop_last) assert_true(by_many >= by_one && by_many - by_one < world_size);
            for (int64_t i = 0; i < by_one && i < by_many; i++) assert_memory_equal(many[i], one[i], sizeof *one);
            if (options.uneven || k + 1 < batches) assert_int_equal(by_many, by_one);
            if (options.drop_last) assert_true(by_many % (batch * world_size) == 0);
        }
    }
}

static void every_sample_comes_once_in_an_uneven_epoch(void **state) {
    (void)state;
    for (int64_t count = 0; count < 30; count++) {
        int times[30] = {0};
        for (int rank = 0; rank < 4; rank++) {
            data_sampler sampler =
                make(count, (ls_loader_options){.batch = 3, .rank = rank, .world_size = 4, .seed = 5, .uneven = true});
            for (int64_t i = 0; i < sampler.samples; i++)
                times[data_sampler_sample(&sampler, data_sampler_place(&sampler, i))]++;
            data_sampler_free(&sampler);
        }
        for (int64_t i = 0; i < count; i++) assert_int_equal(times[i], 1);
    }
}

static void options_that_make_no_sense_are_named(void **state) {
    (void)state;
    data_sampler sampler;
    const struct {
        ls_loader_options options;
        const char *named;
    } wrong[] = {
        {{.batch = 0}, "batch is 0"},
        {{.batch = -3}, "batch is -3"},
        {{.batch = 1, .rank = 2, .world_size = 2}, "rank is 2 of 2"},
        {{.batch = 1, .rank = -1, .world_size = 2}, "rank is -1 of 2"},
        {{.batch = 1, .world_size = -1}, "of -1"},
        {{.batch = 1, .rank = 1}, "rank is 1 of 1"},
        {{.batch = 1, .drop_last = true, .uneven = true}, "exclude each other"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(data_sampler_create(&sampler, 10, &wrong[i].options), LS_ERR_ARGUMENT);
        assert_non_null(strstr(ls_last_error(), wrong[i].named));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_samples_on_four_ranks_are_three_each_or_two_dropped),
        cmocka_unit_test(padding_repeats_the_order_from_its_start),
        cmocka_unit_test(the_order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(every_order_is_equally_likely),
        cmocka_unit_test(many_ranks_make_up_the_global_batches_of_one_process),
        cmocka_unit_test(every_sample_comes_once_in_an_uneven_epoch),
        cmocka_unit_test(options_that_make_no_sense_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
