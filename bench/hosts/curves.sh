#!/bin/sh
# All-reduce over the hosts of one link, by size: a table for docs/pictures/hosts.gp.
#
#   curves.sh SOURCE_DIR BUILD_DIR [HOSTS [RATE]] > docs/pictures/hosts.csv
#
# Columns: bytes, and the median microseconds of tcp in rank order, of tcp in relaxed order, of Open MPI; "-" where there is none.
set -u
count=${3:-4} rate=${4:-1gbit}
. "$1/tests/hosts/network.sh"
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'; }

hosts "$count"
shape "$rate"
places=$(seq -s ' ' "$count")
addresses=$(for host in $places; do printf ',10.77.0.%s' "$host"; done)
export LOCKSTEP_BACKEND=tcp
echo "# bytes, tcp, tcp relaxed, open-mpi: microseconds, $count hosts, $rate"
for bytes in 64 1024 4096 16384 65536 262144 1048576 4194304 16777216; do
    rounds=$((bytes > 1000000 ? 7 : 51))
    ranks "$places" "$2/bench/hosts_all_reduce" $bytes $rounds
    finish 100
    strict=$(median "$folder/rank.0")
    ranks "$places" "$2/bench/hosts_all_reduce" $bytes $rounds relaxed
    finish 100
    relaxed=$(median "$folder/rank.0")
    : > "$folder/out"
    if [ -x "$2/bench/mpi_hosts_all_reduce" ]; then
        mpi_across "${addresses#,}" -n "$count" "$2/bench/mpi_hosts_all_reduce" $bytes $rounds > "$folder/out"
    fi
    echo "$bytes, $strict, $relaxed, $(median "$folder/out")"
done
