/* A rank in a sandbox: it first takes something away from itself, then meets the others and sums.
 *
 *   worker_sandbox files NUMBER      may have so many descriptors
 *   worker_sandbox soft NUMBER       the same, until it has tried
 *   worker_sandbox refuse CALL       the kernel refuses "pidfd_open" or "memfd_create"
 *   worker_sandbox nothing
 *
 * Exit codes: 0, or 3 after a failure, whose status and sentence are printed; 77: nothing can be refused here. */
#include <lockstep/group.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static int limit_files(rlim_t number, rlim_t most) {
    return setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = number, .rlim_max = most});
}

static int refuse(unsigned call) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    struct rlimit before;
    int failed = getrlimit(RLIMIT_NOFILE, &before);
    if (argc == 3 && strcmp(argv[1], "files") == 0) failed = limit_files((rlim_t)atoi(argv[2]), (rlim_t)atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "soft") == 0) failed = limit_files((rlim_t)atoi(argv[2]), before.rlim_max);
    if (argc == 3 && strcmp(argv[1], "refuse") == 0)
        failed = refuse(strcmp(argv[2], "pidfd_open") == 0 ? SYS_pidfd_open : SYS_memfd_create);
    if (failed) return 77;
    ls_group *group = NULL;
    float sum = 1;
    ls_status status = ls_group_open(&group, NULL);
    if (status == LS_OK) status = ls_group_all_reduce(group, &sum, 1, LS_F32, LS_SUM, NULL);
    printf("%s: %s\n", ls_status_name(status), status == LS_OK ? "done" : ls_last_error());
    ls_group_close(&group);
    setrlimit(RLIMIT_NOFILE, &before); /* a sanitizer's last look wants some */
    return status == LS_OK ? 0 : 3;
}
