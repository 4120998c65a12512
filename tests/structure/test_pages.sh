#!/bin/sh
# What pages name is there: relative links, files and folders in backticks, and tests, which are named in backticks by the
# sentence that they prove (four words or more). And the other way round: each variable that the library reads is on a page, and in
# the list of those that it knows.
set -u
cd "$1" || exit 1
pages=$(find docs README.md CONTRIBUTING.md CHANGELOG.md -name '*.md')
status=0

for page in $pages; do
    for link in $(grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -v '^https*:'); do
        [ -e "$(dirname "$page")/$link" ] || { echo "$page: a link leads nowhere: $link"; status=1; }
    done
    # shellcheck disable=SC2016  # backticks of the page
    for name in $(grep -o '`[^` ]*`' "$page" | tr -d '`' | sort -u); do
        case $name in
        *'*'* | *...* | *'<'* | *'{'*) ;;
        src/* | include/* | tests/* | docs/* | scripts/* | examples/* | bench/* | .ci/*)
            [ -e "$name" ] || { echo "$page: there is no $name"; status=1; } ;;
        ls_* | LS_* | */* | *.*) ;;
        *_*_*_*)
            grep -rqw "$name" tests src include examples || { echo "$page: nothing is called $name"; status=1; } ;;
        esac
    done
done
for name in $(grep -rhoE '"LOCKSTEP_[A-Z_]*[A-Z]"' src | tr -d '"' | sort -u); do
    grep -q "\"$name\"" src/base/environment.c || { echo "src/base/environment.c: does not know $name"; status=1; }
    grep -rqw "$name" docs || { echo "docs: no page names $name"; status=1; }
done
exit $status
