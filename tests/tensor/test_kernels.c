/* test_kernels.c: one walk over every entry of every kernel table, against the f64 reference, over random shapes.
 * test_kernels_reference.c proves the reference itself.                                                              */
#include "tensor/arrays.h"

/* The table under test and the oracle; what the macros below call in turn. */
static const ls_kernels *tables[2];

/* One side of an array that may be absent. */
#define AT(a) ((a) ? (a)->side[side] : NULL)

/* Calls an entry of both tables, each with its own side of the arrays. */
#define RUN(entry, ...) \
    for (int side = 0; side < 2; side++) assert_int_equal(tables[side]->entry(__VA_ARGS__), LS_OK)

static array *fresh(int64_t count) {
    return array_of(tables[TESTED]->dtype, (size_t)count);
}

static array *drawn(int64_t count) {
    return random_array(tables[TESTED]->dtype, (size_t)count);
}

static bool coin(void) {
    return random_between(0, 1);
}

/* Few different values: windows full of ties, and zeroes. */
static array *steps(int64_t count) {
    array *a = fresh(count);
    for (size_t i = 0; i < a->count; i++) set_element(a, i, (double)random_between(-2, 2));
    return a;
}

static array *positive(int64_t count) {
    array *a = drawn(count);
    for (size_t i = 0; i < a->count; i++) set_element(a, i, fabs(element(a, TESTED, i)));
    return a;
}

/* A gradient's place: sometimes not wanted, sometimes holding an earlier gradient, else NaN that must not be read. */
static array *target(int64_t count, bool accumulate) {
    if (random_between(0, 4) == 0) return NULL;
    return accumulate ? drawn(count) : fresh(count);
}

static int64_t some(void) {
    return coin() ? random_between(0, 40) : random_between(0, 2000);
}

/* ---- Linear ---- */

static kernels_linear random_linear(void) {
    return (kernels_linear){random_between(0, 9), random_between(0, 70), random_between(0, 40)};
}

static void check_linear_forward(void) {
    const kernels_linear s = random_linear();
    array *x = drawn(s.batch * s.in), *w = drawn(s.out * s.in), *b = coin() ? drawn(s.out) : NULL;
    array *y = fresh(s.batch * s.out);
    RUN(linear_forward, &s, AT(x), AT(w), AT(b), AT(y));
    assert_agree(y, "y");
}

static void check_linear_backward_data(void) {
    const kernels_linear s = random_linear();
    array *dy = drawn(s.batch * s.out), *w = drawn(s.out * s.in), *dx = fresh(s.batch * s.in);
    RUN(linear_backward_data, &s, AT(dy), AT(w), AT(dx));
    assert_agree(dx, "dx");
}

static void check_linear_backward_weight(void) {
    const kernels_linear s = random_linear();
    const bool adds_w = coin(), adds_b = coin();
    array *x = drawn(s.batch * s.in), *dy = drawn(s.batch * s.out);
    array *dw = target(s.out * s.in, adds_w), *db = target(s.out, adds_b);
    RUN(linear_backward_weight, &s, AT(x), AT(dy), (kernels_target){AT(dw), adds_w}, (kernels_target){AT(db), adds_b});
    if (dw) assert_agree(dw, "dw");
    if (db) assert_agree(db, "db");
}

/* ---- Convolution ---- */

/* A shape and how many elements its arrays have. */
typedef struct conv {
    kernels_conv2d shape;
    int64_t x, w, b, y;
} conv;

static conv random_conv(void) {
    conv c = {.shape = {.batch = random_between(0, 3),
                        .in_channels = coin() ? random_between(0, 20) : 16,
                        .in_height = random_between(1, 12),
                        .in_width = random_between(1, 12),
                        .out_channels = coin() ? random_between(0, 20) : 32,
                        .kernel_height = random_between(1, 5),
                        .kernel_width = random_between(1, 5),
                        .stride = random_between(1, 3),
                        .padding = random_between(0, 2)}};
    const kernels_conv2d *s = &c.shape;
    c.x = s->batch * s->in_height * s->in_width * s->in_channels;
    c.w = s->kernel_height * s->kernel_width * s->in_channels * s->out_channels;
    c.b = s->out_channels;
    c.y = s->batch * kernels_conv2d_out_height(s) * kernels_conv2d_out_width(s) * s->out_channels;
    return c;
}

