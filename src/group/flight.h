/* flight.h: the flight recorder: the last operations of a group, kept always, and written as JSON when the group is lost or
 * the process gets SIGUSR2, if LOCKSTEP_FLIGHT_DIR names a folder. `lockstep doctor --flight DIR` reads the ranks' files. */
#ifndef LS_GROUP_FLIGHT_H
#define LS_GROUP_FLIGHT_H

#include "base/thread.h"
#include "base/wait.h"
#include "group/backend.h"

#define FLIGHT_ENTRIES 2000

typedef enum flight_state { FLIGHT_NEVER = 0, FLIGHT_STARTED, FLIGHT_COMPLETED, FLIGHT_FAILED } flight_state;

/* An operation. Written by the driver, read by whoever writes the file, perhaps while it changes: each field by itself is
 * whole. Times are base/clock.h; 0: nobody had asked for the time, since the operation was over at once. */
typedef struct flight_entry {
    _Alignas(64) _Atomic uint64_t record; /* 1, 2, ... of this group on this rank */
    _Atomic uint64_t number, count, tag;
    _Atomic int64_t posted_ns, started_ns, ended_ns;
    _Atomic uint32_t what; /* kind, dtype, op and state, a byte each */
    _Atomic int32_t root;
} flight_entry;

typedef struct flight_recorder {
    flight_entry *entries; /* [FLIGHT_ENTRIES], by record modulo their number */
    _Atomic uint64_t recorded;
    ls_mutex writing; /* the file: one writer at a time; before the group's lock */
    ls_thread watcher;
    ls_word ending;     /* of the watcher */
    uint32_t signalled; /* SIGUSR2 answered so far; the watcher's */
} flight_recorder;

/* NULL entries: memory was refused. */
ls_status flight_open(flight_recorder *recorder);
void flight_close(flight_recorder *recorder);

/* The driver begins an operation, and ends it. Returns the record. */
uint64_t flight_begin(flight_recorder *recorder, const backend_op *op, int64_t posted_ns);
/* It waits since then: for who had not asked for the time before. */
void flight_started(flight_recorder *recorder, uint64_t record, int64_t started_ns);
void flight_end(flight_recorder *recorder, uint64_t record, int64_t started_ns, int64_t ended_ns, bool is_done);

/* Writes the group's file, if a folder is named. What fails is logged: the failure that led here matters more. */
void flight_write(ls_group *group);

/* Where a folder is named: until `flight_unwatch`, SIGUSR2 has the file written, whatever the rank is at. That it cannot is
 * logged. */
void flight_watch(ls_group *group);
void flight_unwatch(flight_recorder *recorder);

#endif
