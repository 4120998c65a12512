#!/bin/sh
# Open MPI's mpirun starts ranks on two hosts, and nobody says where rank 0 is, nor a secret: ranks meet through PMIx.
set -u
. "$1/tests/hosts/network.sh"
if ! command -v mpirun.openmpi > /dev/null; then echo "skipped: Open MPI is not installed"; exit 77; fi
unset LOCKSTEP_SECRET_FILE LOCKSTEP_JOB LOCKSTEP_ALLOW_UNAUTHENTICATED
worker=$2/tests/worker_rendezvous

expect() { # HOW RANKS
    for rank in $(seq 0 $(($2 - 1))); do
        [ "$(grep -c "rank $rank of $2 is done" "$folder/rank.all")" -eq 1 ] || wrong "$1: rank $rank of $2 is missing"
    done
}

hosts 2
LOCKSTEP_BACKEND=tcp mpi_across 10.77.0.1:2,10.77.0.2:2 -x LOCKSTEP_BACKEND -n 4 "$worker" 3 20000 > "$folder/rank.all" 2>&1
expect "two hosts" 4

# Two groups at a time: the second meets the others at the store that rank 0 has.
LOCKSTEP_BACKEND=tcp mpi_across 10.77.0.1:1,10.77.0.2:1 -x LOCKSTEP_BACKEND -n 2 "$worker" 2 20000 both > "$folder/rank.all" 2>&1
expect "two groups" 2

# An interface that rank 0 does not have: all ranks say what it has.
LOCKSTEP_BACKEND=tcp LOCKSTEP_SOCKET_IFNAME="=eth7" mpi_across 10.77.0.1:1,10.77.0.2:1 -x LOCKSTEP_BACKEND \
    -x LOCKSTEP_SOCKET_IFNAME -n 2 "$worker" 1 20000 > "$folder/rank.all" 2>&1
grep -q 'LS_ERR_ENVIRONMENT: rank 0: .*LOCKSTEP_SOCKET_IFNAME is "=eth7"; it has .*eth0 10.77.0.1' "$folder/rank.all" ||
    wrong "the interfaces of rank 0 are not told"
exit $result
