#!/bin/sh
# What `make install` leaves is enough for a program outside the tree: built through pkg-config alone, from a prefix that was
# moved after installing, it runs and tells the version that pkg-config tells. The installed command runs too.
set -eu
source=$1 build=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/installed" > "$work/log" || { cat "$work/log"; exit 1; }
mv "$work/installed" "$work/moved"
cp "$source/tests/structure/outside.c" "$work"
cd "$work"

library=$(dirname "$(find moved -name 'liblockstep.so.0')")
PKG_CONFIG_PATH=$work/$library/pkgconfig; export PKG_CONFIG_PATH
# shellcheck disable=SC2046  # a list of words
"${CC:-cc}" -std=c17 -Wall -Wextra -Werror outside.c $(pkg-config --cflags --libs lockstep) -o outside

told=$(LD_LIBRARY_PATH=$library ./outside | tail -1)
[ "$told" = "$(pkg-config --modversion lockstep)" ] || { echo "the program tells version '$told'"; exit 1; }

# Nothing private, nothing static, nothing from elsewhere.
find moved -name '*.a' -o -path '*/include/*' ! -path '*/include/lockstep*' | grep . && exit 1
[ ! -x moved/bin/lockstep ] || moved/bin/lockstep --version
