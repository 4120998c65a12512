/* Checkpoints of real models: what is in the file, that training goes on from it bit for bit, and that a foreign file
 * changes nothing. */
#include "checkpoint/models.h"
#include "support/test.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"

#include <lockstep/data.h>

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static ls_optim *make_adamw(ls_module *net) {
    ls_optim *adamw = NULL;
    assert_int_equal(ls_adamw_create(&adamw, net, &(ls_adamw_options){.lr = 0.01, .weight_decay = 0.1}), LS_OK);
    return adamw;
}

/* ---- What is in the file ---- */

static void lenet_stands_under_pytorchs_names_and_shapes_in_logical_order(void **state) {
    (void)state;
    const struct {
        const char *name;
        int ndim;
        int64_t dims[4];
    } expected[] = {
        {"conv1.weight", 4, {32, 1, 5, 5}},  {"conv1.bias", 1, {32}},
        {"conv2.weight", 4, {64, 32, 5, 5}}, {"conv2.bias", 1, {64}},
        {"fc1.weight", 2, {512, 3136}},      {"fc1.bias", 1, {512}},
        {"fc2.weight", 2, {10, 512}},        {"fc2.bias", 1, {10}},
    };
    ls_module *net = NULL;
    assert_int_equal(ls_lenet_create(&net, NULL), LS_OK);
    assert_int_equal(ls_checkpoint_save(path, net, NULL, NULL), LS_OK);

    uint8_t *bytes;
    size_t size;
    safetensors file;
    assert_int_equal(ls_file_read(path, &bytes, &size), LS_OK);
    assert_int_equal(safetensors_parse(&file, bytes, size), LS_OK);
    assert_int_equal((file.data - bytes) % 8, 0);
    assert_int_equal(file.count, 8);
    assert_int_equal(size - (size_t)(file.data - bytes), 1663370 * sizeof(float));
    for (int i = 0; i < 8; i++) {
        const safetensors_entry *entry = safetensors_find(&file, expected[i].name);
        assert_non_null(entry);
        assert_string_equal(entry->type, "F32");
        assert_int_equal(entry->ndim, expected[i].ndim);
        for (int d = 0; d < expected[i].ndim; d++) assert_int_equal(entry->dims[d], expected[i].dims[d]);
        float *logical = test_malloc(entry->end - entry->begin);
        assert_int_equal(ls_tensor_copy_out(ls_module_parameter(net, i), logical), LS_OK);
        assert_memory_equal(file.data + entry->begin, logical, entry->end - entry->begin);
        test_free(logical);
    }
    safetensors_free(&file);
    ls_free(bytes);

    ls_module *other = NULL;
    ls_seed_set(ls_seed() + 1);
    assert_int_equal(ls_lenet_create(&other, NULL), LS_OK);
    assert_int_equal(ls_checkpoint_load(path, other, NULL, NULL), LS_OK);
    assert_same_weights(net, other);
    ls_module_close(&other);
    ls_module_close(&net);
}

static void the_state_comes_back_without_loss(void **state) {
    (void)state;
    const ls_checkpoint_state states[] = {
        {.step = 0, .epoch = 0, .batch = 0, .seed = 0, .lr = 0.1},
        {.step = UINT64_MAX,
         .epoch = INT64_MAX / 2,
         .batch = INT64_MAX / 2,
         .seed = UINT64_MAX,
         .lr = 0x1.fffffffffffffp+1023},
        {.step = 12345, .epoch = 3, .batch = 77, .seed = 42, .lr = 1.0 / 3},
        {.lr = 5e-324},
        {.lr = -0.0},
        {.lr = 100},
    };
    ls_module *net = make_net(5);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        ls_checkpoint_state read = {0};
        assert_int_equal(ls_checkpoint_save(path, net, NULL, &states[i]), LS_OK);
        assert_int_equal(ls_checkpoint_load(path, net, NULL, &read), LS_OK);
        assert_true(read.step == states[i].step && read.epoch == states[i].epoch && read.batch == states[i].batch);
        assert_true(read.seed == states[i].seed);
        assert_memory_equal(&read.lr, &states[i].lr, sizeof read.lr);
    }
    ls_module_close(&net);
}

