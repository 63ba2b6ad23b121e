#!/bin/sh
# headers_cxx.sh COMPILER MPI INCLUDE...: every public header alone is C++17 without a warning, from whichever folder it comes.  MPI: the
# folders of mpi.h, divided by colons; "": there is none, and clef/mpi.h is left out.
compiler=$1 mpi=$2
shift 2
command -v "$compiler" >/dev/null 2>&1 || {
    echo "skipped: no C++ compiler (package g++)"
    exit 77
}
flags=
for folder in "$@"; do flags="$flags -I$folder"; done
for folder in $(echo "$mpi" | tr : ' '); do flags="$flags -isystem $folder"; done
status=0 n=0
for header in $(for folder in "$@"; do (cd "$folder" && find . -name '*.h'); done | sed 's|^\./||' | sort -u); do
    [ "$header" != clef/mpi.h ] || [ -n "$mpi" ] || {
        echo "skipped: $header, without MPI (packages libopenmpi-dev openmpi-bin)"
        continue
    }
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
