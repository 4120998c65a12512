#!/bin/sh
# Ranks that share hosts call different things: all ranks name both calls as they were made, not the steps that they became.
set -u
. "$1/tests/hosts/network.sh"
hosts 2

call() { # WHICH SENTENCE
    ranks "1 1 2 2" "$build/tests/worker_mismatch" "$1"
    finish 60
    for rank in 0 1 2 3; do
        grep -Eq "^$2; all ranks have to call alike" "$folder/rank.$rank" || { wrong "$1: rank $rank does not say \"$2\""; return; }
    done
}

build=$2
call within "rank 0 called all-reduce of 12 f32 sum, rank 1 all-reduce of 10 f32 sum, operation 2"
call between "rank [01] called reduce of 8 f32 sum to rank 1, rank [23] all-reduce of 16 f16 average, operation 2"
call ways "rank [02] called (barrier|gather of 4 f32 to rank 0), rank [13] (barrier|gather of 4 f32 to rank 3), operation 2"
call order "rank 2 called all-reduce of 4 f32 max, operation 3, rank 3 all-reduce of 4 f32 max, operation 2"
call ahead "rank 2 called all-reduce of 4 f32 max, operation 2, rank 3 all-reduce of 4 f32 max, operation 72"

# With checks on, all calls of all ranks are compared before anything moves: who differs first from rank 0 is named, by all alike.
export LOCKSTEP_DEBUG=detail
call within "rank 0 called all-reduce of 12 f32 sum, rank 1 all-reduce of 10 f32 sum, operation 2"
call between "rank 0 called reduce of 8 f32 sum to rank 1, rank 2 all-reduce of 16 f16 average, operation 2"
call ways "rank 0 called gather of 4 f32 to rank 0, rank 1 barrier, operation 2"
call order "rank 0 called scatter of 4 f32 from rank 0, rank 3 all-reduce of 4 f32 max, operation 2"
exit $result
