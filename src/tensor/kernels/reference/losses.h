/* losses.h: sums, means, losses. Sums are kept in double, in order. A template as rows.h. */
#ifndef LS_REFERENCE_LOSSES_H
#define LS_REFERENCE_LOSSES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

static double total(size_t count, const real *x) {
    /* In double also for floats: a sum of a million terms keeps its digits. */
    double sum_so_far = 0;
    for (size_t i = 0; i < count; i++) sum_so_far += (double)x[i];
    return sum_so_far;
}

static ls_status sum(size_t count, const void *x, void *y) {
    *(real *)y = (real)total(count, x);
    return LS_OK;
}

/* Over no elements 0 / 0, NaN, as in PyTorch. */
static ls_status mean(size_t count, const void *x, void *y) {
    *(real *)y = (real)(total(count, x) / (double)count);
    return LS_OK;
}

static ls_status mse_forward(size_t count, const void *x, const void *target, void *loss) {
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double difference = (double)((const real *)x)[i] - (double)((const real *)target)[i];
        squares += difference * difference;
    }
    *(real *)loss = (real)(squares / (double)count);
    return LS_OK;
}

static ls_status mse_backward(size_t count, const void *x, const void *target, double dloss, void *dx) {
    const real factor = (real)(2 * dloss / (double)count);
    for (size_t i = 0; i < count; i++) {
        ((real *)dx)[i] = factor * (((const real *)x)[i] - ((const real *)target)[i]);
    }
    return LS_OK;
}

static int64_t label_at(ls_dtype label_dtype, const void *labels, int64_t n) {
    return label_dtype == LS_U8 ? ((const uint8_t *)labels)[n] : ((const int64_t *)labels)[n];
}

static ls_status check_labels(int64_t batch, int64_t classes, ls_dtype label_dtype, const void *labels) {
    /* Labels are data of the user's, read as an index: looked at before anything is written. */
    if (label_dtype != LS_I64 && label_dtype != LS_U8) {
        return ls_fail(LS_ERR_ARGUMENT, "cross-entropy takes labels of type i64 or u8, not %s",
                       ls_dtype_name(label_dtype));
    }
    for (int64_t n = 0; n < batch; n++) {
        const int64_t label = label_at(label_dtype, labels, n);
        if (label < 0 || label >= classes) {
            return ls_fail(LS_ERR_ARGUMENT,
                           "cross-entropy: the label of sample %lld is %lld, outside the %lld classes of the logits",
                           (long long)n, (long long)label, (long long)classes);
        }
    }
    return LS_OK;
}

/* probabilities = softmax(x) of one row; returns log sum_c exp(x[c]). Shifted by the largest, so that nothing
 * overflows. */
static double softmax_row(int64_t classes, const real *x, real *probabilities) {
    double largest = (double)x[0];
    for (int64_t c = 1; c < classes; c++) largest = (double)x[c] > largest ? (double)x[c] : largest;
    double denominator = exp((double)x[0] - largest);
    for (int64_t c = 1; c < classes; c++) denominator += exp((double)x[c] - largest);
    for (int64_t c = 0; c < classes; c++) probabilities[c] = (real)(exp((double)x[c] - largest) / denominator);
    return largest + log(denominator);
}

static ls_status cross_entropy_forward(int64_t batch, int64_t classes, const void *x, ls_dtype label_dtype,
                                       const void *labels, void *probabilities, void *loss) {
    LS_TRY(check_labels(batch, classes, label_dtype, labels));
    double losses = 0;
    for (int64_t n = 0; n < batch; n++) {
        const real *const x_row = (const real *)x + n * classes;
        const double log_sum = softmax_row(classes, x_row, (real *)probabilities + n * classes);
        /* -log of the probability, without ever taking the logarithm of one that was rounded to 0. */
        losses += log_sum - (double)x_row[label_at(label_dtype, labels, n)];
    }
    *(real *)loss = (real)(losses / (double)batch);
    return LS_OK;
}

static ls_status cross_entropy_backward(int64_t batch, int64_t classes, const void *probabilities, ls_dtype label_dtype,
                                        const void *labels, double dloss, void *dx) {
    LS_TRY(check_labels(batch, classes, label_dtype, labels));
    const real factor = (real)(dloss / (double)batch);
    for (int64_t n = 0; n < batch; n++) {
        const int64_t label = label_at(label_dtype, labels, n);
        for (int64_t c = 0; c < classes; c++) {
            const real probability = ((const real *)probabilities)[n * classes + c];
            ((real *)dx)[n * classes + c] = factor * (probability - (c == label ? 1 : 0));
        }
    }
    return LS_OK;
}

#endif
