#!/bin/sh
# The shared library exports what exported-symbols.txt lists and nothing else, and every name starts with ls_.
# `make symbols` (--refresh) rewrites the list: an interface changes by intention, and the change shows.
set -u
listed=$1/tests/structure/exported-symbols.txt
exported=$(nm -D --defined-only "$2/liblockstep.so" | awk '{ print $NF }' | LC_ALL=C sort)

if [ "${3-}" = --refresh ]; then echo "$exported" > "$listed"; exit; fi

if echo "$exported" | grep -v '^ls_'; then echo "exported without ls_ before it"; exit 1; fi
echo "$exported" | diff "$listed" - || { echo "not as listed (<); 'make symbols' lists what is exported (>)"; exit 1; }
