#!/bin/sh
# Slurm's daemons on two hosts of their own, and srun with PMIx: nobody says where rank 0 is, nor a secret, and ranks meet.
set -u
. "$1/tests/rendezvous/slurm.sh"
. "$1/tests/hosts/network.sh"
unset LOCKSTEP_SECRET_FILE LOCKSTEP_JOB
worker=$2/tests/worker_rendezvous

hosts 2
chmod 755 "$folder"
mkdir "$folder/spool" "$folder/disk1" "$folder/disk2"
slurm_configure "h1(10.77.0.1)" "$folder/spool" << END
NodeName=h1 NodeAddr=10.77.0.1 CPUs=8 State=UNKNOWN
NodeName=h2 NodeAddr=10.77.0.2 CPUs=8 State=UNKNOWN
END
# Slurm and its PMIx name files by job and step alone: each host has a disk of its own at that place.
export SLURM_PMIX_TMPDIR="$folder/spool"

# at HOST COMMAND: there, under the host's name; unlike `on`, which hides the cgroups that slurmd asks for.
at() {
    place=$1; shift
    nsenter --net="/run/netns/h$place" unshare --uts --mount \
        sh -c "hostname h$place && mount --bind '$folder/disk$place' '$folder/spool' && exec \"\$@\"" sh "$@"
}

at 1 slurmctld -D -i -f "$SLURM_CONF" > "$folder/slurmctld.log" 2>&1 &
for host in 1 2; do at $host slurmd -D -N h$host -f "$SLURM_CONF" > "$folder/slurmd.$host.log" 2>&1 & done
slurm_await at 1
at 1 srun --mpi=list 2>&1 | grep -q pmix || { echo "skipped: this Slurm has no PMIx"; exit 77; }

step() { # RANKS ARGUMENTS...
    count=$1; shift
    at 1 timeout -k 5 60 srun -N 2 -n "$count" --overcommit --mpi=pmix "$@" > "$folder/rank.all" 2>&1
}

step 4 "$worker" 3 20000
for rank in 0 1 2 3; do
    [ "$(grep -c "rank $rank of 4 is done" "$folder/rank.all")" -eq 1 ] || wrong "two hosts: rank $rank of 4 is missing"
done

# Two groups at a time: the second meets the others at the store that rank 0 has.
step 2 "$worker" 2 20000 both
[ "$(grep -c "of 2 is done" "$folder/rank.all")" -eq 2 ] || wrong "two groups: a rank is missing"

# Slurm lets the others run on: they are told by each other, at once and not at their limit.
begin=$(date +%s)
step 3 env LOCKSTEP_TEST_KILL=rendezvous.checked:2:1 "$worker" 1 40000
[ "$(grep -c "open: LS_ERR_PEER_LOST: .*rank 2 (h2, process" "$folder/rank.all")" -eq 2 ] || wrong "a death is not told"
[ $(($(date +%s) - begin)) -le 20 ] || wrong "a death is told late"
exit $result
