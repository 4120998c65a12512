#!/bin/sh
# Links between hosts go bad: a cut in the middle, by the group's limit and without one; a host that is gone; loss and delay.
# Every rank ends, and says which rank it missed.
set -u
. "$1/tests/hosts/network.sh"
hosts 4

says() { # RANK TEXT
    grep -q "$2" "$folder/rank.$1" || wrong "rank $1 does not say \"$2\""
}

# Where a rank cannot be reached, all say whose host has no way.
ranks "1 2" sh -c "[ \$RANK = 0 ] || export LOCKSTEP_SOCKET_IFNAME=nosuch; exec '$2/tests/worker_hosts' 4000 1 20000"
finish 55
for rank in 0 1; do says $rank 'open: rank 1: no address .* LOCKSTEP_SOCKET_IFNAME is "nosuch"'; done

# Memory that there is not is told twice, within hosts and between them, and the rank that lacks it once.
ranks "1 1 2 2" "$2/tests/worker_hosts" 1000000000000000 1 20000
finish 55
for rank in 0 1 2 3; do says $rank '^alloc: rank 0: [0-9]* bytes of group memory'; done
(
    export LOCKSTEP_TEST_REFUSED=3
    ranks "1 1 2 2" "$2/tests/worker_hosts" 4000 1 20000
    finish 55
)
for rank in 0 1 2 3; do says $rank '^alloc: rank 3: cannot allocate'; done

# A rank that cannot make its host's memory (its files may have 2 KiB) cannot open: all hear of it, those as well that share none,
# and what they leave in the store does not grow.
ranks "1 1 2 2 3" sh -c "trap '' XFSZ; [ \$RANK != 2 ] || ulimit -f 4; exec '$2/tests/worker_refused' 29514"
finish 55
for rank in 0 1 2 3 4; do says $rank '^open: rank 2: cannot .*: File too large'; done
says 0 '^keys: +0$'

# A rank whose other thread is allocating posts nothing, so that no other rank notices.
ranks "1 1 2" "$2/tests/worker_claims" 20
finish 55
for rank in 0 1 2; do [ "$(cat "$folder/code.$rank")" = 0 ] || wrong "rank $rank with two threads ended with $(cat "$folder/code.$rank")"; done

# Packets late and lost change nothing but the time. The way is chosen by its interface.
far "$2" 1 2 20 1
(
    export LOCKSTEP_SOCKET_IFNAME=far
    meet_at=10.78.0.1
    ranks "1 2" "$2/tests/worker_hosts" 1000000 3 40000
    finish 55
)
for rank in 0 1; do
    [ "$(cat "$folder/code.$rank")" = 0 ] || wrong "with loss and delay rank $rank ended with $(cat "$folder/code.$rank")"
done

# The group's limit ends what a cut link holds up.
ranks "1 2" "$2/tests/worker_hosts" 4000000 60 3000
await ready 0 1
sleep 0.5
unplug 2
finish 55
says 0 "rank 1 ("
says 1 "rank 0 ("

# Of a rank that stops between two operations those of its own host know which one it has done. One of them alone has a limit, so
# that none of another host, which knows less, speaks first.
MASTER_PORT=29513
ranks "3 4 4" sh -c "exec '$2/tests/worker_hosts' 4000 60 \$((RANK == 2 ? 3000 : -1)) 1"
await error 2
kill -CONT "$(echo $pids | cut -d ' ' -f 2)"
finish 55
numbers=$(sed -n 's/.* operation \([0-9]*\), .*missing: rank 1 (.*, last done operation \([0-9]*\)).*/\1 - \2/p' "$folder/rank.2")
[ "$((${numbers:-0}))" -eq 1 ] || wrong "rank 2 does not say that rank 1 has done all operations before the one that hangs"

# Without a limit the connection itself finds out. The peer's host is gone: nobody is there to say so.
MASTER_PORT=29512
ranks "3 4" "$2/tests/worker_hosts" 4000000 60 -1
await ready 0 1
sleep 0.5
unplug 4
kill -9 "${pids##* }"
finish 55
says 0 "rank 1 ("
says 0 "cannot be reached"
exit $result
