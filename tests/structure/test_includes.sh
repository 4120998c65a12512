#!/bin/sh
# An include never points up: a room includes its own headers and those of the rooms that CMakeLists.txt links it to.
# The rules stand there, in the ls_room lines, and are read from there. Beside them:
#   - a room's header is named by its room: "base/error.h", or <lockstep/base.h> where it is public
#   - in ddp only module.c and hooks/ know tensors and the tape; everything else works on descriptors
#   - examples include what is public, and what lies in a folder of their own name
set -u
cd "$1" || exit 1

# Prints what is wrong in the tree that the current folder holds, and fails when something is.
check_includes() {
    # shellcheck disable=SC2046  # a list of words
    awk '
        function complain(what) { printf "%s:%d: %s: %s\n", FILENAME, FNR, what, $0; wrong = 1 }

        # below[room, other]: other is in room or under it; an ls_room line names rooms that stand before it.
        FILENAME == "CMakeLists.txt" {
            if (match($0, /^ls_room\([a-z]+/)) {
                room = substr($0, 9, RLENGTH - 8)
                rooms[room] = below[room, room] = 1
                for (other in rooms)
                    for (i = 2; i <= NF; i++) {
                        name = $i; sub(/^ls_/, "", name); sub(/\).*/, "", name)
                        if (name in rooms && (name, other) in below) below[room, other] = 1
                    }
            }
            next
        }

        FNR == 1 {
            split(FILENAME, part, "/")
            home = part[2]
            if (part[1] == "include") { home = part[3]; sub(/\.h$/, "", home) }
            is_above_all = !(home in rooms) # tools, lockstep.h, examples
        }
        !/^[ \t]*#[ \t]*include/ { next }
        {
            is_public = match($0, /<lockstep\/[a-z_]+\.h>/)
            is_private = !is_public && match($0, /"[^"]*"/)
            if (!is_public && !is_private) next
            room = substr($0, RSTART + 1, RLENGTH - 2)
            if (is_public) { sub(/lockstep\//, "", room); sub(/\.h/, "", room) }
            else if (room !~ /\//) { complain("a header is named with its room"); next }
            else sub(/\/.*/, "", room)
        }
        part[1] == "examples" {
            sub(/\.c$/, "", home)
            if (is_private && room != home) complain("an example includes a private header")
            next
        }
        is_above_all { next }
        !((home, room) in below) { complain(home " does not stand above " room) }
        home == "ddp" && part[1] == "src" && (room == "tensor" || room == "autograd") && \
            FILENAME !~ /^src\/ddp\/(module\.c$|hooks\/)/ { complain("only module.c and hooks/ know " room) }
        END { exit wrong }
    ' CMakeLists.txt $(find include src examples -name '*.[ch]' 2>/dev/null)
}

check_includes || exit 1

# And the check itself finds each kind of fault.
planted=$(mktemp -d) && trap 'rm -rf "$planted"' EXIT || exit 1
cp CMakeLists.txt "$planted" && cd "$planted" && mkdir -p src/store src/tensor src/ddp examples/one || exit 1
finds() { # FILE INCLUDE
    echo "#include $2" > "$1"
    if check_includes > /dev/null; then echo "not found: $2 in $1"; exit 1; fi
    rm "$1"
}
finds src/store/hash.c '"group/group.h"'
finds src/store/hash.c '<lockstep/ddp.h>'
finds src/tensor/shape.h '"group/group.h"'
finds src/tensor/shape.h '"shape.h"'
finds src/ddp/reducer.c '"tensor/tensor.h"'
finds src/ddp/reducer.c '<lockstep/autograd.h>'
finds examples/small.c '"base/error.h"'
finds examples/one/part.c '"other/part.h"'
echo '#include "tensor/tensor.h"' > src/ddp/module.c
check_includes
