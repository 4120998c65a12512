#!/bin/sh
# `lockstep bench all-reduce --json` prints an object a line, for every way that is measured, with the fields that are promised;
# peers that are there are measured beside the library, and one that fails is left out. No speed is asserted.
set -u
source=$1
command=$2/bin/lockstep
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
fail() { echo "$1"; cat "$work/lines" "$work/errors"; exit 1; }

# The peers that are installed, and one that never comes up.
mkdir -p "$work/peers/broken"
if command -v mpicc.openmpi > /dev/null && command -v cc > /dev/null; then
    "$source/scripts/bench-peers.sh" --installed "$work/peers" > /dev/null 2>&1
    rm -rf "$work/peers/mpich"
fi
printf '#!/bin/sh\nexit 3\n' > "$work/peers/broken/start" && chmod +x "$work/peers/broken/start"

"$command" bench all-reduce --ranks 2 --rounds 2 --most-bytes 16384 --peers "$work/peers" --json \
    > "$work/lines" 2> "$work/errors" || fail "the benchmark failed"
grep -q "left out: the ranks that $work/peers/broken/start starts did not come up" "$work/errors" ||
    fail "nothing is said of a peer that does not come up"

object='^{"bench":"all-reduce","impl":"[a-z-]*","version":"[0-9.]*","ranks":2,"bytes":[0-9]*,'
object=$object'"memory":"\(group\|ordinary\)","mode":"\(blocking\|async\|overlap\|asleep\)","pattern":"\(fresh\|repeat\)",'
object=$object'"median_us":[0-9.]*,"best_us":[0-9.-]*,"ratios":{\("[a-z0-9 .-]*":[0-9.]*,\{0,1\}\)*}}$'
grep -v "$object" "$work/lines" && fail "not as promised"

for bytes in 4 64 256 1024 4096 16384; do
    for pattern in fresh repeat; do
        for memory in group ordinary; do
            for mode in blocking async overlap asleep; do
                grep "lockstep-shm\".*\"bytes\":$bytes,\"memory\":\"$memory\",\"mode\":\"$mode\",\"pattern\":\"$pattern" \
                    "$work/lines" | grep -q '"ratios":{"reachable":' || fail "missing: $bytes $memory $mode $pattern"
            done
        done
        grep -q "reachable\".*\"bytes\":$bytes,\"memory\":\"group\",\"mode\":\"blocking\",\"pattern\":\"$pattern" \
            "$work/lines" || fail "no yardstick: $bytes $pattern"
    done
done
if [ -x "$work/peers/open-mpi/start" ]; then
    grep -q '"impl":"open-mpi","version":"[0-9]' "$work/lines" || fail "Open MPI is installed and was not measured"
    grep -q '"impl":"lockstep-shm".*"ratios":{.*"open-mpi [0-9.]*":[0-9]' "$work/lines" || fail "no ratio to Open MPI"
fi

# More ranks than processors: no yardstick, and an end.
"$command" bench all-reduce --ranks "$(($(nproc) * 2))" --rounds 1 --most-bytes 64 --peers none --json \
    > "$work/lines" 2> "$work/errors" || fail "more ranks than processors failed"
grep -q '"impl":"reachable"' "$work/lines" && fail "the yardstick ran without processors enough"
grep -q '"impl":"lockstep-shm".*"ratios":{}' "$work/lines" || fail "nothing measured with more ranks than processors"

# A table without --json, and wrong options are refused.
"$command" bench all-reduce --most-bytes 4 --rounds 1 --peers none > "$work/lines" 2> "$work/errors"
grep -q '^lockstep-shm .* 4  group  *blocking' "$work/lines" || fail "no table"
for wrong in "--ranks 1" "--ranks x" "--most-bytes 1" "--least-bytes x" "--rounds 0" "--nonsense" "more"; do
    # shellcheck disable=SC2086  # two words
    "$command" bench all-reduce $wrong > "$work/lines" 2>&1
    [ $? -eq 2 ] || fail "not refused: $wrong"
    grep -q "Usage: lockstep bench all-reduce" "$work/lines" || fail "no usage: $wrong"
done
"$command" bench nothing > "$work/lines" 2>&1
[ $? -eq 2 ] || fail "an unknown benchmark is not refused"
