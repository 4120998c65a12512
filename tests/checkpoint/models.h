/* models.h: what the tests of checkpoints share: a folder of their own, a small net, its weights as bytes. */
#ifndef LS_TEST_CHECKPOINT_MODELS_H
#define LS_TEST_CHECKPOINT_MODELS_H

#include "support/test.h"

#include <lockstep/checkpoint.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static char directory[64], path[96], partial[128];

static inline int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/lockstep-checkpoint-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    snprintf(partial, sizeof partial, "%s.partial", path);
    return 0;
}

static inline int remove_directory(void **state) {
    (void)state;
    umount(directory); /* where a test mounted something there */
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static inline void assert_said(const char *text) {
    if (!strstr(ls_last_error(), text)) fail_msg("\"%s\" does not say \"%s\"", ls_last_error(), text);
}

/* A small net whose steps depend on the step number: dropout draws by it. */
static inline ls_module *make_net(int hidden) {
    ls_module *fc1 = NULL, *drop = NULL, *fc2 = NULL, *net = NULL;
    assert_int_equal(ls_linear_create(&fc1, 4, hidden, NULL), LS_OK);
    assert_int_equal(ls_dropout_create(&drop, 0.25), LS_OK);
    assert_int_equal(ls_linear_create(&fc2, hidden, 3, NULL), LS_OK);
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"fc1", fc1}, {"drop", drop}, {"fc2", fc2}, {NULL, NULL}}),
                     LS_OK);
    return net;
}

static inline ls_optim *make_sgd(ls_module *net) {
    ls_optim *sgd = NULL;
    assert_int_equal(ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.1, .momentum = 0.9}), LS_OK);
    return sgd;
}

/* All elements of all parameters in storage order, for comparing bit for bit. */
static inline uint8_t *snapshot(ls_module *net, size_t *size) {
    *size = 0;
    for (int i = 0; i < ls_module_parameter_count(net); i++)
        *size += (size_t)ls_tensor_numel(ls_module_parameter(net, i)) * sizeof(float);
    uint8_t *bytes = test_malloc(*size), *next = bytes;
    for (int i = 0; i < ls_module_parameter_count(net); i++) {
        const ls_tensor *parameter = ls_module_parameter(net, i);
        const size_t count = (size_t)ls_tensor_numel(parameter) * sizeof(float);
        memcpy(next, ls_tensor_data(parameter), count);
        next += count;
    }
    return bytes;
}

static inline void assert_same_weights(ls_module *a, ls_module *b) {
    size_t a_size, b_size;
    uint8_t *a_bytes = snapshot(a, &a_size), *b_bytes = snapshot(b, &b_size);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a_bytes, b_bytes, a_size);
    test_free(a_bytes);
    test_free(b_bytes);
}

#endif
