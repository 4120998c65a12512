#!/bin/sh
# Every public header compiles alone, as C17 and as C++11, without a warning.
set -u
cd "$1/include" || exit 1
status=0

compiles() { # LANGUAGE HEADER COMPILER...
    language=$1; header=$2; shift 2
    echo "#include <$header>" | "$@" -x "$language" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I . - && return
    echo "$header does not compile alone as $language"; status=1
}

for header in lockstep/*.h; do
    compiles c "$header" "${CC:-cc}" -std=c17
    compiles c++ "$header" "${CXX:-c++}" -std=c++11
done
exit $status
