#!/bin/sh
# Installs the Debian packages of scripts/packages.txt that are missing, through apt-get.
#
#   deps.sh GROUP...           installs (as root, or through sudo); asks for nothing when all is present
#   deps.sh --check GROUP...   only tells what is missing
set -eu
list=$(dirname "$0")/packages.txt

check=no
if [ "${1-}" = --check ]; then check=yes; shift; fi
if [ $# -eq 0 ]; then echo "usage: $0 [--check] GROUP... (groups: build train test fuzz lint)" >&2; exit 2; fi

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Prints the list's lines of the given groups whose package is not installed.
missing() {
    for group; do
        grep "^$group " "$list" || { echo "$0: no group '$group' in $list" >&2; exit 2; }
    done | while read -r group need package purpose; do
        is_installed "$package" || echo "$group $need $package $purpose"
    done
}

# Without dpkg there is nothing to ask and nothing to install with; the build itself says which library it lacks.
if ! command -v dpkg-query >/dev/null; then
    [ $check = no ] || exit 0
    echo "$0: not a Debian system; install by hand what $list names" >&2; exit 1
fi

lines=$(missing "$@")
[ -n "$lines" ] || exit 0

if [ $check = yes ]; then
    echo "$lines" | while read -r _ need package purpose; do
        printf 'missing, %-8s  %-22s %s\n' "$need" "$package" "$purpose"
    done
    echo "'make deps' installs them, as root or through sudo."
    exit 0
fi

packages=$(echo "$lines" | awk '!seen[$3]++ { print $3 }' | tr '\n' ' ')
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "$0: needs root (no sudo here) to install: $packages" >&2; exit 1; }
    sudo=sudo
fi
echo "installing: $packages"
$sudo apt-get update -qq
# shellcheck disable=SC2086  # a list of words
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
