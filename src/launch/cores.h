/* cores.h: how many processors this process may really use. */
#ifndef LS_LAUNCH_CORES_H
#define LS_LAUNCH_CORES_H

/* The processors this process may run on, cut to what its cgroup's quota allows; at least 1. */
int launch_cores(void);

/* The quota of the cgroup (v1 or v2) in whole processors, at least 1; 0 without one. `groups` is a file as
 * /proc/self/cgroup, `root` the folder where cgroups are mounted. */
int launch_cores_quota(const char *groups, const char *root);

#endif
