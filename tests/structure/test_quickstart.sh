#!/bin/sh
# The README's example: the one diff in it, without its added lines, is a program for one process, and with them it is
# examples/quickstart.c. Both compile against what is public; started alone, both print the same.
set -eu
source=$1 build=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

sed -n '/^```diff$/,/^```$/ { /^```/!p; }' "$source/README.md" > "$work/diff"
grep -q '^+' "$work/diff" || { echo "there is no diff with added lines in README.md"; exit 1; }
if grep -n '^[^ +]' "$work/diff"; then echo "README.md: the example removes lines or has no column for + before them"; exit 1; fi
sed -n '/^+/d; s/^ //; p' "$work/diff" > "$work/before.c"
sed 's/^[ +]//' "$work/diff" > "$work/after.c"
sed -n '/^#include/,$p' "$source/examples/quickstart.c" | diff "$work/after.c" - ||
    { echo "README.md (<) does not show examples/quickstart.c (>)"; exit 1; }

for program in before after; do
    "${CC:-cc}" -std=c17 -Wall -Wextra -Werror -I "$source/include" "$work/$program.c" -L "$build" -llockstep -o "$work/$program"
    env -u RANK -u WORLD_SIZE LD_LIBRARY_PATH="$build" "$work/$program" > "$work/$program.out"
done
diff "$work/before.out" "$work/after.out" || { echo "alone, the two programs print different things"; exit 1; }
