#!/bin/sh
# One program runs where MPI is absent, and says what is missing: the plugin, the library, or which MPI is meant. A
# plugin takes all of the library through a table: it exports one name and asks for none of ours.
set -eu
build=$2
plugins=$(find "$build" -path '*/lockstep/liblockstep-mpi-*.so')
[ -n "$plugins" ] || { echo "skipped: no plugin is built: neither Open MPI nor MPICH is installed"; exit 77; }

for plugin in $plugins; do
    exported=$(nm -D --defined-only "$plugin" | awk '{ print $NF }' | grep -v '^__' || true)
    [ "$exported" = ls_mpi_plugin ] || { echo "$plugin exports: $exported"; exit 1; }
    if nm -D --undefined-only "$plugin" | grep ' ls_'; then echo "$plugin asks for names of the library"; exit 1; fi
done

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cp "$build/tests/worker_mpi" "$work"

# fails_with "NAME=value ..." TEXT...: in that environment the program fails, with a sentence that holds every text.
fails_with() {
    environment=$1; shift
    # shellcheck disable=SC2086  # a list of words
    if env $environment "$work/worker_mpi" replicas > "$work/said" 2>&1; then echo "it did not fail"; exit 1; fi
    for text; do
        grep -qF "$text" "$work/said" || { echo "'$text' is not in:"; cat "$work/said"; exit 1; }
    done
}

unset RANK WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE LOCKSTEP_MPI LOCKSTEP_BACKEND || true

# The backend is asked for, the family is not known.
fails_with "LOCKSTEP_BACKEND=mpi" LS_ERR_ENVIRONMENT 'mpirun or mpiexec' 'LOCKSTEP_MPI'
fails_with "LOCKSTEP_BACKEND=mpi LOCKSTEP_MPI=lam" 'LOCKSTEP_MPI is "lam"' 'openmpi, mpich and abi'

# Checks that are none.
fails_with "LOCKSTEP_BACKEND=mpi LOCKSTEP_DEBUG=details" LS_ERR_ENVIRONMENT 'LOCKSTEP_DEBUG is "details"'

# No plugin beside the program.
fails_with "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2" LS_ERR_UNSUPPORTED liblockstep-mpi-openmpi.so libopenmpi-dev
fails_with "PMI_RANK=0 PMI_SIZE=2" LS_ERR_UNSUPPORTED liblockstep-mpi-mpich.so libmpich-dev
fails_with "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2" 'OMPI_COMM_WORLD_RANK is "2"'

# A plugin whose MPI is not there: it was linked to a library that is gone.
mkdir "$work/lockstep"
echo 'int gone(void) { return 0; }' > "$work/gone.c"
echo 'int gone(void); int use(void) { return gone(); }' > "$work/plugin.c"
"${CC:-cc}" -shared -fPIC -Wl,-soname,libmpi.so.40.gone "$work/gone.c" -o "$work/libgone.so"
"${CC:-cc}" -shared -fPIC "$work/plugin.c" -L"$work" -lgone -o "$work/lockstep/liblockstep-mpi-openmpi.so"
fails_with "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2" LS_ERR_UNSUPPORTED \
    'libmpi.so.40 of Open MPI' libopenmpi3 'libmpi.so.40.gone: cannot open'

# A plugin of another version.
echo 'const unsigned ls_mpi_plugin[64] = {999, 999, 999};' > "$work/plugin.c"
"${CC:-cc}" -shared -fPIC "$work/plugin.c" -o "$work/lockstep/liblockstep-mpi-mpich.so"
fails_with "PMI_RANK=0 PMI_SIZE=2" LS_ERR_UNSUPPORTED 'another version of Lockstep' '999.999 was found'

# Without a word of MPI it is a world of one, and nothing of MPI is looked for.
"$work/worker_mpi" replicas | grep -q 'rank 0 is done'