static void types_and_buffers_of_all_kinds_are_kept(void **state) {
    (void)state;
    const ls_dtype dtypes[] = {LS_U8, LS_F64, LS_F32, LS_I64};
    for (int is_loading = 0; is_loading < 2; is_loading++) {
        ls_module *net = NULL;
        assert_int_equal(ls_linear_create(&net, 3, 1, NULL), LS_OK);
        uint8_t values[24];
        for (int i = 0; i < 24; i++) values[i] = (uint8_t)(is_loading ? 0 : i + 1);
        for (int i = 0; i < 4; i++) {
            char name[] = "buffer0";
            name[6] = (char)('0' + i);
            ls_tensor *buffer = NULL;
            assert_int_equal(ls_tensor_create(&buffer, dtypes[i], 1, (int64_t[]){3}), LS_OK);
            assert_int_equal(ls_tensor_copy_in(buffer, values), LS_OK);
            assert_int_equal(ls_module_add_buffer(net, name, buffer), LS_OK);
        }
        ls_tensor *empty = NULL;
        assert_int_equal(ls_tensor_create(&empty, LS_F32, 2, (int64_t[]){0, 4}), LS_OK);
        assert_int_equal(ls_module_add_buffer(net, "empty", empty), LS_OK);
        if (!is_loading)
            assert_int_equal(ls_checkpoint_save(path, net, NULL, NULL), LS_OK);
        else {
            assert_int_equal(ls_checkpoint_load(path, net, NULL, NULL), LS_OK);
            for (int i = 0; i < 4; i++) {
                const uint8_t *data = ls_tensor_data(ls_module_buffer(net, i));
                for (size_t b = 0; b < 3 * ls_dtype_size(dtypes[i]); b++) assert_int_equal(data[b], b + 1);
            }
        }
        ls_module_close(&net);
    }
}

/* ---- Going on ---- */

/* Trains `steps` steps from where the loader stands. */
static void train(ls_module *net, ls_optim *optim, ls_loader *loader, int steps) {
    while (steps > 0) {
        ls_batch batch;
        if (ls_loader_next(loader, &batch) == LS_END) continue;
        ls_step_begin();
        ls_tensor *loss = ls_cross_entropy_loss(ls_module_forward(net, batch.x), batch.y);
        ls_backward(loss);
        ls_optim_step(optim);
        ls_optim_zero_grad(optim);
        assert_int_equal(ls_step_end(), LS_OK);
        steps--;
    }
}

static void training_goes_on_bit_for_bit(ls_optim *(*make_optim)(ls_module *)) {
    float x[22][4];
    int64_t y[22];
    for (int i = 0; i < 22; i++) {
        for (int j = 0; j < 4; j++) x[i][j] = sinf((float)(7 * i + j));
        y[i] = i % 3;
    }
    ls_dataset set = {.count = 22, .x_dtype = LS_F32, .y_dtype = LS_I64, .x_ndim = 1, .x_dims = {4}};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_OK);
    const ls_loader_options options = {.batch = 4, .seed = 11};
    for (int before = 0; before < 14; before += 3) { /* also in the middle of an epoch of six batches */
        ls_seed_set(9);
        ls_step_number_set(0);
        ls_module *net = make_net(6), *resumed = NULL;
        ls_optim *optim = make_optim(net), *resumed_optim = NULL;
        ls_loader *loader = NULL, *resumed_loader = NULL;
        assert_int_equal(ls_loader_create(&loader, &set, &options), LS_OK);
        train(net, optim, loader, before);
        ls_optim_set_lr(optim, 0.03);
        ls_checkpoint_state at = {.step = ls_step_number(), .seed = ls_seed(), .lr = ls_optim_lr(optim)}, read = {0};
        ls_loader_position(loader, &at.epoch, &at.batch);
        assert_int_equal(ls_checkpoint_save(path, net, optim, &at), LS_OK);
        train(net, optim, loader, 10);

        /* As a new process does it: other seeds, other weights, until the checkpoint is read. */
        ls_seed_set(1234);
        ls_step_number_set(99);
        resumed = make_net(6);
        resumed_optim = make_optim(resumed);
        assert_int_equal(ls_loader_create(&resumed_loader, &set, &options), LS_OK);
        assert_int_equal(ls_checkpoint_load(path, resumed, resumed_optim, &read), LS_OK);
        ls_seed_set(read.seed);
        ls_step_number_set(read.step);
        ls_optim_set_lr(resumed_optim, read.lr);
        assert_int_equal(ls_loader_set_position(resumed_loader, read.epoch, read.batch), LS_OK);
        train(resumed, resumed_optim, resumed_loader, 10);
        assert_same_weights(net, resumed);

        ls_loader_close(&resumed_loader);
        ls_loader_close(&loader);
        ls_optim_close(&resumed_optim);
        ls_optim_close(&optim);
        ls_module_close(&resumed);
        ls_module_close(&net);
    }
    ls_dataset_close(&set);
}

