#!/bin/sh
# Groups over Open MPI across hosts.
set -u
. "$1/tests/hosts/network.sh"
plugin=$(find "$2" -name liblockstep-mpi-openmpi.so | head -n 1)
if [ -z "$plugin" ] || ! command -v mpirun.openmpi > /dev/null; then
    echo "skipped: Open MPI is not installed, or the plugin for it is not built"; exit 77
fi

hosts 2
mpi_across 10.77.0.1:2,10.77.0.2:2 -n 4 "$2/tests/worker_table" 5 > "$folder/rank.all" 2>&1 ||
    wrong "the collectives of four ranks on two hosts ended with $?"
count=$(grep -c "is done" "$folder/rank.all")
[ "$count" -eq 4 ] || wrong "of 4 ranks $count said that they were done"
exit $result
