#!/bin/sh
# Slurm's own daemons, two nodes on this host, under plain srun: ranks meet without MASTER_ADDR, two steps at once do not, and
# a job over two nodes meets at an address of the host, with a secret.
set -u
. "$1/tests/rendezvous/slurm.sh"
worker=$2/tests/worker_rendezvous

folder=$(mktemp -d)
started=
finish() {
    # shellcheck disable=SC2086  # a list of numbers
    kill $started 2> /dev/null; wait
    rm -rf "$folder"
}
trap finish EXIT
base=$((10000 + $$ % 9000)) # three ports below those that the library derives
host=$(hostname -s)
mkdir "$folder/n1" "$folder/n2"
slurm_configure "$host(127.0.0.1)" "$folder/%n" << END
SlurmctldPort=$base
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 1)) CPUs=8 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + 2)) CPUs=8 State=UNKNOWN
END
slurmctld -D -i -f "$SLURM_CONF" > "$folder/slurmctld.log" 2>&1 & started="$started $!"
for node in n1 n2; do
    slurmd -D -N $node -f "$SLURM_CONF" > "$folder/$node.log" 2>&1 & started="$started $!"
done
slurm_await

status=0
expect() { # NAME FILE RANKS
    rank=0
    while [ $rank -lt "$3" ]; do
        [ "$(grep -c "rank $rank of $3 is done" "$2")" -eq 1 ] || { echo "$1: rank $rank of $3 is missing"; status=1; }
        rank=$((rank + 1))
    done
    [ $status -eq 0 ] || cat "$2"
}

# On one node, two jobs at once.
timeout 50 srun -N 1 -n 4 --overcommit "$worker" 3 > "$folder/one" 2>&1 &
one=$!
timeout 50 srun -N 1 -n 3 --overcommit "$worker" 3 > "$folder/two" 2>&1
wait $one
expect "one node" "$folder/one" 4
expect "another job" "$folder/two" 3

# A rank that fails before it has met anybody: Slurm lets the others run on, and they name it at their limit.
timeout 50 srun -N 1 -n 3 --overcommit sh -c "[ \$SLURM_PROCID = 1 ] && exit 7; exec \"$worker\" 1 2000" > "$folder/early" 2>&1
[ "$(grep -c "LS_ERR_TIMEOUT: .*missing: rank 1;" "$folder/early")" -eq 2 ] || { cat "$folder/early"; status=1; }

# Two nodes: without an address that both reach, or a secret, the error says so.
timeout 50 srun -N 2 -n 2 --export=ALL,MASTER_ADDR=127.0.0.1 "$worker" 1 5000 > "$folder/loopback" 2>&1
grep -q "ranks of other hosts cannot reach that" "$folder/loopback" || { cat "$folder/loopback"; status=1; }
address=$(hostname -I | cut -d' ' -f1)
if [ -n "$address" ]; then
    timeout 50 srun -N 2 -n 2 --export=ALL,MASTER_ADDR="$address" "$worker" 1 5000 > "$folder/open" 2>&1
    grep -q "LOCKSTEP_SECRET_FILE" "$folder/open" || { cat "$folder/open"; status=1; }
    (umask 077; echo "a secret for the test of Slurm $$" > "$folder/secret")
    timeout 50 srun -N 2 -n 4 --overcommit --export=ALL,MASTER_ADDR="$address",LOCKSTEP_SECRET_FILE="$folder/secret" \
        "$worker" 3 > "$folder/nodes" 2>&1
    expect "two nodes" "$folder/nodes" 4
fi
exit $status
