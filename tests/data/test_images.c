/* Data sets from files: what they hold, and what is said when they are not there or not right. */
#include "support/faults.h"
#include "support/test.h"

#include <lockstep/data.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static char images_path[128], labels_path[128];

static const char two_images[] = "\0\0\10\3\0\0\0\2\0\0\0\2\0\0\0\3"
                                 "\0\1\2\3\4\377"
                                 "\6\7\10\11\12\13";
static const char two_labels[] = "\0\0\10\1\0\0\0\2\11\0";
static const char three_labels[] = "\0\0\10\1\0\0\0\3\11\0\1";

static void write_file(const char *path, const char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/lockstep-data-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(images_path, sizeof images_path, "%s/t10k-images-idx3-ubyte", directory);
    snprintf(labels_path, sizeof labels_path, "%s/t10k-labels-idx1-ubyte", directory);
    write_file(images_path, two_images, sizeof two_images - 1);
    write_file(labels_path, two_labels, sizeof two_labels - 1);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unsetenv("LOCKSTEP_DATA");
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static void assert_said(const char *text) {
    if (!strstr(ls_last_error(), text)) fail_msg("\"%s\" does not say \"%s\"", ls_last_error(), text);
}

static void pixels_are_scaled_and_normalised(void **state) {
    (void)state;
    ls_dataset set;
    float x[6];
    int64_t y;
    assert_int_equal(ls_dataset_open_idx(&set, images_path, labels_path, 0, 0), LS_OK);
    assert_int_equal(set.count, 2);
    assert_int_equal(set.x_ndim, 3);
    assert_int_equal(set.x_dims[0], 1);
    assert_int_equal(set.x_dims[1], 2);
    assert_int_equal(set.x_dims[2], 3);
    assert_int_equal(set.x_dtype, LS_F32);
    assert_int_equal(set.y_ndim, 0);
    assert_int_equal(set.y_dtype, LS_I64);
    assert_int_equal(set.read(set.context, 0, x, &y), LS_OK);
    assert_int_equal(y, 9);
    assert_true(x[0] == 0.0F && x[5] == 1.0F && x[4] == (float)(4 / 255.0));
    ls_dataset_close(&set);
    assert_int_equal(set.count, 0);
    ls_dataset_close(&set);
    ls_dataset_close(NULL);

    assert_int_equal(ls_dataset_open_idx(&set, images_path, labels_path, 0.5, 0.25), LS_OK);
    assert_int_equal(set.read(set.context, 1, x, &y), LS_OK);
    assert_int_equal(y, 0);
    assert_true(x[0] == (float)((6 / 255.0 - 0.5) / 0.25));
    ls_dataset_close(&set);
}

static void counts_that_differ_are_told_with_both_files(void **state) {
    (void)state;
    write_file(labels_path, three_labels, sizeof three_labels - 1);
    ls_dataset set;
    assert_int_equal(ls_dataset_open_idx(&set, images_path, labels_path, 0, 0), LS_ERR_FORMAT);
    assert_said("2 images");
    assert_said("3 labels");
    assert_said(images_path);
    assert_null(set.read);
}

static void a_wrong_file_is_named(void **state) {
    (void)state;
    ls_dataset set;
    assert_int_equal(ls_dataset_open_idx(&set, labels_path, images_path, 0, 0), LS_ERR_FORMAT);
    assert_said(labels_path);
    write_file(images_path, two_images, sizeof two_images - 2);
    assert_int_equal(ls_dataset_open_idx(&set, images_path, labels_path, 0, 0), LS_ERR_FORMAT);
    assert_said("truncated");
    assert_said(images_path);
    assert_int_equal(ls_dataset_open_idx(&set, directory, labels_path, 0, 0), LS_ERR_IO);
    assert_said("is not a file");
    assert_int_equal(ls_dataset_open_idx(&set, "/nowhere/images", labels_path, 0, 0), LS_ERR_IO);
    assert_said("/nowhere/images");
    assert_int_equal(ls_dataset_open_idx(&set, NULL, labels_path, 0, 0), LS_ERR_ARGUMENT);
}

static void a_missing_fashion_mnist_says_where_it_looked_and_how_to_get_it(void **state) {
    (void)state;
    ls_dataset set;
    assert_int_equal(ls_dataset_open_fashion_mnist(&set, "/nowhere", false), LS_ERR_IO);
    assert_said("/nowhere");
    assert_said("/nowhere/fashion-mnist");
    assert_said("train-images-idx3-ubyte.gz");
    assert_said("apt-get install dataset-fashion-mnist");
    assert_said("LOCKSTEP_DATA");
    /* One of the two files is not enough. */
    unlink(labels_path);
    assert_int_equal(ls_dataset_open_fashion_mnist(&set, directory, true), LS_ERR_IO);
}

static void fashion_mnist_is_found_where_the_caller_or_the_environment_says(void **state) {
    (void)state;
    ls_dataset set;
    assert_int_equal(ls_dataset_open_fashion_mnist(&set, directory, true), LS_OK);
    assert_int_equal(set.count, 2);
    ls_dataset_close(&set);
    setenv("LOCKSTEP_DATA", directory, 1);
    assert_int_equal(ls_dataset_open_fashion_mnist(&set, NULL, true), LS_OK);
    assert_int_equal(set.count, 2);
    ls_dataset_close(&set);

    char below[160], moved[192];
    snprintf(below, sizeof below, "%s/fashion-mnist", directory);
    assert_int_equal(mkdir(below, 0777), 0);
    snprintf(moved, sizeof moved, "%s/t10k-images-idx3-ubyte", below);
    rename(images_path, moved);
    snprintf(moved, sizeof moved, "%s/t10k-labels-idx1-ubyte", below);
    rename(labels_path, moved);
    assert_int_equal(ls_dataset_open_fashion_mnist(&set, NULL, true), LS_OK);
    assert_int_equal(set.count, 2);
    ls_dataset_close(&set);
}

/* Debian's own files: right sizes, ten classes evenly, pixels normalised to mean 0 and deviation 1. */
static void the_packaged_fashion_mnist_is_read_whole(void **state) {
    (void)state;
    ls_dataset set;
    for (int is_test = 0; is_test < 2; is_test++) {
        if (ls_dataset_open_fashion_mnist(&set, NULL, is_test)) LS_SKIP(ls_last_error());
        assert_int_equal(set.count, is_test ? 10000 : 60000);
        double sum = 0, squares = 0;
        int labels[10] = {0};
        for (int64_t i = 0; i < set.count; i++) {
            float x[784];
            int64_t y;
            assert_int_equal(set.read(set.context, i, x, &y), LS_OK);
            assert_in_range(y, 0, 9);
            labels[y]++;
            for (int j = 0; j < 784; j++) {
                sum += (double)x[j];
                squares += (double)x[j] * (double)x[j];
            }
        }
        const double n = (double)set.count * 784, mean = sum / n;
        for (int i = 0; i < 10; i++) assert_int_equal(labels[i], set.count / 10);
        assert_true(fabs(mean) < 0.01 && fabs(squares / n - 1) < 0.02);
        ls_dataset_close(&set);
    }
}

static void arrays_are_read_where_they_lie(void **state) {
    (void)state;
    double x[3][2] = {{0, 1}, {2, 3}, {4, 5}}, x_out[2];
    uint8_t y[3] = {7, 8, 9}, y_out;
    ls_dataset set = {.count = 3, .x_dtype = LS_F64, .y_dtype = LS_U8, .x_ndim = 1, .x_dims = {2}};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_OK);
    x[2][1] = 50;
    assert_int_equal(set.read(set.context, 2, x_out, &y_out), LS_OK);
    assert_true(x_out[0] == 4 && x_out[1] == 50 && y_out == 9);
    ls_dataset_close(&set);

    set = (ls_dataset){.count = 3, .x_dtype = LS_F64, .y_dtype = LS_U8, .x_ndim = 1, .x_dims = {0}};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_ERR_ARGUMENT);
    assert_said("x_dims[0] is 0");
    set = (ls_dataset){.count = 3, .x_dtype = LS_F16, .y_dtype = LS_U8};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_ERR_ARGUMENT);
    assert_said("x_dtype is f16");
    set = (ls_dataset){.count = -1};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_ERR_ARGUMENT);
    set = (ls_dataset){.count = 1, .y_ndim = 8};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_ERR_ARGUMENT);
    assert_said("y_ndim is 8");
    set = (ls_dataset){.count = 1, .x_ndim = 3, .x_dims = {INT64_MAX, INT64_MAX, 4}};
    assert_int_equal(ls_dataset_from_arrays(&set, x, y), LS_ERR_ARGUMENT);
    assert_int_equal(ls_dataset_from_arrays(&set, NULL, y), LS_ERR_ARGUMENT);
}

static void a_fault_at_any_call_is_told_and_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_dataset set;
        const ls_status status = ls_dataset_open_idx(&set, images_path, labels_path, 0, 0);
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(set.read);
        }
        ls_dataset_close(&set);
    }
    assert_nothing_left();
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(pixels_are_scaled_and_normalised),
        TEST(counts_that_differ_are_told_with_both_files),
        TEST(a_wrong_file_is_named),
        TEST(a_missing_fashion_mnist_says_where_it_looked_and_how_to_get_it),
        TEST(fashion_mnist_is_found_where_the_caller_or_the_environment_says),
        TEST(the_packaged_fashion_mnist_is_read_whole),
        TEST(arrays_are_read_where_they_lie),
        TEST(a_fault_at_any_call_is_told_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
