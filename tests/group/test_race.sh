#!/bin/sh
# ThreadSanitizer finds a race that is planted in the shm algorithms. The library's own sources are built three times more
# with one acquire taken out each time: of the meeting, of the end of an operation in place, of the stage's counts. Without
# a plant the same program is clean, so it is the plant that is found.
set -u
source=$1
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
compiler=${CC:-cc}
flags="-std=c17 -D_GNU_SOURCE -O1 -g -fsanitize=thread -ffp-contract=off -I$source/include -I$work"

echo 'int main(void){return 0;}' > "$work/probe.c"
# shellcheck disable=SC2086  # a list of flags
if ! $compiler $flags "$work/probe.c" -o "$work/probe" 2> /dev/null || ! "$work/probe"; then
    echo "skipped: $compiler cannot build with ThreadSanitizer here"
    exit 77
fi

for room in base trace store group; do cp -r "$source/src/$room" "$work/$room"; done
objects=""
for file in $(cd "$work" && find base trace store group -name '*.c'); do
    object=$work/$(echo "$file" | tr / _).o
    # shellcheck disable=SC2086
    $compiler $flags -c "$work/$file" -o "$object" || exit 1
    objects="$objects $object"
done

races() { # prints what ThreadSanitizer reports of the program that is built now
    # shellcheck disable=SC2086
    $compiler $flags "$source/tests/group/race.c" $objects -lpthread -o "$work/race" || exit 1
    TSAN_OPTIONS="exitcode=66 halt_on_error=1" timeout 50 "$work/race" > "$work/report" 2>&1
}

races || { echo "without a plant the program is not clean:"; cat "$work/report"; exit 1; }

plant() { # FILE FUNCTION: takes the acquire out of the one function
    file=$work/group/backend/shm/$1
    cp "$file" "$work/kept.c"
    sed -i "/$2/,/^}/s/memory_order_acquire/memory_order_relaxed/" "$file"
    if cmp -s "$file" "$work/kept.c"; then echo "nothing to plant in $1, $2"; exit 1; fi
    # shellcheck disable=SC2086
    $compiler $flags -c "$file" -o "$work/group_backend_shm_$1.o" || exit 1
    races
    if ! grep -q "data race" "$work/report"; then echo "not found: $1, $2"; cat "$work/report"; exit 1; fi
    cp "$work/kept.c" "$file"
    # shellcheck disable=SC2086
    $compiler $flags -c "$file" -o "$work/group_backend_shm_$1.o" || exit 1
}

plant op.c '^static backend_progress meet('
plant in_place.c '^backend_progress shm_in_place_finish('
plant staged.c '^static uint64_t count_of('
