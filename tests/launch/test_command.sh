#!/bin/sh
# The options of `lockstep run`, what it says of wrong ones, and its exit codes.
set -u
lockstep=$2/bin/lockstep
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
status=0

# expect CODE OUTPUT ERROR ARGUMENTS...: exit code, and a basic regular expression for each stream ("" means silent)
expect() {
    code=$1; output=$2; error=$3; shift 3
    "$lockstep" "$@" > "$work/output" 2> "$work/error"
    got=$?
    if [ $got -ne "$code" ] || ! matches "$work/output" "$output" || ! matches "$work/error" "$error"; then
        echo "lockstep $*: exit $got, expected $code; wrote:"; cat "$work/output" "$work/error"
        status=1
    fi
}
matches() { # FILE EXPRESSION
    if [ -z "$2" ]; then [ ! -s "$1" ]; else grep -q "$2" "$1"; fi
}

expect 0 'Usage: lockstep COMMAND' '' --help
expect 0 'Usage: lockstep run' '' run --help
expect 0 '^lockstep [0-9]*\.[0-9]*\.[0-9]*$' '' --version
expect 2 '' 'no command "fly"' fly
expect 2 '' 'Usage: lockstep COMMAND'
expect 0 'cores for ranks' '' doctor
expect 2 '' 'unknown option "--fix"' doctor --fix

# Wrong options are named, and the usage follows.
expect 2 '' 'unknown option "--foo"' run --foo true
expect 2 '' 'unknown option "-x"' run -x true
expect 2 '' 'Usage: lockstep run' run --foo true
expect 2 '' 'no program is named' run -n 2
expect 2 '' 'missing after "-n"' run -n
for count in 0 -1 x 2x 99999 ''; do expect 2 '' "not \"$count\"" run -n "$count" true; done
expect 2 '' 'rank or none, not "color"' run --label color true
expect 2 '' 'seconds, up to 86400, not "soon"' run --grace soon true

# Both spellings; "auto"; what stands behind the program is the program's.
expect 0 '^\[1\] 2$' '' run --nproc-per-node 2 sh -c 'echo $WORLD_SIZE'
expect 0 '^\[1\] 2$' '' run --nproc_per_node=2 sh -c 'echo $WORLD_SIZE'
expect 0 '^[1-9]' '' run -n auto --label none sh -c 'echo $WORLD_SIZE'
expect 0 '^2$' '' run -n2 --label=none --grace 1.5 -- sh -c 'echo $WORLD_SIZE'
expect 0 '^--a_b -n 7 -- --foo$' '' run echo --a_b -n 7 -- --foo

# Exit codes are the program's own, or the shell's.
expect 3 '' 'first failure: rank 0, exit 3' run sh -c 'exit 3'
expect 143 '' 'rank 1 was killed by signal 15 (SIGTERM)' run -n 2 sh -c '[ $RANK = 0 ] || kill $$; exit 0'
expect 127 '' 'program not found: "no-such-program"' run -n 2 no-such-program
expect 126 '' '"/etc/passwd" is no program' run /etc/passwd

# Started with its standard descriptors closed, it takes none of them for something else.
"$lockstep" run -n 2 sh -c 'exit 5' <&- >&- 2>&-
[ $? -eq 5 ] || { echo "without standard descriptors: not exit 5"; status=1; }

# A program that writes to a pipe whose reader left ends as it would alone.
{ "$lockstep" run -n 2 yes; echo $? > "$work/code"; } 2> /dev/null | head -n 1 > /dev/null
[ "$(cat "$work/code")" = 141 ] || { echo "| head: exit $(cat "$work/code"), expected 141"; status=1; }
exit $status
