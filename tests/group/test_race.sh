#!/bin/sh
# ThreadSanitizer finds a race that is planted in the shm algorithms. A copy of the library is built with one acquire taken
# out at a time: of the meeting, of the end of an operation in place, of the stage's counts. Without a plant the same program
# (race.c) is clean, so it is the plant that is found.
set -u
source=$1
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1

echo 'int main(void){return 0;}' > "$work/probe.c"
if ! ${CC:-cc} -fsanitize=thread "$work/probe.c" -o "$work/probe" 2> /dev/null || ! "$work/probe"; then
    echo "skipped: ${CC:-cc} cannot build with ThreadSanitizer here"
    exit 77
fi

# The tree without what was built in it, and the program as one more target.
mkdir "$work/tree" && cd "$source" || exit 1
for entry in *; do
    case $entry in build* | out) ;; *) cp -r "$entry" "$work/tree" ;; esac
done
cd "$work/tree" || exit 1
printf 'add_executable(race tests/group/race.c)\ntarget_link_libraries(race PRIVATE ls_group)\n' >> CMakeLists.txt
cmake -S . -B build -DLS_SANITIZE=thread > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }

races() { # leaves in report what ThreadSanitizer says of the program as it is now
    cmake --build build --target race > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    TSAN_OPTIONS="exitcode=66 halt_on_error=1" timeout 50 build/race > "$work/report" 2>&1
}

races || { echo "without a plant the program is not clean:"; cat "$work/report"; exit 1; }

plant() { # FILE FUNCTION: takes the acquire out of the one function
    file=src/group/backend/shm/$1
    cp "$file" "$work/kept.c"
    sed -i "/$2/,/^}/s/memory_order_acquire/memory_order_relaxed/" "$file"
    if cmp -s "$file" "$work/kept.c"; then echo "nothing to plant in $1, $2"; exit 1; fi
    races
    if ! grep -q "data race" "$work/report"; then echo "not found: $1, $2"; cat "$work/report"; exit 1; fi
    cp "$work/kept.c" "$file"
}

plant op.c '^static backend_progress meet('
plant in_place.c '^bool shm_in_place_waits_for('
plant staged.c '^static uint64_t count_of('
