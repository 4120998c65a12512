/* small.h: little modules and tensors for the tests of this room. */
#ifndef LS_TEST_NN_SMALL_H
#define LS_TEST_NN_SMALL_H

#include "support/test.h"

#include "base/error.h"

#include <lockstep/nn.h>

#include <string.h>

static inline void assert_error_says(const char *words) {
    if (strstr(ls_last_error(), words)) return;
    print_error("expected \"%s\" in \"%s\"\n", words, ls_last_error());
    fail();
}

static inline ls_module *linear(int64_t in, int64_t out) {
    ls_module *module = NULL;
    assert_int_equal(ls_linear_create(&module, in, out, &(ls_layer_options){.dtype = LS_F64}), LS_OK);
    return module;
}

static inline ls_module *relu(void) {
    ls_module *module = NULL;
    assert_int_equal(ls_relu_create(&module), LS_OK);
    return module;
}

static inline ls_tensor *tensor(int64_t rows, int64_t columns, double value) {
    ls_tensor *made = NULL;
    assert_int_equal(ls_tensor_create(&made, LS_F64, 2, (int64_t[]){rows, columns}), LS_OK);
    for (int64_t i = 0; i < rows * columns; i++) ((double *)ls_tensor_data_mut(made))[i] = value;
    return made;
}

/* A module of the user's that does what `context` says. */
typedef struct script {
    ls_status status;     /* of forward */
    bool returns_input;   /* outputs are its inputs */
    bool returns_nothing; /* LS_OK with NULL outputs */
    bool fails_late;      /* LS_ERR_FORMAT after outputs are made */
    int forwards, destroyed;
} script;

static inline ls_status script_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                       ls_tensor **outputs, int output_count) {
    (void)self;
    script *wish = context;
    wish->forwards++;
    if (wish->status != LS_OK) return ls_fail(wish->status, "the script said so");
    if (wish->returns_nothing) return LS_OK;
    for (int i = 0; i < output_count; i++) {
        ls_tensor *x = inputs[i % input_count];
        ls_scale(x, 100); /* made and not returned */
        outputs[i] = wish->returns_input ? x : ls_scale(x, i + 2);
    }
    return wish->fails_late ? ls_fail(LS_ERR_FORMAT, "the script said so, late") : LS_OK;
}

static inline void script_destroy(void *context) {
    ((script *)context)->destroyed++;
}

static inline ls_module *scripted(script *wish, const ls_child *children) {
    ls_module *module = NULL;
    const ls_module_callbacks callbacks = {.forward = script_forward, .destroy = script_destroy, .context = wish};
    assert_int_equal(ls_module_create(&module, &callbacks, children), LS_OK);
    return module;
}

#endif
