/* cores.c: counting all processors, as many launchers do, overloads a container that has two of sixty-four. */
#include "launch/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int affinity(void) {
    /* Larger than the kernel's own mask, or the call refuses. */
    for (int most = 1024; most <= 1 << 20; most *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)most);
        if (!set) return 1;
        const size_t bytes = CPU_ALLOC_SIZE((size_t)most);
        const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
    return 1;
}

/* Reads up to two numbers from the file folder/name; "max" is -1. */
static int read_numbers(const char *folder, const char *name, long long *numbers) {
    char path[PATH_MAX], text[64] = "";
    snprintf(path, sizeof path, "%.*s/%s", PATH_MAX - 64, folder, name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!is_read) return 0;
    /* v2 writes "max 100000" where nothing is limited. */
    if (strncmp(text, "max", 3) == 0) {
        numbers[0] = -1;
        return 1;
    }
    return sscanf(text, "%lld %lld", &numbers[0], &numbers[1]);
}

/* Processors that the quota of one folder allows; 0: no quota, or no such folder. */
static int quota_of(const char *folder) {
    long long v2[2] = {0}, quota[2] = {0}, period[2] = {0};
    if (read_numbers(folder, "cpu.max", v2) == 2) {
        quota[0] = v2[0];
        period[0] = v2[1];
    } else {
        read_numbers(folder, "cpu.cfs_quota_us", quota);
        read_numbers(folder, "cpu.cfs_period_us", period);
    }
    /* v1 writes -1 where nothing is limited. */
    if (quota[0] <= 0 || period[0] <= 0) return 0;
    /* Rounded down, so that ranks do not take turns; half a processor still carries one rank. */
    return quota[0] < period[0] ? 1 : (int)(quota[0] / period[0]);
}

/* The smallest quota from the group at `path` up to the mount: each of them binds. In a container the path may be the
 * host's, and then only the mount itself is there. */
static int quota_upwards(const char *mount, const char *path) {
    char folder[PATH_MAX];
    const size_t mount_length = strlen(mount);
    if (snprintf(folder, sizeof folder, "%s%s", mount, path) >= (int)sizeof folder) return 0;
    int smallest = 0;
    for (;;) {
        const int quota = quota_of(folder);
        if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= mount_length || !slash || (size_t)(slash - folder) < mount_length) return smallest;
        *slash = '\0';
    }
}

/* Whether the comma-separated controllers of a v1 line have "cpu" among them. */
static bool has_cpu(const char *controllers) {
    for (const char *at = controllers; *at;) {
        const size_t length = strcspn(at, ",");
        if (length == 3 && strncmp(at, "cpu", 3) == 0) return true;
        at += length;
        if (*at) at++;
    }
    return false;
}

int launch_cores_quota(const char *groups, const char *root) {
    FILE *file = fopen(groups, "re");
    if (!file) return 0;
    char line[PATH_MAX];
    int smallest = 0;
    /* "0::/path" for v2, "4:cpu,cpuacct:/path" for v1 */
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        controllers++;
        char mount[PATH_MAX];
        /* v2 has one tree, v1 one for each set of controllers, mounted under their names. */
        if (*controllers == '\0')
            snprintf(mount, sizeof mount, "%s", root);
        else if (!has_cpu(controllers) ||
                 snprintf(mount, sizeof mount, "%s/%s", root, controllers) >= (int)sizeof mount)
            continue;
        const int quota = quota_upwards(mount, path);
        if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    }
    fclose(file);
    return smallest;
}

int launch_cores(void) {
    const int allowed = affinity(), quota = launch_cores_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 && quota < allowed ? quota : allowed;
}
