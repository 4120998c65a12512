/* fault.h: where tests reach in. The library asks at each allocation, system call and thread start whether it should
 * fail, and names the points of its protocols; without a hook both cost one load. Only tests install hooks
 * (tests/support/faults.h), once, before the library is used. */
#ifndef LS_BASE_FAULT_H
#define LS_BASE_FAULT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum ls_fault_kind { LS_FAULT_MEMORY = 1, LS_FAULT_SYSCALL = 2, LS_FAULT_THREAD = 4 } ls_fault_kind;

typedef struct ls_fault_hooks {
    bool (*should_fail)(ls_fault_kind kind); /* may be NULL */
    void (*reached)(const char *point);      /* may be NULL; may not return (a kill) */
} ls_fault_hooks;

extern const ls_fault_hooks *ls_fault_hooks_installed;

/* True when the call that follows has to be treated as failed. */
static inline bool ls_fault(ls_fault_kind kind) {
    const ls_fault_hooks *hooks = ls_fault_hooks_installed;
    return __builtin_expect(hooks != NULL, 0) && hooks->should_fail && hooks->should_fail(kind);
}

/* A system call that a test may have fail: -1 with errno `failure`, else what `call` returns.
 *     const int memory = LS_SYSCALL(EMFILE, memfd_create("lockstep", MFD_CLOEXEC));                                  */
#define LS_SYSCALL(failure, call) (ls_fault(LS_FAULT_SYSCALL) ? (errno = (failure), -1) : (call))

/* Names a point of a protocol, "room.operation.moment": tests kill or stop a rank exactly here. */
static inline void ls_point(const char *point) {
    const ls_fault_hooks *hooks = ls_fault_hooks_installed;
    if (__builtin_expect(hooks != NULL, 0) && hooks->reached) hooks->reached(point);
}

#endif
