#!/bin/sh
# Runs every fuzzer for some seconds, starting from its seeds in tests/fuzz/seeds/<x>, and prints the coverage of the
# files that a fuzzer names in a line "covers: src/...". What it finds is left in BUILD_DIR/findings and fails the run.
#
#   fuzz.sh BUILD_DIR SECONDS
set -u
build=$1; seconds=$2
status=0
mkdir -p "$build/findings"

for fuzzer in "$build"/tests/fuzz_*; do
    [ -x "$fuzzer" ] || continue
    name=${fuzzer##*/fuzz_}
    corpus=$build/corpus/$name; mkdir -p "$corpus"
    seeds=tests/fuzz/seeds/$name; [ -d "$seeds" ] || seeds=
    echo "fuzzing $name for $seconds s"
    # shellcheck disable=SC2086  # seeds may be none
    LLVM_PROFILE_FILE=/dev/null "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
        -artifact_prefix="$build/findings/$name-" "$corpus" $seeds || status=1
    # A second run over what was kept: one that died has written no profile.
    LLVM_PROFILE_FILE=$build/$name.profraw "$fuzzer" -runs=0 -verbosity=0 "$corpus" 2>/dev/null

    covers=$(sed -n 's/.*covers: *\([^*]*\).*/\1/p' "tests/fuzz/fuzz_$name.c")
    # shellcheck disable=SC2086  # a list of words
    llvm-profdata merge -o "$build/$name.profdata" "$build/$name.profraw" &&
        llvm-cov report "$fuzzer" -instr-profile="$build/$name.profdata" $covers |
        awk '/\.[ch] |^TOTAL/ { print $1 ": " $4 " of regions, " $10 " of lines" }'
done
[ $status = 0 ] || echo "findings are in $build/findings"
exit $status
