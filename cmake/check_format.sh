#!/bin/sh
# check_format.sh ROOT [--fix]: are all C and C++ files formatted as .clang-format says?  Names those that are not, and fails;
# --fix formats them.  Other versions of clang-format lay out the same rules in other ways, so without version 14 it is
# skipped (77).
cd "${1:-$(dirname "$0")/..}" || exit 2
for formatter in clang-format-14 clang-format ''; do
    [ -z "$formatter" ] || case $("$formatter" --version 2>/dev/null) in *'version 14.'*) break ;; esac
done
[ -n "$formatter" ] || {
    echo "skipped: no clang-format 14; install the package clang-format-14"
    exit 77
}
[ "$2" = --fix ] && mode=-i || mode='--dry-run --Werror'
for folder in src include tests examples bench; do
    [ -d $folder ] || { echo "check_format.sh: no folder $folder here" >&2; exit 2; }
done
# shellcheck disable=SC2086
words=$(find src include tests examples bench \( -name '*.[ch]' -o -name '*.cpp' \) -exec "$formatter" $mode {} + 2>&1) && exit 0
echo "$words" | sed -n 's/^\([^:]*\):.*clang-format-violations.*/\1: not formatted; run cmake\/check_format.sh . --fix/p' | sort -u >&2
echo "$words" | grep -q clang-format-violations || echo "$words" >&2
exit 1
