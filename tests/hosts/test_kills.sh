#!/bin/sh
# A rank of several on its host is killed, at any moment and at each step of an opening: every other rank, wherever it is, ends at
# once and names it by its number in the group, whatever it was waiting for.
set -u
. "$1/tests/hosts/network.sh"
hosts 2

limit_ms=60000
start() {
    ranks "1 1 2 2" "$build/tests/worker_hosts" 400000 100 $limit_ms
}

check() { # VICTIM WHEN
    finish 10
    for rank in 0 1 2 3; do
        [ $rank -eq "$1" ] || { [ "$(cat "$folder/code.$rank")" = 3 ] && grep -q "rank $1[ ,(]" "$folder/rank.$rank"; } ||
            wrong "rank $1 was killed $2, and rank $rank did not name it"
    done
}

build=$2
for victim in 0 1 2 3; do
    start
    await ready 0 1 2 3
    sleep "0.$(($(date +%N | sed 's/^0*//') % 5))"
    kill -9 "$(echo $pids | cut -d ' ' -f $((victim + 1)))"
    check $victim "in an operation"
done

# A rank whose neighbour does not come learns that the group is lost elsewhere. The neighbour stopped between two operations: in
# the middle of one it may have done what the others need for that one.
stop_one() { # STOPPED VICTIM WAITING...
    stopped=$1
    victim=$2
    shift 2
    ranks "1 1 2 2" "$build/tests/worker_hosts" 4000 100 60000 "$stopped"
    await ready 0 1 2 3
    sleep 0.3
    kill -9 "$(echo $pids | cut -d ' ' -f $((victim + 1)))"
    for rank; do
        await error "$rank"
        grep -q "rank $victim (" "$folder/rank.$rank" || wrong "rank $rank did not name rank $victim while rank $stopped was stopped"
    done
    kill -CONT "$(echo $pids | cut -d ' ' -f $((stopped + 1)))"
    check "$victim" "while rank $stopped was stopped"
}

# Rank 3 misses rank 2, rank 0 waits for rank 1 alone; then rank 0 alone would miss rank 1.
stop_one 1 2 0
stop_one 0 1 2 3

# Every rank at every step, rank 0 with the store that it serves. All ranks meet, in two rounds of cards since there are several
# hosts; then those of a host, and those of a lane.
kill_at() { # POINT:COUNT RANK...
    step=$1
    shift
    for victim; do
        export LOCKSTEP_TEST_KILL="${step%:*}:$victim:${step#*:}"
        start
        check "$victim" "at $step"
        [ "$(cat "$folder/code.$victim")" = 137 ] || wrong "rank $victim did not come to $step"
    done
}

for step in rendezvous.met:1 tcp.meeting.published:1 tcp.meeting.listed:1 tcp.meeting.published:2 tcp.meeting.listed:2 \
    tcp.meeting.connected:1 tcp.meeting.connected:5 tcp.meeting.met:1 shm.share.published:1 shm.share.mapped:1 shm.share.met:1 \
    tcp.meeting.published:3 tcp.meeting.listed:4 tcp.meeting.connected:11 tcp.meeting.met:2 tcp.chunk.sent:1 shm.in_place.combined:1; do
    kill_at $step 0 1 2 3
done
for step in rendezvous.connected:1 rendezvous.checked:1 rendezvous.arrived:1; do kill_at $step 1 2 3; done

# A rank that is stopped before all know that all are open ends the others at the limit. Whose time is up first speaks for all, and
# names who is stopped, not who waits for it.
limit_ms=2000
for stopped in 1 2 3; do
    export LOCKSTEP_TEST_KILL="tcp.meeting.met:$stopped:2:19"
    start
    for rank in 0 1 2 3; do
        [ $rank -eq $stopped ] && continue
        await 'open: ' $rank
        grep -q "open: the group was not open within 2000 ms; missing: rank $stopped " "$folder/rank.$rank" ||
            wrong "rank $rank was not ended by the limit, or did not name rank $stopped"
    done
    kill -CONT "$(echo $pids | cut -d ' ' -f $((stopped + 1)))"
    finish 10
done

# Who has not found the store yet takes rank 0 for one that is to come, until the limit.
kill_at rendezvous.connected:1 0
exit $result
