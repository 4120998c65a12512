#!/bin/sh
# What the doctor looks at, and that it says of all that is missing what that costs and how to get it.
#
#   test_doctor.sh SOURCE_DIR BUILD_DIR
set -u
lockstep=$2/bin/lockstep
said=$(mktemp)
trap 'rm -f "$said"' EXIT

fail() { echo "$1"; cat "$said"; exit 1; }

"$lockstep" doctor > "$said" 2>&1 || fail "the doctor failed"
grep -q '^lockstep [0-9.]* on Linux ' "$said" || fail "whose report is it?"
grep -Eq '^cores for ranks +[1-9][0-9]* +of [1-9]' "$said" || fail "no cores"
for what in pidfd 'sealed memory' oneDNN 'Open MPI' MPICH PMIx NCCL gnuplot Fashion-MNIST; do
    grep -Eq "^$what +(yes|no) +[^ ]" "$said" || fail "nothing is said of $what"
done

PATH=/nowhere "$lockstep" doctor > "$said" 2>&1 || fail "the doctor failed without a PATH"
grep -Eq '^gnuplot +no +.*install gnuplot-nox' "$said" || fail "how to get gnuplot is not said"

"$lockstep" doctor --bogus > "$said" 2>&1
[ $? = 2 ] && grep -q 'unknown option "--bogus"' "$said" || fail "an unknown option is taken"
"$lockstep" doctor --help > "$said" 2>&1 || fail "no help"
grep -q 'Usage: lockstep doctor' "$said" || fail "no usage"
echo "the doctor told what is here and what is missing"