static void sgd_goes_on_bit_for_bit(void **state) {
    (void)state;
    training_goes_on_bit_for_bit(make_sgd);
}

static void adamw_goes_on_bit_for_bit(void **state) {
    (void)state;
    training_goes_on_bit_for_bit(make_adamw);
}

/* ---- Files that do not fit ---- */

/* Loads into `net` and expects the error, the sentence, and not one bit changed. */
static void assert_load_refused(ls_module *net, ls_optim *optim, bool wants_state, ls_status expected,
                                const char *said) {
    size_t size;
    uint8_t *before = snapshot(net, &size);
    ls_checkpoint_state at = {.step = 5};
    assert_int_equal(ls_checkpoint_load(path, net, optim, wants_state ? &at : NULL), expected);
    assert_said(said);
    assert_said(path);
    assert_int_equal(at.step, 5);
    uint8_t *after = snapshot(net, &size);
    assert_memory_equal(before, after, size);
    test_free(before);
    test_free(after);
}

static void another_model_is_told_by_its_first_difference(void **state) {
    (void)state;
    ls_module *net = make_net(6), *wide = make_net(7), *linear = NULL;
    ls_optim *sgd = make_sgd(net), *wide_sgd = make_sgd(wide), *adamw = make_adamw(net);
    assert_int_equal(ls_linear_create(&linear, 4, 6, NULL), LS_OK);

    assert_int_equal(ls_checkpoint_save(path, wide, wide_sgd, NULL), LS_OK);
    assert_load_refused(net, NULL, false, LS_ERR_MISMATCH, "\"fc1.weight\": expected F32 [6, 4], found F32 [7, 4]");
    assert_load_refused(linear, NULL, false, LS_ERR_MISMATCH, "no tensor \"weight\"");

    assert_int_equal(ls_checkpoint_save(path, net, sgd, NULL), LS_OK);
    assert_load_refused(net, adamw, false, LS_ERR_MISMATCH, "optim.fc1.weight.exp_avg");
    assert_load_refused(net, sgd, true, LS_ERR_MISMATCH, "no \"step\" in its __metadata__");
    assert_int_equal(ls_checkpoint_load(path, net, NULL, NULL),
                     LS_OK); /* weights alone leave the optimizer's state aside */

    assert_int_equal(ls_checkpoint_save(path, net, NULL, &(ls_checkpoint_state){.lr = 1}), LS_OK);
    assert_load_refused(net, sgd, true, LS_ERR_MISMATCH, "no tensor \"optim.fc1.weight.momentum\"");

    /* More tensors than there is room for. */
    ls_tensor *extra = NULL;
    assert_int_equal(ls_tensor_create(&extra, LS_F32, 0, NULL), LS_OK);
    assert_int_equal(ls_module_add_buffer(wide, "extra", extra), LS_OK);
    assert_int_equal(ls_checkpoint_save(path, wide, wide_sgd, NULL), LS_OK);
    ls_module *as_before = make_net(7);
    assert_load_refused(as_before, NULL, false, LS_ERR_MISMATCH, "\"extra\", which has no place");

    /* The same shape in another type. */
    ls_module *doubles = NULL;
    assert_int_equal(ls_linear_create(&doubles, 4, 6, &(ls_layer_options){.dtype = LS_F64}), LS_OK);
    assert_int_equal(ls_checkpoint_save(path, doubles, NULL, NULL), LS_OK);
    assert_load_refused(linear, NULL, false, LS_ERR_MISMATCH, "expected F32 [6, 4], found F64 [6, 4]");

    ls_optim_close(&sgd);
    ls_optim_close(&wide_sgd);
    ls_optim_close(&adamw);
    ls_module_close(&doubles);
    ls_module_close(&as_before);
    ls_module_close(&linear);
    ls_module_close(&wide);
    ls_module_close(&net);
}

