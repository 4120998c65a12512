#!/bin/sh
# Runs the tests of a build folder and ends with the skipped ones, each with its reason, and one line of counts.
# Every test function counts; a program that died before it could say counts as one failure.
#
#   test.sh BUILD_DIR [ctest arguments, for instance -R group]
set -u
build=$1; shift
log=$build/Testing/Temporary/LastTest.log
rm -f "$log"

ctest --test-dir "$build" --output-on-failure --no-tests=error -j"$(nproc)" "$@"
status=$?

# ctest's log holds, for each test, "N/M Testing: NAME", what it printed, "<end of output>" and a verdict, "Test ...".
awk '
    /^[0-9]+\/[0-9]+ Testing: /     { name = $3; ok = bad = skips = running = verdict_next = 0; reason = "" }
    /^skipped: /                    { reason = substr($0, 10) }
    /\[ RUN      \] /               { running = 1 }
    running && /\[       OK \] /    { running = 0; ok++ }
    running && /\[  FAILED  \] /    { running = 0; bad++ }
    running && /\[  SKIPPED \] /    { running = 0; skips++; why[++reasons] = name ", " $NF ": " reason }
    /^<end of output>/              { verdict_next = 1 }
    verdict_next && /^Test [^t]/ {
        verdict_next = 0
        if (!/Passed/) { if (bad == 0) bad = 1 }
        else if (ok + skips == 0 && reason) { skips = 1; why[++reasons] = name ": " reason }
        else if (ok + skips == 0) ok = 1
        passed += ok; failed += bad; skipped += skips
    }
    END {
        for (i = 1; i <= reasons; i++) print "skipped  " why[i]
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }' "$log" || exit 1
exit $status
