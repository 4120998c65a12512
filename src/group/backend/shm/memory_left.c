/* memory_left.c: how much memory there is before the kernel starts to kill: what the machine has available, and what each
 * memory cgroup above this process (version 1 or 2) still allows. Cached file pages count as available in both. */
#include "group/backend/shm/segment.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024

static bool read_number(const char *folder, const char *file, uint64_t *number) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *stream = fopen(path, "re");
    if (!stream) return false;
    const bool is_number = fscanf(stream, "%" SCNu64, number) == 1; /* "max" is none */
    fclose(stream);
    return is_number;
}

/* The number behind `key` in a file of lines "key number" or "key: number kB". */
static bool read_field(const char *path, const char *key, uint64_t *number) {
    FILE *stream = fopen(path, "re");
    if (!stream) return false;
    char line[256];
    const size_t length = strlen(key);
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, stream))
        is_found = strncmp(line, key, length) == 0 && sscanf(line + length, "%" SCNu64, number) == 1;
    fclose(stream);
    return is_found;
}

/* Lowers `left` to what one cgroup allows. */
static void limit_by(const char *folder, const char *limit_file, const char *usage_file, uint64_t *left) {
    uint64_t limit = 0, used = 0, cached = 0;
    if (!read_number(folder, limit_file, &limit) || !read_number(folder, usage_file, &used)) return;
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (!read_field(path, "total_inactive_file ", &cached)) read_field(path, "inactive_file ", &cached);
    used = used > cached ? used - cached : 0;
    const uint64_t here = limit > used ? limit - used : 0;
    if (here < *left) *left = here;
}

/* `path` within `mount`, and every group above it: each limit holds for all below. In a container the path may be one that
 * only the host has; then the folders are missing, and the mount's root, which is always looked at, has the limit. */
static void limit_by_all(const char *mount, char *path, const char *limit_file, const char *usage_file,
                         uint64_t *left) {
    char folder[PATH_BYTES];
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", mount, path);
        limit_by(folder, limit_file, usage_file, left);
        char *last = strrchr(path, '/');
        if (!last || !*path) return;
        *last = '\0';
    }
}

static void limit_by_cgroups(uint64_t *left) {
    FILE *stream = fopen("/proc/self/cgroup", "re");
    if (!stream) return;
    char line[PATH_BYTES];
    while (fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        controllers++;
        if (*controllers == '\0')
            limit_by_all("/sys/fs/cgroup", path, "memory.max", "memory.current", left);
        else if (strstr(controllers, "memory"))
            limit_by_all("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", left);
    }
    fclose(stream);
}

ls_status shm_memory_check(size_t bytes) {
    uint64_t left = UINT64_MAX, available_kib = 0;
    if (read_field("/proc/meminfo", "MemAvailable:", &available_kib)) left = available_kib * 1024;
    limit_by_cgroups(&left);
    if (bytes <= left) return LS_OK;
    return ls_fail(LS_ERR_MEMORY,
                   "%zu bytes of group memory are wanted by the ranks of this host, %" PRIu64
                   " are left (the machine's memory, or its cgroup's limit); use smaller buckets or fewer ranks",
                   bytes, left);
}
