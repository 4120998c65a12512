/* exposed.h: exposed communication: what a step takes longer because ranks exchange gradients. */
#ifndef TRAIN_IMAGE_EXPOSED_H
#define TRAIN_IMAGE_EXPOSED_H

#include <lockstep/ddp.h>

/* Medians over paired steps, means over ranks. */
typedef struct exposed {
    double step_ms;    /* a step */
    double exposed_ms; /* a step less the same step without communication; at least 0 */
} exposed;

/* Calls step(context), which trains the module that `ddp` wraps by one step, 24 times: a throw-away copy is what it
 * should train. Collective over `group`. */
ls_status exposed_measure(exposed *found, ls_group *group, ls_ddp *ddp, ls_status (*step)(void *context),
                          void *context);

#endif
