#!/bin/sh
# Ranks that call differently while calls are not compared: nobody hangs, every rank's flight recorder is written, and the
# doctor says who called what. Over shared memory two calls on one group are seen at once. Over MPI the end comes at the time
# limit: these two only receive, so that no message shows the difference. Over TCP ranks tell each other once nothing has moved for
# a second, so it is a matter of which comes first. Between two groups nothing is ever seen.
set -u
build=$2
worker=$build/tests/worker_apart
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset LOCKSTEP_DEBUG
# UCX, MPICH's transport, watches memory by means that no sanitizer bears, and what MPI leaks is its own.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_MEM_EVENTS=n
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" TSAN_OPTIONS="${TSAN_OPTIONS-}:ignore_noninstrumented_modules=1"

fail() { echo "$1"; cat "$folder/said" "$folder/job"; exit 1; }
has() { grep -q -- "$1" "$folder/said" || fail "missing: $1"; }

# both_end MODE "STATUS WHEN" COMMAND...: the job, and what the doctor says of its files.
both_end() {
    mode=$1 end=$2; shift 2
    rm -rf "$folder/flight"; : > "$folder/said"
    timeout 60 env LOCKSTEP_FLIGHT_DIR="$folder/flight" "$@" "$worker" "$mode" > "$folder/job" 2>&1
    [ "$(grep -c "$end limit" "$folder/job")" = 2 ] || fail "$*, $mode: not \"$end limit\" twice"
    "$build/bin/lockstep" doctor --flight "$folder/flight" > "$folder/said" 2>&1 || fail "the doctor failed"
}

# over STATUS COMMAND...: the status of two calls on one group, and when it comes.
over() {
    end=$1; shift
    both_end calls "$end" "$@"
    has 'stuck in operation 2, gather of 3 f32 to rank 0'
    has 'rank 0 called gather of 3 f32 to rank 0'
    has 'rank 1 called broadcast of 4 f32 from rank 0'
    grep -q 'no file of rank' "$folder/said" && fail "$*: a rank has no file"
    both_end groups 'LS_ERR_ABORTED at the' "$@"
    has 'stuck in operation 2, barrier'
    has 'stuck in operation 1, all-reduce of 5 f32 max'
    has 'waiting in it: rank 0'
    has 'waiting in it: rank 1'
}

over 'LS_ERR_MISMATCH before the' "$build/bin/lockstep" run -n 2 --
LOCKSTEP_BACKEND=tcp; export LOCKSTEP_BACKEND
over 'LS_ERR_\(MISMATCH before\|ABORTED at\) the' "$build/bin/lockstep" run -n 2 --
LOCKSTEP_BACKEND=mpi
for family in openmpi mpich; do
    if [ -n "$(find "$build" -name "liblockstep-mpi-$family.so")" ] && command -v "mpirun.$family" > /dev/null; then
        over 'LS_ERR_ABORTED [a-z]* the' "mpirun.$family" -n 2 # who is at its limit first tells the other
    else
        echo "left out: $family is not here"
    fi
done
