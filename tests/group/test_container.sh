#!/bin/sh
# Where /dev/shm is small, as in a container, memory of the group is as large as elsewhere; and a rank maps of its peers' what it
# reduces: its page tables do not hold all that sixteen ranks have together.
set -u
build=$2
if [ "${LS_CONTAINER:-}" != made ]; then
    enter="unshare --mount"
    $enter true 2> /dev/null || { echo "skipped: no mount namespace can be made here (needs root)"; exit 77; }
    LS_CONTAINER=made exec $enter sh "$0" "$@"
fi
mount -t tmpfs -o size=1m none /dev/shm || exit 1
said=$(timeout 100 "$build/bin/lockstep" run -n 16 "$build/tests/worker_container" 2>&1) || { echo "$said"; exit 1; }
# Its own 16 MiB, a MiB of each peer's, and boards of half a MiB; all ranks have 256 MiB.
echo "$said" | awk '/mapped/ { ranks++; if ($NF > 100000) grown = 1 } END { exit ranks != 16 || grown }' || { echo "$said"; exit 1; }