/* Puts `text` in place of what stands under `key` in the metadata; both of one length. */
static void edit_metadata(const char *key, const char *from, const char *to) {
    uint8_t *bytes;
    size_t size;
    char pattern[128];
    snprintf(pattern, sizeof pattern, "\"%s\":\"%s\"", key, from);
    assert_int_equal(strlen(from), strlen(to));
    assert_int_equal(ls_file_read(path, &bytes, &size), LS_OK);
    uint8_t *place = memmem(bytes, size, pattern, strlen(pattern));
    assert_non_null(place);
    for (size_t i = 0; to[i]; i++) place[strlen(key) + 4 + i] = (uint8_t)to[i];
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    ls_free(bytes);
}

static void hostile_metadata_is_refused(void **state) {
    (void)state;
    ls_module *net = make_net(6);
    ls_optim *sgd = make_sgd(net);
    const ls_checkpoint_state at = {.step = 123, .epoch = 4, .batch = 5, .seed = 99999999999999999, .lr = 0.5};
    const struct {
        const char *key, *from, *to;
        ls_status status;
        const char *said;
    } edits[] = {
        {"step", "123", "-12", LS_ERR_FORMAT, "\"step\" is \"-12\""},
        {"step", "123", " 12", LS_ERR_FORMAT, "\"step\" is \" 12\""},
        {"step", "123", "1e3", LS_ERR_FORMAT, "\"step\""},
        {"lr", "0.5", "nan", LS_ERR_FORMAT, "\"lr\""},
        {"lr", "0.5", "123", LS_ERR_FORMAT, "\"lr\""},
        {"update_counts", "0 0 0 0", "0 0 0 x", LS_ERR_MISMATCH, "holds 3 of 4 numbers"},
        {"update_counts", "0 0 0 0", "0 0 000", LS_ERR_MISMATCH, "holds 3 of 4 numbers"},
        {"update_counts", "0 0 0 0", "0,0,0,0", LS_ERR_MISMATCH, "holds 1 of 4 numbers"},
        {"update_counts", "0 0 0 0", "-1 0 0 ", LS_ERR_MISMATCH, "holds 0 of 4 numbers"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        assert_int_equal(ls_checkpoint_save(path, net, sgd, &at), LS_OK);
        edit_metadata(edits[i].key, edits[i].from, edits[i].to);
        assert_load_refused(net, sgd, true, edits[i].status, edits[i].said);
    }
    /* Past what the number holds: one digit more than 64 bits take would wrap to a small one. And past where training
     * could go on: the epoch after the last that fits. */
    const int64_t far = 4000000000000000000;
    assert_int_equal(ls_checkpoint_save(path, net, sgd, &(ls_checkpoint_state){.epoch = far, .lr = 1}), LS_OK);
    assert_int_equal(ls_checkpoint_load(path, net, sgd, &(ls_checkpoint_state){0}), LS_OK);
    edit_metadata("epoch", "4000000000000000000", "9900000000000000000");
    assert_load_refused(net, sgd, true, LS_ERR_FORMAT, "\"epoch\"");
    edit_metadata("epoch", "9900000000000000000", "9223372036854775807");
    assert_load_refused(net, sgd, true, LS_ERR_FORMAT, "\"epoch\"");
    const int64_t counts[] = {far, 0, 0, 0};
    ls_optim_set_update_counts(sgd, counts);
    assert_int_equal(ls_checkpoint_save(path, net, sgd, &(ls_checkpoint_state){.lr = 1}), LS_OK);
    edit_metadata("update_counts", "4000000000000000000 0 0 0", "9223372036854775807 0 0 0");
    assert_load_refused(net, sgd, true, LS_ERR_MISMATCH, "update_counts");
    edit_metadata("update_counts", "9223372036854775807 0 0 0", "922337203685477 0 0 0 0 0");
    assert_load_refused(net, sgd, true, LS_ERR_MISMATCH, "more than 4 numbers");
    ls_optim_close(&sgd);
    ls_module_close(&net);
}

/* A module called "optim" whose parameter has the name of the optimizer's state for another. */
static void a_name_that_is_taken_in_the_file_is_refused(void **state) {
    (void)state;
    ls_module *leaf = NULL, *middle = NULL, *net = NULL;
    ls_tensor *named = NULL, *weight = NULL;
    const ls_layer_options options = {.without_bias = true};
    assert_int_equal(ls_linear_create(&leaf, 1, 1, &options), LS_OK); /* only to have a module with a forward */
    assert_int_equal(ls_tensor_create(&named, LS_F32, 0, NULL), LS_OK);
    assert_int_equal(ls_module_add_parameter(leaf, "momentum", named), LS_OK);
    assert_int_equal(ls_sequential_create(&middle, (ls_child[]){{"w", leaf}, {NULL, NULL}}), LS_OK);
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"optim", middle}, {NULL, NULL}}), LS_OK);
    assert_int_equal(ls_tensor_create(&weight, LS_F32, 0, NULL), LS_OK);
    assert_int_equal(ls_module_add_parameter(net, "w", weight), LS_OK);
    ls_optim *sgd = make_sgd(net);
    assert_int_equal(ls_checkpoint_save(path, net, sgd, NULL), LS_ERR_ARGUMENT);
    assert_said("\"optim.w.momentum\" is taken");
    assert_int_equal(access(path, F_OK), -1);
    ls_optim_close(&sgd);
    ls_module_close(&net);
}

