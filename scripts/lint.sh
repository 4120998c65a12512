#!/bin/sh
# Formatting and static checks over all sources; silent and 0 when clean.
#
#   lint.sh BUILD_DIR          needs its compile_commands.json
set -u
build=$1
status=0

sources=$(git ls-files --cached --others --exclude-standard '*.c' '*.h')
# shellcheck disable=SC2086  # a list of words, here and below
clang-format --dry-run -Werror $sources || status=1

compiled=$(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" | sort -u)
# One file a process: its check of va_list takes functions of a second file for those of the first.
echo "$compiled" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "$build" 2>/dev/null || status=1

cppcheck --quiet -j "$(nproc)" --project="$build/compile_commands.json" --error-exitcode=1 --inline-suppr \
    --enable=warning,performance,portability --suppress=missingIncludeSystem || status=1
exit $status
