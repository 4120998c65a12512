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

# Each rank writes a file of its own: what mpirun carries stays behind where a link is cut.
across() { # COMMAND...
    rm -f "$folder"/rank.*
    echo "exec $* > '$folder'/rank.\$OMPI_COMM_WORLD_RANK 2>&1" > "$folder/start"
    mpi_across 10.77.0.1:1,10.77.0.2:1 -n 2 sh "$folder/start"
}

# Packets late and lost change nothing but the time.
far "$2" 1 2 20 1
mpi_over=far
across "$2/tests/worker_hosts" 1000000 3 40000 || wrong "with loss and delay the two ranks ended with $?"
[ "$(on 1 cat /sys/class/net/far/statistics/tx_bytes)" -gt 1000000 ] || wrong "the way with loss and delay was not taken"
for rank in 0 1; do grep -q '^done' "$folder/rank.$rank" || wrong "with loss and delay rank $rank was not done"; done

# A link that is cut in the middle of an all-reduce ends it at the group's limit. Which rank it misses MPI cannot say; who asks by
# a monitored barrier meanwhile learns it. For mpirun the link comes back.
mpi_over=eth0
LOCKSTEP_TEST_ASKS=1 across "$2/tests/worker_hosts" 4000000 60 6000 > "$folder/launcher" 2>&1 &
await ready 0 1
sleep 0.5
unplug 2
await error 0 1
plug 2
wait $!
for rank in 0 1; do
    grep -q '^asked: rank '$((1 - rank)) "$folder/rank.$rank" || wrong "rank $rank did not learn which rank it missed"
    grep -q '^error: .* within 6000 ms; missing: MPI does not tell' "$folder/rank.$rank" || wrong "rank $rank was not ended by its limit"
done
exit $result
