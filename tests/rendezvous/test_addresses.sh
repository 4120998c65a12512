#!/bin/sh
# Ranks on two hosts meet at addresses of every kind, or say at once why not.
set -u
. "$1/tests/hosts/network.sh"
worker=$2/tests/worker_rendezvous
port=29530

hosts 2
# Names, for both hosts, in this script's own view of files: one whose first address nobody has, and the first host's own as
# Debian maps it.
printf '127.0.0.1 localhost\nfd77::99 stale\n10.77.0.1 stale\n127.0.1.1 first\n' > "$folder/names"
echo "hosts: files" > "$folder/services"
mount --bind "$folder/names" /etc/hosts
mount --bind "$folder/services" /etc/nsswitch.conf

meet() { # WHAT ADDRESS
    port=$((port + 1)) meet_at=$2
    begin=$(date +%s)
    export MASTER_PORT=$port
    ranks "1 2 2" "$worker" 2 20000
    finish 40
    for rank in 0 1 2; do
        grep -q "rank $rank of 3 is done" "$folder/rank.$rank" || { wrong "$1: rank $rank of 3 is missing"; return; }
    done
    [ $(($(date +%s) - begin)) -le 15 ] || wrong "$1: it took too long"
}

meet "IPv4" 10.77.0.1
meet "IPv6" fd77::1
meet "IPv6 in brackets" "[fd77::1]"
link_local=$(ip -n h1 -6 -o addr show dev eth0 scope link | sed -n 's/.*inet6 \([^/]*\).*/\1/p')
meet "a link-local address" "$link_local%eth0"
meet "a name with a dead address first" stale

# A name that is loopback on both hosts: all ranks say so at once, with the addresses that there are.
meet_at=first
ranks "1 2" env LOCAL_WORLD_SIZE=1 "$worker" 1 20000
finish 10
for rank in 0 1; do
    grep -q 'rank 0 is to be met at "first", which is 127.0.1.1 on this host.*eth0 10.77.0' "$folder/rank.$rank" ||
        wrong "rank $rank does not say that the name is loopback"
done

# The address of nobody: the limit ends it, and says what was tried and what there is.
meet_at=10.77.0.77
ranks "2" env RANK=1 WORLD_SIZE=2 "$worker" 1 1500
finish 15
grep -q "LS_ERR_TIMEOUT: the store at 10.77.0.77, port $port, is not reached in time.*eth0 10.77.0.2" "$folder/rank.0" ||
    wrong "an address of nobody is not told"
exit $result
