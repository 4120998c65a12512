/* bring_your_own_gradients.c: the reducer without Lockstep's tensors and tape: a plain loop, gradients computed by
 * hand.
 *
 *     lockstep run -n 2 build/examples/bring_your_own_gradients
 *
 * Fits y = tanh(x w1 + b1) w2 + b2 to a curve. Each rank draws its own samples; the gradients are averaged while the
 * rest are computed, so all ranks take the same steps. Without a launcher it trains alone.                           */
#include <lockstep/ddp.h>

#include <math.h>
#include <stdio.h>

#define HIDDEN 32
#define BATCH 64
#define STEPS 2000
#define LEARNING_RATE 0.05

/* Parameters in the order of registration; their gradients become ready from the last to the first. */
enum { W1, B1, W2, B2, PARAMETER_COUNT };

static double w1[HIDDEN], b1[HIDDEN], w2[HIDDEN], b2[1];
static double grad_w1[HIDDEN], grad_b1[HIDDEN], grad_w2[HIDDEN], grad_b2[1];

static double uniform(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 33) / (double)(UINT64_C(1) << 31) - 1.0;
}

/* One batch: the loss, and gradients that are announced as soon as each is complete. */
static ls_status step(ls_reducer *reducer, uint64_t *samples, double *loss) {
    double x[BATCH], hidden[BATCH][HIDDEN], slope[BATCH];
    ls_status status = ls_reducer_begin(reducer);
    if (status != LS_OK) return status;

    *loss = grad_b2[0] = 0;
    for (int i = 0; i < BATCH; i++) {
        x[i] = uniform(samples);
        double y = b2[0];
        for (int j = 0; j < HIDDEN; j++) y += w2[j] * (hidden[i][j] = tanh(x[i] * w1[j] + b1[j]));
        const double error = y - sin(3 * x[i]);
        *loss += error * error / BATCH;
        grad_b2[0] += slope[i] = 2 * error / BATCH;
    }
    ls_reducer_ready(reducer, B2);

    for (int j = 0; j < HIDDEN; j++) {
        grad_w2[j] = 0;
        for (int i = 0; i < BATCH; i++) grad_w2[j] += slope[i] * hidden[i][j];
    }
    ls_reducer_ready(reducer, W2);

    for (int j = 0; j < HIDDEN; j++) {
        grad_w1[j] = grad_b1[j] = 0;
        for (int i = 0; i < BATCH; i++) {
            const double through = slope[i] * w2[j] * (1 - hidden[i][j] * hidden[i][j]);
            grad_b1[j] += through;
            grad_w1[j] += through * x[i];
        }
    }
    ls_reducer_ready(reducer, B1);
    ls_reducer_ready(reducer, W1);
    return ls_reducer_finish(reducer); /* gradients are averages over ranks now */
}

static void descend(double *values, const double *gradients, int count) {
    for (int i = 0; i < count; i++) values[i] -= LEARNING_RATE * gradients[i];
}

int main(void) {
    ls_group *group = NULL;
    ls_reducer *reducer = NULL;
    const ls_gradient gradients[PARAMETER_COUNT] = {
        [W1] = {.name = "w1", .gradient = grad_w1, .dtype = LS_F64, .ndim = 1, .dims = {HIDDEN}},
        [B1] = {.name = "b1", .gradient = grad_b1, .dtype = LS_F64, .ndim = 1, .dims = {HIDDEN}},
        [W2] = {.name = "w2", .gradient = grad_w2, .dtype = LS_F64, .ndim = 1, .dims = {HIDDEN}},
        [B2] = {.name = "b2", .gradient = grad_b2, .dtype = LS_F64, .ndim = 1, .dims = {1}},
    };
    ls_status status = ls_group_open(&group, NULL);
    if (status != LS_OK) goto out;
    status = ls_reducer_create(&reducer, group, gradients, PARAMETER_COUNT, NULL);
    if (status != LS_OK) goto out;

    uint64_t weights = 1, samples = 100 + (uint64_t)ls_group_rank(group); /* same start, other samples */
    for (int j = 0; j < HIDDEN; j++) {
        w1[j] = 2 * uniform(&weights);
        b1[j] = uniform(&weights);
        w2[j] = uniform(&weights) / 4;
    }
    for (int i = 1; i <= STEPS; i++) {
        double loss = 0;
        if ((status = step(reducer, &samples, &loss)) != LS_OK) goto out;
        descend(w1, grad_w1, HIDDEN);
        descend(b1, grad_b1, HIDDEN);
        descend(w2, grad_w2, HIDDEN);
        descend(b2, grad_b2, 1);
        if (ls_group_rank(group) == 0 && i % 500 == 0) printf("step %d: loss %.4f\n", i, loss);
    }
out:
    if (status != LS_OK) fprintf(stderr, "bring_your_own_gradients: %s\n", ls_last_error());
    ls_reducer_close(&reducer);
    ls_group_close(&group);
    return status == LS_OK ? 0 : 1;
}
