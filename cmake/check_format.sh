#!/bin/sh
# check_format.sh ROOT [--fix]: are all C and C++ files formatted as .clang-format says?  Names those that are not, and fails;
# --fix formats them.  Other versions of clang-format lay out the same rules in other ways, so without version 14 it is
# skipped (77).
cd "${1:-$(dirname "$0")/..}" || exit 2
for formatter in clang-format-14 clang-format ''; do
    case $("$formatter" --version 2>/dev/null) in *'version 14.'*) break ;; esac
done
[ -n "$formatter" ] || { echo "skipped: no clang-format 14; install the package clang-format-14"; exit 77; }
sources() { find src include tests examples bench \( -name '*.[ch]' -o -name '*.cpp' \) -print0; }
case $2 in
--fix) sources | xargs -0 "$formatter" -i ;;
*) sources | xargs -0 "$formatter" --dry-run --Werror 2>&1 | sed -n 's/^\([^:]*\):.*clang-format-violations.*/\1: not formatted; run cmake\/check_format.sh . --fix/p' | sort -u | {
       bad=$(cat)
       [ -z "$bad" ] || { echo "$bad" >&2; exit 1; }
   } ;;
esac
