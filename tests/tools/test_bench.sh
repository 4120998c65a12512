#!/bin/sh
# `lockstep bench all-reduce --json` prints an object a line, for every way that is measured, with the fields that are promised.
# No speed is asserted.
set -u
command=$2/bin/lockstep
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
fail() { echo "$1"; cat "$work/lines"; exit 1; }

"$command" bench all-reduce --ranks 2 --most-bytes 16384 --json > "$work/lines" 2> "$work/errors" ||
    { cat "$work/errors"; fail "the benchmark failed"; }

object='^{"bench":"all-reduce","impl":"[a-z-]*","ranks":2,"bytes":[0-9]*,"memory":"\(group\|ordinary\)",'
object=$object'"mode":"\(blocking\|async\)","pattern":"\(fresh\|repeat\)","median_us":[0-9.]*,"best_us":[0-9.]*,"ratio":[0-9.]*}$'
grep -v "$object" "$work/lines" && fail "not as promised"

for bytes in 4 64 256 1024 4096 16384; do
    for pattern in fresh repeat; do
        for memory in group ordinary; do
            for mode in blocking async; do
                grep -q "lockstep-shm\",\"ranks\":2,\"bytes\":$bytes,\"memory\":\"$memory\",\"mode\":\"$mode\",\"pattern\":\"$pattern" \
                    "$work/lines" || fail "missing: $bytes $memory $mode $pattern"
            done
        done
        grep -q "reachable\",\"ranks\":2,\"bytes\":$bytes,\"memory\":\"group\",\"mode\":\"blocking\",\"pattern\":\"$pattern" \
            "$work/lines" || fail "no yardstick: $bytes $pattern"
    done
done
if [ -x "$2/bench/mpi_all_reduce" ] && command -v mpirun > /dev/null; then
    grep -q '"impl":"\(open-mpi\|mpich\|mpi\)"' "$work/lines" || fail "MPI is installed and was not measured"
fi

# A table without --json, and wrong options are refused.
"$command" bench all-reduce --most-bytes 4 | grep -q '^lockstep-shm  *4  group  *blocking' || fail "no table"
for wrong in "--ranks 1" "--ranks x" "--most-bytes 1" "--nonsense" "more"; do
    # shellcheck disable=SC2086  # two words
    "$command" bench all-reduce $wrong > "$work/lines" 2>&1
    [ $? -eq 2 ] || fail "not refused: $wrong"
    grep -q "Usage: lockstep bench all-reduce" "$work/lines" || fail "no usage: $wrong"
done
"$command" bench nothing > "$work/lines" 2>&1
[ $? -eq 2 ] || fail "an unknown benchmark is not refused"
