#!/bin/sh
# All-reduce between hosts, beside what the link moves and beside Open MPI over TCP: network namespaces, links shaped to RATE.
#
#   hosts.sh SOURCE_DIR BUILD_DIR [BYTES [RATE...]]
#
# In turn, TURNS times: a plain two-way stream, Lockstep's tcp backend, Open MPI (where it is installed). Prints a JSON object a
# measurement; "ratio" is the median of the stream's time over this one's, turn by turn.
set -u
source=$1 build=$2 bytes=${3:-26214400}
if [ $# -gt 3 ]; then shift 3; rates=$*; else rates="1gbit 10gbit"; fi
TURNS=${TURNS:-7} ROUNDS=${ROUNDS:-5}
set -- "$source" "$build" "$bytes" $rates
. "$source/tests/hosts/network.sh"

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

stream() {
    on 1 "$build/bench/stream" listen 29600 "$bytes" "$ROUNDS" > "$folder/out" &
    on 2 "$build/bench/stream" 10.77.0.1 29600 "$bytes" "$ROUNDS"
    wait $!
}

lockstep_tcp() {
    LOCKSTEP_BACKEND=tcp
    export LOCKSTEP_BACKEND
    ranks "1 2" "$build/bench/hosts_all_reduce" "$bytes" "$ROUNDS"
    finish 120
    cat "$folder/rank.1" >&2
    cp "$folder/rank.0" "$folder/out"
}

open_mpi() {
    mpi_across 10.77.0.1,10.77.0.2 -n 2 "$build/bench/mpi_hosts_all_reduce" "$bytes" "$ROUNDS" > "$folder/out"
}

measure() { # NAME COMMAND: the median of its rounds, one more line of the turn's
    $2
    median "$folder/out" >> "$folder/$1"
}

report() { # NAME RATE
    median_us=$(median "$folder/$1")
    ratio=$(paste "$folder/stream" "$folder/$1" | awk '{ print $1 / $2 }' | sort -g > "$folder/ratios"; median "$folder/ratios")
    printf '{"bench":"all-reduce-hosts","impl":"%s","ranks":2,"bytes":%s,"link":"%s","median_us":%s,"ratio":%s}\n' \
        "$1" "$bytes" "$2" "$median_us" "$ratio"
}

hosts 2
for rate in $rates; do
    shape "$rate"
    rm -f "$folder/stream" "$folder/lockstep-tcp" "$folder/open-mpi"
    for turn in $(seq "$TURNS"); do
        measure stream stream
        measure lockstep-tcp lockstep_tcp
        if [ -x "$build/bench/mpi_hosts_all_reduce" ]; then measure open-mpi open_mpi; fi
    done
    for name in stream lockstep-tcp open-mpi; do
        if [ -s "$folder/$name" ]; then report "$name" "$rate"; fi
    done
done
