#!/bin/sh
# Every C sample compiles against the public headers. Samples are
#   - in pages (*.md), what is fenced as ```c; a fragment that is no C is fenced as ```text
#   - in comments of public headers, lines of a star and five or more spaces that follow an empty comment line
# One that has a main is a whole program, any other the body of a function below samples.h.
set -u
source=$1
cd "$source" || exit 1
samples=$(mktemp -d) && trap 'rm -rf "$samples"' EXIT || exit 1

# shellcheck disable=SC2046  # a list of words
awk -v folder="$samples" '
    function begin(line) { is_inside = 1; text = sprintf("#line %d \"%s\"\n", line, FILENAME) }
    function end(   file) {
        is_inside = 0
        file = sprintf("%s/%03d.c", folder, ++count)
        if (text ~ /main\(/) printf "%s", text > file
        else printf "#include \"samples.h\"\nls_status sample(void);\nls_status sample(void) {\nls_status s = LS_OK;\n%s" \
                    "goto out;\nout:\nreturn s;\n}\n", text > file
        close(file)
    }
    FNR == 1               { if (is_inside) end(); is_page = FILENAME ~ /\.md$/; was_empty = 0 }

    is_page && /^```c$/    { begin(FNR + 1); next }
    is_page && /^```/      { if (is_inside) end(); next }
    is_page                { if (is_inside) text = text $0 "\n"; next }

    /^ \*     / && (was_empty || is_inside) {
        if (!is_inside) begin(FNR)
        line = $0; sub(/^ \*/, "", line); is_last = sub(/\*\/ *$/, "", line); text = text line "\n"
        if (is_last) end()
        next
    }
    is_inside              { end() }
                           { was_empty = /^ \*$/ }
    END                    { if (is_inside) end() }
' $(find include docs README.md CONTRIBUTING.md -name '*.h' -o -name '*.md' 2>/dev/null)

status=0 count=0
for sample in "$samples"/*.c; do
    "${CC:-cc}" -std=c17 -Wall -Wextra -Werror -Wno-unused-variable -Wno-unused-but-set-variable \
        -fsyntax-only -I include -I tests/structure "$sample" || status=1
    count=$((count + 1))
done
echo "$count samples"
exit $status
