#!/bin/sh
# headers_cxx.sh COMPILER INCLUDE...: every public header alone is C++17 without a warning, from whichever folder it comes.
compiler=$1
shift
command -v "$compiler" >/dev/null 2>&1 || {
    echo "skipped: no C++ compiler (package g++)"
    exit 77
}
flags=
for folder in "$@"; do flags="$flags -I$folder"; done
status=0 n=0
for header in $(for folder in "$@"; do (cd "$folder" && find . -name '*.h'); done | sed 's|^\./||' | sort -u); do
    # shellcheck disable=SC2086
    printf '#include <%s>\n#include <%s>\nint main() { return 0; }\n' "$header" "$header" |
        "$compiler" -std=c++17 -Wall -Wextra -Wpedantic -Werror $flags -fsyntax-only -x c++ - || {
        echo "headers_cxx: $header is not clean C++17" >&2
        status=1
    }
    n=$((n + 1))
done
echo "headers_cxx: $n headers"
[ $n -gt 5 ] || status=1
exit $status
