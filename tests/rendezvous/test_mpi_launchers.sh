#!/bin/sh
# Open MPI's mpirun and MPICH's mpiexec start the ranks, and do no more: they meet by themselves, over shared memory.
set -u
worker=$2/tests/worker_rendezvous
export LOCKSTEP_BACKEND=shm OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCKSTEP_JOB LOCKSTEP_SECRET_FILE
folder=$(mktemp -d)
mkdir "$folder/a" "$folder/b"
trap 'rm -rf "$folder"' EXIT
status=0
found=

# Two jobs at once, each of three ranks: every rank says that it is one of three, and each rank is there twice.
check() { # NAME COMMAND...
    name=$1; shift
    found=$found$name
    TMPDIR=$folder/a timeout 50 "$@" > "$folder/one" 2>&1 & # two of Open MPI's would race for one folder
    TMPDIR=$folder/b timeout 50 "$@" > "$folder/two" 2>&1
    wait $!
    for rank in 0 1 2; do
        count=$(cat "$folder/one" "$folder/two" | grep -c "rank $rank of 3 is done")
        [ "$count" -eq 2 ] && continue
        echo "$name: rank $rank was done $count times in two jobs"; cat "$folder/one" "$folder/two"; status=1
    done
}

# A rank that fails before it has met anybody: a launcher that ends the job does so, else the others name it at their limit.
leave() { # NAME WORD COMMAND...
    name=$1 word=$2; shift 2
    timeout 30 "$@" sh -c "[ \"\$OMPI_COMM_WORLD_RANK\$PMI_RANK\" = 1 ] && exit 7; exec \"$worker\" 1 2000" > "$folder/one" 2>&1
    code=$?
    [ $code -ne 0 ] && [ $code -ne 124 ] && grep -q "$word" "$folder/one" && return
    echo "$name: a rank that fails early is not told: exit code $code"; cat "$folder/one"; status=1
}

if command -v mpirun.openmpi > /dev/null; then
    leave open-mpi "the job has been aborted" mpirun.openmpi --oversubscribe -n 3
    check open-mpi mpirun.openmpi --oversubscribe -n 3 "$worker" 3
    # Without word of how many of them are here they ask PMIx where rank 0 is.
    check open-mpi-pmix mpirun.openmpi --oversubscribe -n 3 env -u OMPI_COMM_WORLD_LOCAL_SIZE LOCKSTEP_SOCKET_IFNAME=lo "$worker" 3
    check open-mpi-wrapped mpirun.openmpi --oversubscribe -n 3 sh -c "\"$worker\" 3; true"
fi
if command -v mpiexec.hydra > /dev/null; then
    leave hydra "LS_ERR_TIMEOUT: .*missing: rank 1;" mpiexec.hydra -n 3
    check hydra mpiexec.hydra -n 3 "$worker" 3
    check hydra-wrapped mpiexec.hydra -n 3 sh -c "\"$worker\" 3; true"
fi
if [ -z "$found" ]; then echo "skipped: neither Open MPI's mpirun nor MPICH's mpiexec is installed"; exit 77; fi
exit $status