static void check_conv2d_forward(void) {
    const conv c = random_conv();
    array *x = drawn(c.x), *w = drawn(c.w), *b = coin() ? drawn(c.b) : NULL, *y = fresh(c.y);
    RUN(conv2d_forward, &c.shape, AT(x), AT(w), 0, AT(b), AT(y));
    assert_agree(y, "y");
}

static void check_conv2d_backward_data(void) {
    const conv c = random_conv();
    array *dy = drawn(c.y), *w = drawn(c.w), *dx = fresh(c.x);
    RUN(conv2d_backward_data, &c.shape, AT(dy), AT(w), 0, AT(dx));
    assert_agree(dx, "dx");
}

static void check_conv2d_backward_weight(void) {
    const conv c = random_conv();
    const bool adds_w = coin(), adds_b = coin();
    array *x = drawn(c.x), *dy = drawn(c.y), *dw = target(c.w, adds_w), *db = target(c.b, adds_b);
    RUN(conv2d_backward_weight, &c.shape, AT(x), AT(dy), (kernels_target){AT(dw), adds_w},
        (kernels_target){AT(db), adds_b});
    if (dw) assert_agree(dw, "dw");
    if (db) assert_agree(db, "db");
}

/* ---- Max-pooling ---- */

typedef struct pool {
    kernels_pool2d shape;
    int64_t x, y;
    int32_t *argmax[2];
} pool;

static pool random_pool(void) {
    pool p = {.shape = {.batch = random_between(0, 3),
                        .channels = coin() ? random_between(0, 20) : 32,
                        .in_height = random_between(1, 12),
                        .in_width = random_between(1, 12),
                        .kernel = random_between(1, 4),
                        .stride = random_between(1, 4)}};
    const kernels_pool2d *s = &p.shape;
    p.x = s->batch * s->in_height * s->in_width * s->channels;
    p.y = s->batch * kernels_pool2d_out_height(s) * kernels_pool2d_out_width(s) * s->channels;
    for (int side = 0; side < 2; side++) p.argmax[side] = calloc((size_t)p.y + 1, sizeof(int32_t));
    return p;
}

static void pool_close(pool *p) {
    for (int side = 0; side < 2; side++) free(p->argmax[side]);
}

static void check_max_pool2d_forward(void) {
    pool p = random_pool();
    array *x = steps(p.x), *y = fresh(p.y);
    RUN(max_pool2d_forward, &p.shape, AT(x), AT(y), p.argmax[side]);
    assert_agree(y, "y");
    assert_memory_equal(p.argmax[TESTED], p.argmax[ORACLE], (size_t)p.y * sizeof(int32_t));
    pool_close(&p);
}

static void check_max_pool2d_backward(void) {
    pool p = random_pool();
    array *x = steps(p.x), *y = fresh(p.y), *dy = drawn(p.y), *dx = fresh(p.x);
    RUN(max_pool2d_forward, &p.shape, AT(x), AT(y), p.argmax[side]);
    RUN(max_pool2d_backward, &p.shape, AT(dy), p.argmax[side], AT(dx));
    assert_agree(dx, "dx");
    pool_close(&p);
}

/* ---- Element by element: into fresh memory, then in place ---- */

static void check_relu_forward(void) {
    array *x = steps(some()), *y = fresh((int64_t)x->count);
    RUN(relu_forward, x->count, AT(x), AT(y));
    RUN(relu_forward, x->count, AT(x), AT(x));
    assert_agree(y, "y");
    assert_agree(x, "y in place");
}

static void check_relu_backward(void) {
    array *y = steps(some()), *dy = drawn((int64_t)y->count), *dx = fresh((int64_t)y->count);
    RUN(relu_backward, y->count, AT(y), AT(dy), AT(dx));
    RUN(relu_backward, y->count, AT(y), AT(dy), AT(dy));
    assert_agree(dx, "dx");
    assert_agree(dy, "dx in place");
}

static void check_add(void) {
    array *a = drawn(some()), *b = drawn((int64_t)a->count), *y = fresh((int64_t)a->count);
    RUN(add, a->count, AT(a), AT(b), AT(y));
    RUN(add, a->count, AT(a), AT(b), AT(b));
    assert_agree(y, "y");
    assert_agree(b, "y in place");
}

