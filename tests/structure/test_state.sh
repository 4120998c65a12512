#!/bin/sh
# The shared library keeps nothing for the whole process but what process-wide-state.txt lists, with the reason.
set -u
listed=$1/tests/structure/process-wide-state.txt
command -v objdump > /dev/null || { echo "skipped: objdump is missing (package binutils)"; exit 77; }

# What can be written and is no thread's own; but what the compiler brings.
found=$(objdump -t "$2/liblockstep.so" | awk 'NF > 3 && ($(NF - 2) == ".bss" || $(NF - 2) == ".data") { print $NF }' |
    grep -v -e '^__' -e '^completed\.' -e '^\.bss$' -e '^\.data$' | sed 's/\.[0-9]*$//' | LC_ALL=C sort -u)
[ -n "$found" ] || { echo "nothing is found: is the library stripped?"; exit 1; }

status=0
for name in $found; do
    grep -q "^$name " "$listed" || { echo "$name is process-wide state: it belongs to a handle or a thread"; status=1; }
done
exit $status
