#!/bin/sh
# Prints the sizes of files and functions and the share of comments, with the aims, and what is past them.
# Aims, not limits: what sets good code apart is the tail.
#
#   shape.sh [FOLDER...]       default: include, then src examples, then tests bench
set -eu

shape() {
    files=$(find "$@" -name '*.[ch]' 2>/dev/null | sort)
    [ -n "$files" ] || return 0
    echo "$*"
    # shellcheck disable=SC2086  # a list of words, here and below
    {
        awk '
            FNR == 1 { in_comment = 0 }
            {
                # Strings may hold what looks like a comment; what is left of the line decides.
                line = $0; has_comment = in_comment; code = ""
                gsub(/\\./, "", line); gsub(/"[^"]*"/, "s", line)
                while (line != "") {
                    if (in_comment) {
                        if (!(at = index(line, "*/"))) break
                        line = substr(line, at + 2); in_comment = 0
                    } else if (match(line, /\/[*\/]/)) {
                        code = code substr(line, 1, RSTART - 1); has_comment = 1
                        if (substr(line, RSTART, 2) == "//") break
                        line = substr(line, RSTART + 2); in_comment = 1
                    } else { code = code line; break }
                }
                comments += has_comment; codes += code ~ /[^ \t]/
                lines[FILENAME]++
            }
            END {
                for (file in lines) print "file", lines[file], file
                print "comments", comments, codes
            }' $files
        ctags -x --languages=C --kinds-C=f --_xformat='function %{line} %{end} %F:%n %N' $files |
            awk '{ print "function", $3 - $2 + 1, $4, $5 }'
    } | sort -k1,1 -k2,2nr | awk '
        function share(part, all) { return all ? sprintf("%.1f%%", 100 * part / all) : "-" }
        $1 == "file"     { files++; small += $2 < 450; if ($2 >= 450) tail = tail "    " $3 ": " $2 " lines\n" }
        $1 == "function" { functions++; short += $2 < 50; long += $2 > 60
                           if ($2 >= 50) tail = tail "    " $3 ": " $4 ", " $2 " lines\n" }
        $1 == "comments" { ratio = $2 ? $3 / $2 : 0 }
        END {
            printf "  files under 450 lines      %6s of %d (aim 90%%)\n", share(small, files), files
            printf "  functions under 50 lines   %6s of %d (aim 90%%)\n", share(short, functions), functions
            printf "  functions past 60 lines    %6s (aim at most 7%%)\n", share(long, functions)
            printf "  code lines a comment line  %6.1f (aim 3 to 5)\n", ratio
            printf "%s", tail
        }'
}

if [ $# -gt 0 ]; then shape "$@"; exit; fi
shape include
shape src examples
shape tests bench