static void check_mul(void) {
    array *a = drawn(some()), *b = drawn((int64_t)a->count), *y = fresh((int64_t)a->count);
    RUN(mul, a->count, AT(a), AT(b), AT(y));
    RUN(mul, a->count, AT(a), AT(b), AT(a));
    assert_agree(y, "y");
    assert_agree(a, "y in place");
}

static void check_scale(void) {
    array *x = drawn(some()), *y = fresh((int64_t)x->count);
    const double factor = random_value();
    RUN(scale, x->count, factor, AT(x), AT(y));
    RUN(scale, x->count, factor, AT(x), AT(x));
    assert_agree(y, "y");
    assert_agree(x, "y in place");
}

static void check_axpy(void) {
    array *x = drawn(some()), *y = drawn((int64_t)x->count);
    const double factor = random_value();
    RUN(axpy, x->count, factor, AT(x), AT(y));
    RUN(axpy, x->count, factor, AT(x), AT(x));
    assert_agree(y, "y");
    assert_agree(x, "y in place");
}

static void check_fill(void) {
    array *y = fresh(some());
    const double value = random_value();
    RUN(fill, y->count, value, AT(y));
    assert_agree(y, "y");
}

static void check_mask_scale(void) {
    array *x = drawn(some()), *y = fresh((int64_t)x->count);
    uint8_t *mask = malloc(x->count + 1);
    for (size_t i = 0; i < x->count; i++) mask[i] = coin();
    RUN(mask_scale, x->count, 1.25, AT(x), mask, AT(y));
    RUN(mask_scale, x->count, 1.25, AT(x), mask, AT(x));
    assert_agree(y, "y");
    assert_agree(x, "y in place");
    free(mask);
}

/* ---- Reductions and losses ---- */

static void check_sum(void) {
    array *x = positive(some()), *y = fresh(1);
    RUN(sum, x->count, AT(x), AT(y));
    assert_agree(y, "y");
}

static void check_mean(void) {
    array *x = positive(some() + 1), *y = fresh(1);
    RUN(mean, x->count, AT(x), AT(y));
    assert_agree(y, "y");
}

static void check_mse_forward(void) {
    array *x = drawn(some() + 1), *wanted = drawn((int64_t)x->count), *loss = fresh(1);
    RUN(mse_forward, x->count, AT(x), AT(wanted), AT(loss));
    assert_agree(loss, "loss");
}

static void check_mse_backward(void) {
    array *x = drawn(some()), *wanted = drawn((int64_t)x->count), *dx = fresh((int64_t)x->count);
    RUN(mse_backward, x->count, AT(x), AT(wanted), 0.75 * (double)x->count, AT(dx));
    assert_agree(dx, "dx");
}

typedef struct labels {
    int64_t batch, classes;
    ls_dtype dtype;
    void *data;
} labels;

static labels random_labels(void) {
    labels l = {.batch = random_between(1, 9), .classes = random_between(1, 20), .dtype = coin() ? LS_I64 : LS_U8};
    l.data = calloc((size_t)l.batch, sizeof(int64_t));
    for (int64_t n = 0; n < l.batch; n++) {
        const int64_t label = random_between(0, l.classes - 1);
        if (l.dtype == LS_U8) {
            ((uint8_t *)l.data)[n] = (uint8_t)label;
        } else {
            ((int64_t *)l.data)[n] = label;
        }
    }
    return l;
}

static void check_cross_entropy_forward(void) {
    const labels l = random_labels();
    array *x = drawn(l.batch * l.classes), *probabilities = fresh(l.batch * l.classes), *loss = fresh(1);
    /* Logits far apart: without the shift they overflow in f32. */
    for (size_t i = 0; i < x->count; i++) set_element(x, i, 128 * element(x, TESTED, i));
    RUN(cross_entropy_forward, l.batch, l.classes, AT(x), l.dtype, l.data, AT(probabilities), AT(loss));
    assert_agree(probabilities, "probabilities");
    assert_agree(loss, "loss");
    free(l.data);
}

static void check_cross_entropy_backward(void) {
    const labels l = random_labels();
    array *probabilities = drawn(l.batch * l.classes), *dx = fresh(l.batch * l.classes);
    RUN(cross_entropy_backward, l.batch, l.classes, AT(probabilities), l.dtype, l.data, 0.5, AT(dx));
    RUN(cross_entropy_backward, l.batch, l.classes, AT(probabilities), l.dtype, l.data, 0.5, AT(probabilities));
    assert_agree(dx, "dx");
    assert_agree(probabilities, "dx in place");
    free(l.data);
}

