#!/bin/sh
# Groups over Open MPI across hosts: its launcher starts ranks in namespaces, by an agent that stands for ssh.
set -u
. "$1/tests/hosts/network.sh"
plugin=$(find "$2" -name liblockstep-mpi-openmpi.so | head -n 1)
if [ -z "$plugin" ] || ! command -v mpirun.openmpi > /dev/null; then
    echo "skipped: Open MPI is not installed, or the plugin for it is not built"; exit 77
fi

# Arguments: an address, and what to run there. Every host has a name of its own, by which Open MPI tells them apart.
cat > "$folder/agent" << 'AGENT'
#!/bin/sh
host=h${1##*.}; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
AGENT
chmod 700 "$folder/agent"

across() { # HOSTS COMMAND...
    list=$1; shift
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$folder"
    "$folder/agent" 10.77.0.1 timeout -k 5 60 mpirun.openmpi --oversubscribe --host "$list" \
        --mca plm_rsh_agent "$folder/agent" --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 \
        --mca btl self,vader,tcp --mca pml ob1 "$@" > "$folder/rank.all" 2>&1
}

hosts 2
across 10.77.0.1:2,10.77.0.2:2 -n 4 "$2/tests/worker_table" 5 ||
    wrong "the collectives of four ranks on two hosts ended with $?"
count=$(grep -c "is done" "$folder/rank.all")
[ "$count" -eq 4 ] || wrong "of 4 ranks $count said that they were done"
exit $result
