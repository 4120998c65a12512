#!/bin/sh
# Whatever is combined has the same bits in every run, in one message and in several, on all ranks: where ranks share hosts, alike
# and unlike ones.
set -u
. "$1/tests/hosts/network.sh"
hosts 2
seed=$(date +%s)

run() { # NAME HOSTS: what the ranks say, in $folder/NAME
    ranks "$2" "$build/tests/worker_bits" "$seed"
    finish 100
    sort -u "$folder"/rank.* > "$folder/$1"
}

build=$2
for places in "1 1 2 2" "1 2 1 2 2"; do
    run first "$places"
    run second "$places"
    grep -Eq '^[0-9a-f]+$' "$folder/first" && [ "$(wc -l < "$folder/first")" = 1 ] && cmp -s "$folder/first" "$folder/second" ||
        wrong "ranks on hosts $places, seed $seed, said $(cat "$folder/first"), and then $(cat "$folder/second")"
done
exit $result
