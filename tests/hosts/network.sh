# network.sh: several hosts on this machine: network namespaces on one bridge. A script reads it first (`. .../network.sh`), which
# starts that script once more within namespaces of its own, of network, mounts and processes: however it ends, all of it goes.
#
#   hosts N               h1 ... hN, at 10.77.0.1 ... and fd77::1 ...
#   on HOST COMMAND...    runs it there
#   shape RATE            what each host may send: "1gbit"
#   far BUILD_DIR A B MS PERCENT   an interface "far" on hosts A and B, 10.78.0.A and .B: MS of delay a way, PERCENT of packets lost
#   unplug HOST           its link is down
#   ranks HOSTS COMMAND   starts a rank on each of HOSTS ("1 1 2"), which meet by hand on the first, at its address
#                         or $meet_at; output in $folder/rank.R, no earlier one's
#   await TEXT RANK...    until these ranks have written it
#   finish SECONDS        waits for them; exit codes in $folder/code.R
#   plug HOST             it is up again
#   mpi_across LIST ...   Open MPI's mpirun on the first host, with these hosts' addresses: "10.77.0.1:2,10.77.0.2:2"; data goes
#                         over interface $mpi_over

if [ "${LS_HOSTS:-}" != made ]; then
    for tool in ip tc unshare; do
        command -v $tool > /dev/null || { echo "skipped: $tool is missing (packages iproute2, util-linux)"; exit 77; }
    done
    enter="unshare --mount --net --pid --mount-proc --fork --kill-child"
    $enter true 2> /dev/null || { echo "skipped: no namespaces can be made here (needs root)"; exit 77; }
    LS_HOSTS=made exec $enter sh "$0" "$@"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mount -t tmpfs none /run && mkdir /run/netns
umask 077
head -c 32 /dev/urandom > "$folder/secret"
export LOCKSTEP_SECRET_FILE="$folder/secret" LOCKSTEP_JOB="hosts"
unset LOCKSTEP_BACKEND RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCAL_RANK LOCAL_WORLD_SIZE

on() { host=$1; shift; ip netns exec "h$host" "$@"; }

hosts() {
    host_count=$1
    ip link set lo up
    ip link add bridge type bridge
    ip link set bridge up
    for host in $(seq "$host_count"); do
        ip netns add "h$host"
        ip link add "port$host" type veth peer name eth0 netns "h$host"
        ip link set "port$host" master bridge up
        ip -n "h$host" link set lo up
        ip -n "h$host" addr add "10.77.0.$host/24" dev eth0
        ip -n "h$host" addr add "fd77::$host/64" dev eth0 nodad
        ip -n "h$host" link set eth0 up
    done
}

shape() {
    for host in $(seq "$host_count"); do
        tc -n "h$host" qdisc replace dev eth0 root tbf rate "$1" burst 256kb latency 20ms
    done
}

far() {
    "$1/tests/worker_relay" "h$2" "h$3" "$4" "$5" &
    for host in "$2" "$3"; do
        tries=0
        until ip -n "h$host" link show far > /dev/null 2>&1 || [ $tries -eq 100 ]; do sleep 0.1; tries=$((tries + 1)); done
        ip -n "h$host" addr add "10.78.0.$host/24" dev far
        ip -n "h$host" link set far up
    done
}

unplug() { ip link set "port$1" down; }
plug() { ip link set "port$1" up; }

ranks() {
    places=$1; shift
    rm -f "$folder"/rank.* "$folder"/code.*
    export WORLD_SIZE MASTER_ADDR="${meet_at:-10.77.0.${places%% *}}" MASTER_PORT="${MASTER_PORT:-29511}"
    WORLD_SIZE=$(echo $places | wc -w)
    rank=0
    pids=
    for place in $places; do
        RANK=$rank ip netns exec "h$place" "$@" > "$folder/rank.$rank" 2>&1 < /dev/null &
        pids="$pids $!"
        rank=$((rank + 1))
    done
}

await() {
    text=$1; shift
    tries=0
    for writer; do
        until grep -q "$text" "$folder/rank.$writer" 2> /dev/null || [ $tries -eq 300 ]; do sleep 0.1; tries=$((tries + 1)); done
    done
}

# Whoever is still there after SECONDS is killed, and its code is 137.
finish() {
    (sleep "$1"; kill -9 $pids) 2> /dev/null &
    guard=$!
    rank=0
    for pid in $pids; do
        wait "$pid"
        echo $? > "$folder/code.$rank"
        rank=$((rank + 1))
    done
    kill $guard 2> /dev/null
}

# An agent stands for ssh. Every host has a name of its own, by which Open MPI tells them apart.
mpi_across() {
    list=$1; shift
    cat > "$folder/agent" << 'AGENT'
#!/bin/sh
host=h${1##*.}; shift
# What MPI itself leaks or locks in odd orders is not ours to look at.
export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"
export TSAN_OPTIONS="$TSAN_OPTIONS:ignore_noninstrumented_modules=1:detect_deadlocks=0"
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
AGENT
    chmod 700 "$folder/agent"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$folder "$folder/agent" 10.77.0.1 \
        timeout -k 5 60 mpirun.openmpi --oversubscribe --host "$list" --mca plm_rsh_agent "$folder/agent" \
        --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include "${mpi_over:-eth0}" --mca btl self,tcp --mca pml ob1 "$@"
}

# Says what a rank wrote, and remembers that the test is red.
wrong() {
    echo "$1"
    for file in "$folder"/rank.*; do echo "--- ${file##*/}:"; tail -n 20 "$file"; done
    result=1
}
result=0
