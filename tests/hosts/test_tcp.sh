#!/bin/sh
# Groups over TCP across hosts: every collective, type and op against the serial oracle, ranks alone on their hosts and
# several on one. Nothing names a backend: ranks find out that they do not share a host.
set -u
. "$1/tests/hosts/network.sh"
hosts 4

all_done() { # HOSTS [WHAT]
    finish 100
    for file in "$folder"/code.*; do
        [ "$(cat "$file")" = 0 ] || { wrong "ranks on hosts $1: ${file##*/} is $(cat "$file")"; return; }
    done
}

for places in "1 2" "1 2 3" "1 1 2 2" "1 2 1 2 2" "1 2 3 4 4 3 2 1"; do
    ranks "$places" "$2/tests/worker_table" 7
    all_done "$places"
done

meet_at=fd77::1
ranks "1 2 2" "$2/tests/worker_table" 8
all_done "1 2 2, by IPv6"

# Between hosts goes what hosts have to say to each other, however many ranks they have: of an all-reduce of n bytes over two
# hosts n bytes each way, not more (the rest is meeting, heads and acknowledgements).
sent_bytes() { on 1 cat /sys/class/net/eth0/statistics/tx_bytes; }
meet_at=
bytes=16000000
before=$(sent_bytes)
ranks "1 1 1 2 2 2" "$2/bench/hosts_all_reduce" $bytes 1
all_done "1 1 1 2 2 2"
sent=$(($(sent_bytes) - before))
[ $sent -ge $bytes ] && [ $sent -le $((bytes + bytes / 10)) ] || wrong "host 1 sent $sent bytes for an all-reduce of $bytes"
exit $result
