/* processes.c: reads /proc with plain system calls, as it also runs in the watcher, between fork and exit. */
#include "launch/processes.h"

#include "base/clock.h"
#include "base/wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* "123 (name) S 1 123 123 ...": the name may hold anything, so the rest is read from its last bracket. */
static bool read_process(const char *pid, launch_process *process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    /* It has ended since the folder was read. */
    if (bytes <= 0) return false;
    text[bytes] = '\0';
    const char *rest = strrchr(text, ')');
    char state = '\0';
    int parent = 0, session = 0;
    if (!rest || sscanf(rest + 1, " %c %d %*d %d", &state, &parent, &session) != 3) return false;
    *process = (launch_process){
        .pid = (pid_t)atoi(pid), .parent = parent, .session = session, .is_zombie = state == 'Z' || state == 'X'};
    return true;
}

void launch_each_process(void (*visit)(void *context, const launch_process *process), void *context) {
    DIR *folder = opendir("/proc");
    /* Without /proc (a sandbox) the process groups are all that is known. */
    if (!folder) return;
    const struct dirent *entry;
    launch_process process;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && read_process(entry->d_name, &process))
            visit(context, &process);
    closedir(folder);
}

bool launch_process_carries(pid_t pid, const char *text) {
    char path[64], piece[8192];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    /* Pieces overlap by what may be the text's beginning. */
    const size_t length = strlen(text);
    size_t kept = 0;
    bool is_found = false;
    ssize_t bytes;
    while (!is_found && (bytes = read(file, piece + kept, sizeof piece - kept)) > 0) {
        const size_t held = kept + (size_t)bytes;
        /* Settings end with a zero byte, which strstr would stop at. */
        is_found = memmem(piece, held, text, length) != NULL;
        kept = held < length - 1 ? held : length - 1;
        memmove(piece, piece + held - kept, kept);
    }
    close(file);
    return is_found;
}

bool launch_process_end(pid_t child) {
    const int64_t deadline_ns = ls_now_ns() + LS_NS_PER_S;
    kill(child, SIGKILL);
    /* Not a waitpid that blocks: a child that a debugger traces, or whose file system hangs, may come late. */
    bool has_ended;
    while (!(has_ended = waitpid(child, NULL, WNOHANG) != 0) && ls_now_ns() < deadline_ns)
        ls_sleep_until(ls_now_ns() + LS_NS_PER_MS / 10);
    return has_ended;
}
