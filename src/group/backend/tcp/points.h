/* points.h: the named points of the protocols over TCP, as in group/points.h. */
#ifndef LS_GROUP_TCP_POINTS_H
#define LS_GROUP_TCP_POINTS_H

static const char *const tcp_points[] = {
    "tcp.meeting.published", /* our card can be read */
    "tcp.meeting.listed",    /* we have everyone's */
    "tcp.meeting.connected", /* one connection is proved */
    "tcp.meeting.met",       /* all of ours are */
    "tcp.calls.said",        /* peers know what we call, nothing has moved */
    "tcp.chunk.sent",        /* a part of our data is out */
    "tcp.chunk.received",    /* a part of a peer's is here */
    "tcp.message.offered",   /* the other rank can see our message */
    "tcp.message.granted",   /* we want the other rank's message */
    "tcp.message.written",   /* a part of a message is out */
    "tcp.message.read",      /* a part of a message is here */
    "tcp.operation.done",    /* an operation is complete here */
    "tcp.leaving.said",      /* peers know that we leave, or why the group is lost */
};

#define TCP_POINT_COUNT ((int)(sizeof tcp_points / sizeof tcp_points[0]))

#endif
