/* optimizers.h: PyTorch's update rules, one pass over memory. A template as rows.h. */
#ifndef LS_REFERENCE_OPTIMIZERS_H
#define LS_REFERENCE_OPTIMIZERS_H

#include <math.h>
#include <stddef.h>

static ls_status sgd_step(size_t count, const kernels_sgd *sgd, const void *dw, void *w, void *m) {
    const real lr = (real)sgd->lr, momentum = (real)sgd->momentum, decay = (real)sgd->weight_decay;
    const real *const gradient = dw;
    real *const weight = w, *const average = m;
    if (!average) {
        for (size_t i = 0; i < count; i++) weight[i] -= lr * (gradient[i] + decay * weight[i]);
        return LS_OK;
    }
    /* On the first update old momentum is not even read: it may be anything. */
    for (size_t i = 0; i < count; i++) {
        const real g = gradient[i] + decay * weight[i];
        average[i] = sgd->is_first ? g : momentum * average[i] + g;
        weight[i] -= lr * (sgd->nesterov ? g + momentum * average[i] : average[i]);
    }
    return LS_OK;
}

static ls_status adamw_step(size_t count, const kernels_adamw *adamw, const void *dw, void *w, void *m, void *v) {
    /* Once a parameter, in double; the loop below is in the parameter's own type. */
    const double correction1 = 1 - pow(adamw->beta1, (double)adamw->update);
    const double correction2 = 1 - pow(adamw->beta2, (double)adamw->update);
    const real keep = (real)(1 - adamw->lr * adamw->weight_decay), step = (real)(adamw->lr / correction1);
    const real gain1 = (real)(1 - adamw->beta1), beta2 = (real)adamw->beta2, gain2 = (real)(1 - adamw->beta2);
    const real root_correction2 = (real)sqrt(correction2), eps = (real)adamw->eps;
    const real *const gradient = dw;
    real *const weight = w, *const average = m, *const square = v;
    for (size_t i = 0; i < count; i++) {
        average[i] += gain1 * (gradient[i] - average[i]);
        square[i] = beta2 * square[i] + gain2 * gradient[i] * gradient[i];
        const real root = (real)sqrt((double)square[i]) / root_correction2;
        weight[i] = keep * weight[i] - step * average[i] / (root + eps);
    }
    return LS_OK;
}

#endif
