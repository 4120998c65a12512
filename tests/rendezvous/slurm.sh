# slurm.sh: Slurm's own daemons for a test of two nodes. A script reads it first; where they are missing the test is skipped.
#
#   slurm_configure CONTROLLER SPOOL < LINES   $folder/slurm.conf, with LINES about ports and nodes; each node keeps its state in SPOOL
#   slurm_await [PREFIX...]                    until both nodes are there; `PREFIX sinfo` asks

PATH=$PATH:/usr/sbin
for program in slurmctld slurmd srun; do
    command -v $program > /dev/null && continue
    echo "skipped: $program is not installed (packages slurmctld, slurmd, slurm-client)"; exit 77
done
[ "$(id -u)" -eq 0 ] || { echo "skipped: slurmd starts steps as root alone"; exit 77; }
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCKSTEP_JOB LOCKSTEP_SECRET_FILE LOCKSTEP_BACKEND \
    LOCKSTEP_ALLOW_UNAUTHENTICATED

slurm_configure() {
    export SLURM_CONF="$folder/slurm.conf"
    mkdir "$folder/state"
    cat > "$SLURM_CONF" << END
ClusterName=test
SlurmctldHost=$1
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=2
StateSaveLocation=$folder/state
SlurmdSpoolDir=$2
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmdParameters=config_overrides
$(cat)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

slurm_await() {
    tries=0
    until [ "$("$@" sinfo -h -t idle -o %D 2> /dev/null)" = 2 ]; do
        tries=$((tries + 1))
        [ $tries -lt 150 ] && sleep 0.2 && continue
        echo "skipped: Slurm's daemons did not come up here"; tail -n 5 "$folder"/*.log; exit 77
    done
}
