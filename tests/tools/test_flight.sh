#!/bin/sh
# A job whose rank 1 does not come to an all-reduce: the others write their flight recorders, and the doctor says so.
set -u
build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() { echo "$1"; cat "$folder/said" "$folder/job" 2> /dev/null; exit 1; }
has() { grep -q -- "$1" "$folder/said" || fail "missing: $1"; }

LOCKSTEP_FLIGHT_DIR="$folder/flight" "$build/bin/lockstep" run -n 3 "$build/tests/worker_group" hangs > "$folder/job" 2>&1 ||
    fail "the job failed"
grep -q 'status LS_ERR_ABORTED' "$folder/job" || fail "nobody ran out of time"

"$build/bin/lockstep" doctor --flight "$folder/flight" > "$folder/said" 2>&1 || fail "the doctor failed"
has 'of 3 ranks: stuck in operation 3, all-reduce of 10 f32 sum'
has 'waiting in it: rank 0, 2'
has 'no file of rank 1'
has 'rank 0 says: operation 3, all-reduce of 10 f32 sum, was not complete within 700 ms; missing: rank 1'

# The fields that PyTorch's tools read.
for field in record_id collective_seq_id profiling_name input_sizes input_dtypes time_created_ns state retired; do
    grep -q "\"$field\"" "$folder"/flight/flight-0-*.json || fail "no field $field"
done

# A rank that was asked by a signal where it is, and is in no operation; a message that hangs; a group in which nothing does.
mkdir "$folder/asked"
write() { # RANK GROUP ENTRIES
    echo "{\"world_size\": 3, \"failure\": \"\", \"entries\": [$3]}" > "$folder/asked/flight-$1-$2.json"
}
entry() { # NUMBER STATE NAME [IS_P2P]
    echo "{\"collective_seq_id\": $1, \"state\": \"$2\", \"profiling_name\": \"$3\", \"is_p2p\": ${4:-false}}"
}
begun=$(entry 1 completed barrier)
hung=$(entry 2 started 'all-reduce of 7 f32 sum')
write 0 one "$begun, $hung, $(entry 0 started 'receive of 1 i64 from rank 2 with tag 3' true)"
write 1 one "$begun, $(entry 0 scheduled 'all-reduce of 7 f32 sum')"
write 2 one "$begun, $hung, $(entry 0 completed 'send of 1 i64 to rank 0 with tag 4' true)"
for rank in 0 1 2; do write $rank two "$begun"; done
"$build/bin/lockstep" doctor --flight "$folder/asked" > "$folder/said" 2>&1 || fail "the doctor failed"
printf '%s\n' 'group one of 3 ranks: stuck in operation 2, all-reduce of 7 f32 sum' '  waiting in it: rank 0, 2' \
    '  has not come to it: rank 1' '  rank 0 waits in receive of 1 i64 from rank 2 with tag 3' \
    'group two of 3 ranks: nothing is under way; all have completed operation 1' > "$folder/expected"
cmp -s "$folder/said" "$folder/expected" || fail "the doctor says something else"

"$build/bin/lockstep" doctor --flight "$folder/none" > "$folder/said" 2>&1 && fail "a folder that is not there is fine"
has 'cannot open the folder'
mkdir "$folder/empty"
"$build/bin/lockstep" doctor --flight "$folder/empty" > "$folder/said" 2>&1 && fail "an empty folder is fine"
has 'LOCKSTEP_FLIGHT_DIR set'
echo '{"entries": 3}' > "$folder/empty/flight-0-x.json"
"$build/bin/lockstep" doctor --flight "$folder/empty" > "$folder/said" 2>&1 && fail "another file is fine"
has 'is no file of the flight recorder'
# Numbers that no job has: a file that is damaged must not make the doctor talk for hours.
for numbers in '"world_size": 2147483647' '"world_size": -1' '"world_size": 4294967297'; do
    echo "{\"entries\": [], $numbers}" > "$folder/empty/flight-0-x.json"
    timeout 20 "$build/bin/lockstep" doctor --flight "$folder/empty" 2>&1 | head -c 5000 > "$folder/said"
    has 'is no file of the flight recorder'
done
echo '{"entries": [], "world_size": 2}' > "$folder/empty/flight-2-x.json"
"$build/bin/lockstep" doctor --flight "$folder/empty" > "$folder/said" 2>&1
has 'flight-2-x.json is no file of the flight recorder'
"$build/bin/lockstep" doctor --flight > "$folder/said" 2>&1 && fail "a folder may be missing"
has 'Usage: lockstep doctor'
echo "the flight recorder told who was missing"