/* ---- Optimizers ---- */

static void check_sgd_step(void) {
    const bool has_momentum = coin();
    const kernels_sgd sgd = {.lr = 0.1,
                             .momentum = has_momentum ? 0.9 : 0,
                             .weight_decay = coin() ? 0.05 : 0,
                             .nesterov = has_momentum && coin(),
                             .is_first = coin()};
    array *dw = drawn(some()), *w = drawn((int64_t)dw->count), *m = NULL;
    if (has_momentum) m = sgd.is_first ? fresh((int64_t)dw->count) : drawn((int64_t)dw->count);
    RUN(sgd_step, dw->count, &sgd, AT(dw), AT(w), AT(m));
    assert_agree(w, "w");
    if (m) assert_agree(m, "m");
}

static void check_adamw_step(void) {
    const kernels_adamw adamw = {.lr = 0.5,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = coin() ? 0.1 : 0,
                                 .update = random_between(1, 50)};
    array *dw = drawn(some()), *w = drawn((int64_t)dw->count);
    array *m = drawn((int64_t)dw->count), *v = positive((int64_t)dw->count);
    RUN(adamw_step, dw->count, &adamw, AT(dw), AT(w), AT(m), AT(v));
    assert_agree(w, "w");
    assert_agree(m, "m");
    assert_agree(v, "v");
}

/* ---- The walk ---- */

/* In the table's order. */
static void (*const checks[])(void) = {
    check_linear_forward,
    check_linear_backward_data,
    check_linear_backward_weight,
    check_conv2d_forward,
    check_conv2d_backward_data,
    check_conv2d_backward_weight,
    check_max_pool2d_forward,
    check_max_pool2d_backward,
    check_relu_forward,
    check_relu_backward,
    check_add,
    check_mul,
    check_scale,
    check_axpy,
    check_fill,
    check_mask_scale,
    check_sum,
    check_mean,
    check_mse_forward,
    check_mse_backward,
    check_cross_entropy_forward,
    check_cross_entropy_backward,
    check_sgd_step,
    check_adamw_step,
};
enum { CHECKS = sizeof checks / sizeof checks[0], ROUNDS = 100 };

static void walk(const ls_kernels *table) {
    tables[TESTED] = table;
    tables[ORACLE] = kernels_reference(LS_F64);
    for (int i = 0; i < CHECKS; i++) {
        for (int round = 0; round < ROUNDS; round++) {
            checks[i]();
            arrays_close();
        }
    }
}

static void the_f32_reference_agrees_with_f64(void **state) {
    (void)state;
    walk(kernels_reference(LS_F32));
}

static void the_f64_reference_writes_only_its_outputs(void **state) {
    (void)state;
    walk(kernels_reference(LS_F64));
}

static void onednn_agrees_with_the_reference(void **state) {
    (void)state;
    if (!kernels_onednn(LS_F32)) LS_SKIP("oneDNN is not built in");
    walk(kernels_onednn(LS_F32));
}

/* The walk has as many checks as the table has functions, and no table has a hole. */
static void every_entry_is_walked(void **state) {
    (void)state;
    const size_t functions = (sizeof(ls_kernels) - offsetof(ls_kernels, linear_forward)) / sizeof(void (*)(void));
    assert_int_equal(functions, CHECKS);
    const ls_kernels *all[] = {kernels_reference(LS_F32), kernels_reference(LS_F64), kernels_onednn(LS_F32)};
    for (size_t t = 0; t < sizeof all / sizeof all[0]; t++) {
        void (*entries[CHECKS])(void);
        if (!all[t]) continue;
        memcpy(entries, (const char *)all[t] + offsetof(ls_kernels, linear_forward), sizeof entries);
        for (int i = 0; i < CHECKS; i++) assert_true(entries[i] != NULL);
        assert_int_equal(all[t]->version, KERNELS_VERSION);
    }
}

static int open(void **state) {
    (void)state;
    random_open();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_walked),
        cmocka_unit_test(the_f32_reference_agrees_with_f64),
        cmocka_unit_test(the_f64_reference_writes_only_its_outputs),
        cmocka_unit_test(onednn_agrees_with_the_reference),
    };
    return cmocka_run_group_tests_name("kernels", tests, open, NULL);
}
