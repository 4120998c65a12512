/* exposed.c: steps in pairs, one that communicates and one under no_sync, whose difference is what communication costs
 * after all that backward hides of it. The time spent in a wait would say less: a rank also waits for a slower one. */
#include "train_image/exposed.h"

#include "train_image/clock.h"

#include <math.h>
#include <stdlib.h>

#define PAIRS 10
#define SETTLING_STEPS 4 /* memory is touched first, buckets are laid out anew */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[PAIRS]) {
    qsort(values, PAIRS, sizeof *values, compare);
    return (values[(PAIRS - 1) / 2] + values[PAIRS / 2]) / 2;
}

ls_status exposed_measure(exposed *found, ls_group *group, ls_ddp *ddp, ls_status (*step)(void *context),
                          void *context) {
    double together[PAIRS] = {0}, alone[PAIRS] = {0};
    for (int i = -SETTLING_STEPS; i < 2 * PAIRS; i++) {
        /* The pairs' order alternates, so that what drifts meets both kinds alike. */
        const bool is_alone = (i & 3) == 1 || (i & 3) == 2;
        ls_status status = ls_group_barrier(group, NULL); /* nobody waits for a late start */
        if (status) return status;
        const double start = now_s();
        if (is_alone) ls_ddp_no_sync_begin(ddp);
        status = step(context);
        if (is_alone) ls_ddp_no_sync_end(ddp);
        if (status) return status;
        if (i >= 0) (is_alone ? alone : together)[i / 2] = 1000 * (now_s() - start);
    }
    for (int i = 0; i < PAIRS; i++) alone[i] = together[i] - alone[i];
    double means[2] = {median(together), median(alone)};
    const ls_status status = ls_group_all_reduce(group, means, 2, LS_F64, LS_AVERAGE, NULL);
    *found = (exposed){.step_ms = means[0], .exposed_ms = fmax(means[1], 0)};
    return status;
}