static void a_damaged_file_changes_nothing(void **state) {
    (void)state;
    ls_module *net = make_net(6);
    ls_optim *sgd = make_sgd(net);
    assert_int_equal(ls_checkpoint_load(path, net, sgd, NULL), LS_ERR_IO);
    assert_said(path);
    assert_int_equal(ls_checkpoint_save(path, net, sgd, &(ls_checkpoint_state){.lr = 1}), LS_OK);
    struct stat whole;
    assert_int_equal(stat(path, &whole), 0);
    for (off_t cut = whole.st_size - 1; cut >= 0; cut -= 97) {
        assert_int_equal(truncate(path, cut), 0);
        assert_load_refused(net, sgd, true, LS_ERR_FORMAT, "");
    }
    ls_optim_close(&sgd);
    ls_module_close(&net);
}

static void wrong_arguments_are_named(void **state) {
    (void)state;
    ls_module *net = make_net(6);
    assert_int_equal(ls_checkpoint_save(NULL, net, NULL, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_checkpoint_save("", net, NULL, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_checkpoint_save(path, NULL, NULL, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_checkpoint_save(path, net, NULL, &(ls_checkpoint_state){.epoch = -1}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_checkpoint_save(path, net, NULL, &(ls_checkpoint_state){.batch = -1}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_checkpoint_save(path, net, NULL, &(ls_checkpoint_state){.lr = NAN}), LS_ERR_ARGUMENT);
    assert_said("lr");
    assert_int_equal(ls_checkpoint_load(NULL, net, NULL, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_checkpoint_load(path, NULL, NULL, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(access(path, F_OK), -1);
    ls_module_close(&net);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(lenet_stands_under_pytorchs_names_and_shapes_in_logical_order),
        TEST(the_state_comes_back_without_loss),
        TEST(types_and_buffers_of_all_kinds_are_kept),
        TEST(sgd_goes_on_bit_for_bit),
        TEST(adamw_goes_on_bit_for_bit),
        TEST(another_model_is_told_by_its_first_difference),
        TEST(hostile_metadata_is_refused),
        TEST(a_name_that_is_taken_in_the_file_is_refused),
        TEST(a_damaged_file_changes_nothing),
        TEST(wrong_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
