#!/bin/sh
# More than 2^31 elements through every backend on two ranks: all-reduce, broadcast, all-gather, reduce-scatter and a message,
# each element checked (tests/group/worker_large.c). Takes 9 GiB of memory and some minutes, so `make test` leaves it out.
#
#   check-large.sh BUILD_DIR [BACKEND...]     shm tcp openmpi mpich
set -u
build=$1; shift
worker=$build/tests/worker_large
needs_kib=$((10 << 20))
status=0

left_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
if [ "$left_kib" -lt $needs_kib ]; then
    echo "check-large.sh: two ranks take 9 GiB of memory, and $((left_kib >> 20)) GiB are available" >&2; exit 1
fi

# OMPI_*: root is as good as anyone here.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# over BACKEND COMMAND...: the command starts two ranks.
over() {
    backend=$1; shift
    began=$(date +%s)
    echo "over $backend:"
    if timeout 900 "$@"; then echo "over $backend: right, in $(($(date +%s) - began)) s"; else status=1; fi
}

[ $# -gt 0 ] || set -- shm tcp openmpi mpich
for backend; do
    case $backend in
    shm) over shm "$build/bin/lockstep" run -n 2 -- "$worker" ;;
    tcp) over tcp "$build/bin/lockstep" run -n 2 -- "$worker" connections ;;
    openmpi | mpich)
        if [ -n "$(find "$build" -name "liblockstep-mpi-$backend.so")" ] && command -v "mpirun.$backend" > /dev/null; then
            over "$backend" "mpirun.$backend" -n 2 "$worker"
        else
            echo "over $backend: skipped: this MPI is not installed"
        fi ;;
    *) echo "check-large.sh: there is no backend $backend" >&2; exit 2 ;;
    esac
done
[ $status = 0 ] || echo "check-large.sh: it failed"
exit $status
