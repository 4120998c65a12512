#!/bin/sh
# Makes a folder of the arm64 libraries that the cross build links: the packages of the group arm64-sysroot in packages.txt,
# downloaded and unpacked. The folder holds usr/include and usr/lib; a second call finds it made and needs no network.
#
#   arm64-sysroot.sh FOLDER
#
# dpkg is not told of a foreign architecture, which later runs of apt-get would have to resolve against: apt-get runs over
# lists, cache and status of its own, beside FOLDER, and installs nothing. So it needs no root, and waits for no lock.
set -eu
if [ $# -ne 1 ]; then echo "usage: $0 FOLDER" >&2; exit 2; fi
packages=$(awk '$1 == "arm64-sysroot" { print $3 }' "$(dirname "$0")/packages.txt")
[ "$(cat "$1/packages" 2>/dev/null)" != "$packages" ] || exit 0

mkdir -p "$(dirname "$1")"
folder=$(realpath "$1")
work=$folder.part; rm -rf "$work"; trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root/usr/lib"
: > "$work/status"

# Read after the system's own configuration, so that its sources, keys and proxies hold, but none of its hooks: those work
# on the system's caches.
cat > "$work/apt.conf" << END
#clear APT::Update;
#clear APT::Architectures;
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Dir::State "$work/state/";
Dir::State::status "$work/status";
Dir::Cache "$work/cache/";
END

echo "downloading for arm64: $(echo "$packages" | tr "\n" " ")"
apt-get -c "$work/apt.conf" -qq update || true # one source of several may have nothing for arm64
# shellcheck disable=SC2086  # a list of words
(cd "$work/debs" && apt-get -c "$work/apt.conf" -qq download $packages)

ln -s usr/lib "$work/root/lib" # as on an installed system; tar follows it
for package in "$work"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/root" --no-same-owner --keep-directory-symlink
done
# Links that name a place on the system they were made for: make them name it here.
find "$work/root" -type l -lname '/*' | while read -r link; do
    ln -sfrn "$work/root$(readlink "$link")" "$link"
done

echo "$packages" > "$work/root/packages"
rm -rf "$folder"
mv "$work/root" "$folder"
