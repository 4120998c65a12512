#!/bin/sh
# Installs the Debian packages of scripts/packages.txt that are missing, through apt-get.
#
#   deps.sh GROUP...           installs (as root, or through sudo); asks for nothing when all is present; fails when a
#                              needed package cannot be had, goes on without an optional one
#   deps.sh --check GROUP...   only tells what is missing
set -eu
list=$(dirname "$0")/packages.txt

check=no
if [ "${1-}" = --check ]; then check=yes; shift; fi
if [ $# -eq 0 ]; then echo "usage: $0 [--check] GROUP... (groups: build train test cluster fuzz lint arm64)" >&2; exit 2; fi

# Without dpkg there is nothing to ask and nothing to install with; the build itself says which library it lacks.
if ! command -v dpkg-query > /dev/null; then
    [ $check = no ] || exit 0
    echo "$0: not a Debian system; install by hand what $list names" >&2; exit 1
fi

is_installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

for group; do
    grep -q "^$group " "$list" || { echo "$0: no group '$group' in $list" >&2; exit 2; }
done

# The list's lines of the given groups whose package is not installed.
missing=$(
    for group; do grep "^$group " "$list"; done |
        while read -r group need package purpose; do is_installed "$package" || echo "$need $package $purpose"; done |
        sort -u
)
[ -n "$missing" ] || exit 0

if [ $check = yes ]; then
    echo "$missing" | while read -r need package purpose; do
        printf 'missing, %-8s  %-22s %s\n' "$need" "$package" "$purpose"
    done
    echo "'make deps' installs them, as root or through sudo."
    exit
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo > /dev/null; then sudo "$@"
    else echo "$0: installing needs root, and sudo is missing" >&2; return 1
    fi
}

# Installs what is missing of one need.
install() {
    packages=$(echo "$missing" | awk -v need="$1" '$1 == need { print $2 }' | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    echo "installing, $1: $packages"
    # shellcheck disable=SC2086  # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages > /dev/null
}

as_root apt-get update -qq || true # a stale list may still do
install needed
install optional || echo "going on without them"
