/* images.c: data sets of images and labels in IDX files, and where Fashion-MNIST is found.
 *
 * The bytes stay bytes in memory (47 MB for 60,000 images); a table of 256 floats turns a pixel into what the net
 * sees. */
#include "data/idx.h"

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#include <lockstep/data.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PACKAGE "dataset-fashion-mnist"

/* Mean and standard deviation of Fashion-MNIST's training pixels, scaled to [0, 1]. */
#define FASHION_MEAN 0.2860
#define FASHION_STD 0.3530

typedef struct images {
    idx_array pixels; /* [count][h][w] */
    idx_array labels; /* [count] */
    float value[256]; /* of a pixel */
} images;

/* The loader's call: stored bytes to floats. */
static ls_status read_image(void *context, int64_t index, void *x, void *y) {
    const images *from = context;
    const int64_t pixels = from->pixels.dims[1] * from->pixels.dims[2];
    /* Only reads: two loaders may share the set. */
    const uint8_t *pixel = from->pixels.values + index * pixels;
    for (int64_t i = 0; i < pixels; i++) ((float *)x)[i] = from->value[pixel[i]];
    *(int64_t *)y = from->labels.values[index];
    return LS_OK;
}

static void close_images(void *context) {
    images *from = context;
    idx_free(&from->pixels);
    idx_free(&from->labels);
    ls_free(from);
}

/* The file is read whole and parsed from memory: the parser is the same that the fuzzer drives. */
static ls_status read_idx_file(idx_array *array, const char *path, int ndim) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    LS_TRY(ls_file_read(path, &bytes, &size));
    ls_status status = idx_read(array, bytes, size, ndim);
    if (status) status = ls_fail_within(status, "\"%s\"", path);
    ls_free(bytes);
    return status;
}

ls_status ls_dataset_open_idx(ls_dataset *dataset, const char *images_path, const char *labels_path, double mean,
                              double std) {
    if (!dataset || !images_path || !labels_path)
        return ls_fail(LS_ERR_ARGUMENT, "ls_dataset_open_idx: the data set or a path is NULL; give all three");
    *dataset = (ls_dataset){0};
    images *from = ls_alloc(sizeof *from);
    if (!from) return LS_ERR_MEMORY;
    ls_status status = read_idx_file(&from->pixels, images_path, 3);
    if (!status) status = read_idx_file(&from->labels, labels_path, 1);
    if (!status && from->pixels.dims[0] != from->labels.dims[0])
        /* Each file may be proper by itself: only together they are not a set. */
        status = ls_fail(LS_ERR_FORMAT,
                         "data set: \"%s\" holds %" PRId64 " images and \"%s\" %" PRId64
                         " labels; give the two files of one set",
                         images_path, from->pixels.dims[0], labels_path, from->labels.dims[0]);
    if (status) {
        close_images(from);
        return status;
    }
    /* In double, then rounded once: the same floats on every machine. */
    for (int i = 0; i < 256; i++) from->value[i] = (float)(std == 0 ? i / 255.0 : (i / 255.0 - mean) / std);
    *dataset = (ls_dataset){.count = from->pixels.dims[0],
                            .x_dtype = LS_F32,
                            .y_dtype = LS_I64,
                            .x_ndim = 3,
                            .x_dims = {1, from->pixels.dims[1], from->pixels.dims[2]},
                            .read = read_image,
                            .close = close_images,
                            .context = from};
    return LS_OK;
}

/* Makes the path of one of the set's files in `directory`, packed or not; false when neither is there. */
static bool find_file(char path[PATH_MAX], const char *directory, const char *name) {
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        const int length = snprintf(path, PATH_MAX, "%s/%s%s", directory, name, is_plain ? "" : ".gz");
        if (length < PATH_MAX && access(path, F_OK) == 0) return true;
    }
    return false;
}

ls_status ls_dataset_open_fashion_mnist(ls_dataset *dataset, const char *directory, bool is_test) {
    const char *const images_name = is_test ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte";
    const char *const labels_name = is_test ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte";
    /* A directory that the caller names is the only place; one from the environment comes first. */
    const char *own = directory ? directory : ls_env_text("LOCKSTEP_DATA");
    char below[PATH_MAX] = "";
    if (own) snprintf(below, sizeof below, "%s/fashion-mnist", own);
    /* Debian's package first among the usual places, then where people unpack by hand. */
    const char *const places[] = {own, own ? below : NULL, directory ? NULL : "/usr/share/datasets/fashion-mnist",
                                  directory ? NULL : "/usr/local/share/datasets/fashion-mnist"};

    char images_path[PATH_MAX], labels_path[PATH_MAX], looked[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i]) continue;
        if (find_file(images_path, places[i], images_name) && find_file(labels_path, places[i], labels_name))
            return ls_dataset_open_idx(dataset, images_path, labels_path, FASHION_MEAN, FASHION_STD);
        used += (size_t)snprintf(looked + used, sizeof looked - used, "%s%s", used ? ", " : "", places[i]);
        if (used >= sizeof looked) used = sizeof looked - 1;
    }
    return ls_fail(LS_ERR_IO,
                   "Fashion-MNIST is missing: looked for %s.gz and %s.gz in %s; \"apt-get install " PACKAGE
                   "\" brings them, or set LOCKSTEP_DATA to the directory that holds them",
                   images_name, labels_name, looked);
}
