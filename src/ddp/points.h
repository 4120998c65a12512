/* points.h: the named points of the room's protocols (base/fault.h), for tests that kill a rank at each of them. */
#ifndef LS_DDP_POINTS_H
#define LS_DDP_POINTS_H

static const char *const ddp_points[] = {
    "ddp.verify.agreed",     /* no rank has failed so far; nothing is compared */
    "ddp.verify.exchanged",  /* all lists of parameters are known to be the same, or not */
    "ddp.wrap.broadcast",    /* replicas are equal */
    "ddp.buffers.broadcast", /* buffers are rank 0's */
    "ddp.header.posted",     /* our record is on its way */
    "ddp.header.taken",      /* everyone's record is read */
    "ddp.bucket.posted",     /* a bucket has started */
    "ddp.footer.posted",     /* all buckets and the footer have started */
    "ddp.footer.taken",      /* the step's verdict is known */
    "ddp.rebuild.ordered",   /* rank 0's order of gradients is known */
    "ddp.rebuild.allocated", /* a new bucket is there, nothing is moved into it */
    "ddp.rebuild.moved",     /* the new layout is complete */
};

#define DDP_POINT_COUNT ((int)(sizeof ddp_points / sizeof ddp_points[0]))

#endif
