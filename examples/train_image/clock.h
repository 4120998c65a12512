/* clock.h: seconds on a clock that only goes forward. */
#ifndef TRAIN_IMAGE_CLOCK_H
#define TRAIN_IMAGE_CLOCK_H

#include <time.h>

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
