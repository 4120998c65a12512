#!/bin/sh
# Groups over TCP across hosts: every collective, type and op against the serial oracle, ranks alone on their hosts and
# several on one. Nothing names a backend: ranks find out that they do not share a host.
set -u
. "$1/tests/hosts/network.sh"
hosts 4

all_done() { # HOSTS [WHAT]
    finish 50
    for file in "$folder"/code.*; do
        [ "$(cat "$file")" = 0 ] || { wrong "ranks on hosts $1: ${file##*/} is $(cat "$file")"; return; }
    done
}

for places in "1 2" "1 2 3" "1 1 2 2" "1 2 1 2 2" "1 2 3 4 4 3 2 1"; do
    rm -f "$folder"/rank.* "$folder"/code.*
    ranks "$places" "$2/tests/worker_table" 7
    all_done "$places"
done

rm -f "$folder"/rank.* "$folder"/code.*
meet_at=fd77::1
ranks "1 2 2" "$2/tests/worker_table" 8
all_done "1 2 2, by IPv6"
exit $result
