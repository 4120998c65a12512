#!/bin/sh
# `lockstep bench startup --json` prints an object for each number of ranks and each starter that is installed. No speed is asserted.
set -u
command=$2/bin/lockstep
# MPICH's UCX watches memory in a way that no ThreadSanitizer bears, and what Open MPI leaks at its end is not ours.
export UCX_MEM_EVENTS=n ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
fail() { echo "$1"; cat "$work/lines" "$work/errors"; exit 1; }

"$command" bench startup --ranks 1,3 --rounds 1 --json > "$work/lines" 2> "$work/errors" || fail "the benchmark failed"
number='[0-9][0-9]*\.[0-9]*'
object='^{"bench":"startup","impl":"[a-z-]*","ranks":[13],"rounds":1,'
object=$object'"median_ms":'$number',"best_ms":'$number',"whole_ms":'$number'}$'
grep -v "$object" "$work/lines" && fail "not as promised"
for ranks in 1 3; do
    for impl in lockstep no-meeting; do
        grep -q "\"impl\":\"$impl\",\"ranks\":$ranks," "$work/lines" || fail "$impl: $ranks ranks are missing"
    done
    if [ -x "$2/bench-openmpi/mpi_startup" ] && command -v mpirun.openmpi > /dev/null; then
        grep -q "\"impl\":\"open-mpi\",\"ranks\":$ranks," "$work/lines" || fail "Open MPI is installed and was not measured"
    fi
    if [ -x "$2/bench-mpich/mpi_startup" ] && command -v mpiexec.hydra > /dev/null; then
        grep -q "\"impl\":\"mpich\",\"ranks\":$ranks," "$work/lines" || fail "MPICH is installed and was not measured"
    fi
done

for wrong in "--ranks 0" "--ranks 2," "--ranks x" "--rounds 0" "--nonsense" "more"; do
    # shellcheck disable=SC2086  # two words
    "$command" bench startup $wrong > "$work/lines" 2> "$work/errors"
    [ $? -eq 2 ] || fail "not refused: $wrong"
    grep -q "Usage: lockstep bench startup" "$work/errors" || fail "no usage: $wrong"
done
exit 0
