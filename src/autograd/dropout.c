/* dropout.c: y = mask x / (1 - probability), the mask drawn by counters.
 *
 * The key of a step's layer comes from seed, step and layer; the counter is the sample's global index and the element's
 * place in logical order, four elements a draw: so a sample gets the same mask on whichever rank, in whichever
 * layout. */
#include "autograd/op.h"
#include "autograd/philox.h"
#include "autograd/random.h"

#include "tensor/arena.h"

static ls_status dropout_backward(backward_call *call) {
    ls_tensor *grad = call->grad;
    LS_TRY(call->kernels->mask_scale((size_t)grad->numel, call->node->attributes.factor, grad->data, call->node->memory,
                                     grad->data));
    return op_pass(call, 0, true);
}

static const autograd_op dropout_op = {.name = "dropout", .backward = dropout_backward};

typedef struct mask_draw {
    uint64_t key;
    uint64_t sample;
    uint64_t threshold; /* of 2^32: words below it drop */
} mask_draw;

/* Elements [0, outer) x [0, inner) in logical order go to mask[o * outer_stride + i * inner_stride]. */
static void draw_sample(const mask_draw *draw, int64_t outer, int64_t outer_stride, int64_t inner, int64_t inner_stride,
                        uint8_t *mask) {
    philox_block block = {{0}};
    uint64_t element = 0;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++, element++) {
            if (element % 4 == 0) {
                const uint64_t number = element / 4;
                block = philox((philox_block){{(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)draw->sample,
                                               (uint32_t)(draw->sample >> 32)}},
                               draw->key);
            }
            mask[o * outer_stride + i * inner_stride] = block.word[element % 4] >= draw->threshold;
        }
    }
}

static void draw_mask(const ls_tensor *x, double probability, uint32_t layer, uint8_t *mask) {
    const int64_t samples = x->ndim > 0 ? x->dims[0] : 1;
    const int64_t elements = samples > 0 ? x->numel / samples : 0;
    /* Samples are the first dim; a scalar is one sample of one element. 32 bits decide, so that a probability is kept
     * to a part in four billion, and 0 drops nothing. */
    mask_draw draw = {.key = random_dropout_key(layer), .threshold = (uint64_t)(probability * 0x1p32)};
    for (int64_t n = 0; n < samples; n++, mask += elements) {
        draw.sample = (uint64_t)random_sample_index(n, samples);
        /* Channels are the slow logical dim, and the fast one in memory. */
        if (x->layout == LS_LAYOUT_NHWC)
            draw_sample(&draw, x->dims[1], 1, x->dims[2] * x->dims[3], x->dims[1], mask);
        else
            draw_sample(&draw, 1, 0, elements, 1, mask);
    }
}

ls_tensor *ls_dropout(ls_tensor *x, double probability, uint32_t layer) {
    if (!x) return NULL;
    op_call call = op_begin(&dropout_op, &x, 1);
    if (!(probability >= 0 && probability < 1)) op_refuse(&call, "a probability of %g; expected [0, 1)", probability);
    if (x->layout == LS_LAYOUT_HWIO) op_refuse(&call, "x is stored hwio, as weights are; expected samples");
    uint8_t *mask = NULL;
    const double factor = 1 / (1 - probability);
    if (op_output_like(&call, x)) {
        mask = arena_take((size_t)x->numel);
        if (mask) {
            /* One byte an element until backward: cheaper than drawing again. */
            draw_mask(x, probability, layer, mask);
            call.status = call.kernels->mask_scale((size_t)x->numel, factor, x->data, mask, call.output->data);
        } else {
            call.status = LS_ERR_MEMORY;
        }
    }
    if (call.node) {
        call.node->attributes.factor = factor;
        call.node->memory = mask;
    } else {
        arena_give(mask);
    }
    return op_end(&call);
}
