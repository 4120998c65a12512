#!/bin/sh
# A rank of several on its host is killed: every other rank, wherever it is, ends at once and names it by its number in the
# group, whatever it was waiting for.
set -u
. "$1/tests/hosts/network.sh"
hosts 2

for victim in 0 1 2 3; do
    rm -f "$folder"/rank.* "$folder"/code.*
    ranks "1 1 2 2" "$2/tests/worker_hosts" 400000 100 60000
    for rank in 0 1 2 3; do await ready $rank; done
    sleep "0.$(($(date +%N | sed 's/^0*//') % 5))"
    kill -9 "$(echo $pids | cut -d ' ' -f $((victim + 1)))"
    finish 40
    for rank in 0 1 2 3; do
        [ $rank -eq $victim ] || { [ "$(cat "$folder/code.$rank")" = 3 ] && grep -q "error: rank $victim (" "$folder/rank.$rank"; } ||
            wrong "rank $victim was killed, and rank $rank did not name it"
    done
done
exit $result
