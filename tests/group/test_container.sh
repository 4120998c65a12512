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
# An entry of 8 bytes a page of 4 KiB: of the rank's own 16 MiB 32 KB, of all ranks' 512.
echo "$said" | awk '/page tables/ { ranks++; if ($NF > 300) grown = 1 } END { exit ranks != 16 || grown }' || { echo "$said"; exit 1; }
