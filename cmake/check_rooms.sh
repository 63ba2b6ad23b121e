#!/bin/sh
# check_rooms.sh ROOT: includes go one way through the rooms.  Prints each one that does not and fails.
root=${1:-$(dirname "$0")/..}
cd "$root" || exit 2

# Each room and what it may include besides itself and the public headers.
allowed() {
    case $1 in
    runtime) echo ;;
    graph) echo runtime ;;
    plan) echo graph runtime ;;
    ops) echo plan graph runtime ;;
    nn) echo ops plan graph runtime ;;
    optim) echo nn ops plan graph runtime ;;
    data) echo ops plan graph runtime ;;
    parallel) echo ops nn plan graph runtime ;;
    io) echo optim data ops nn plan graph runtime ;;
    train) echo nn optim data io parallel ops plan graph runtime ;;
    *) echo ;;
    esac
}

# Lines "file:header" for every include beneath the given folders.
includes() {
    find "$@" -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.inc' \) -exec \
        grep -HE '^[[:space:]]*#[[:space:]]*include' {} + |
        sed 's|^\([^:]*\):[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]\([^>"]*\)[>"].*|\1:\2|'
}

# complaints ROOM MAY: reads those lines and prints what is wrong with them.
complaints() {
    while IFS=: read -r file header; do
        case $header in
        CL/* | OpenCL/* | clef/opencl.h)
            [ "$1" = runtime ] || [ "$file:$header" = src/ops/interop.c:clef/opencl.h ] || echo "$file: only src/runtime may include $header" ;;
        ../../cl/*) ;; # what host and device share
        ../*) echo "$file: includes \"$header\"; name the room instead" ;;
        clef.h | clef/*) ;;
        runtime/json.h) ;; # src/tools may use this one too: it needs nothing else of Clef
        */*)
            other=${header%%/*}
            if [ -d "src/$other" ]; then
                case " $1 $2 " in
                *" $other "*) ;;
                *) echo "$file: $1 may not include \"$header\"" ;;
                esac
            fi ;;
        esac
    done
}

found=$(
    for dir in src/*/; do
        room=$(basename "$dir")
        includes "$dir" | complaints "$room" "$(allowed "$room")"
    done
    # The public headers know nothing of src, and only clef/opencl.h of OpenCL.
    includes include | while IFS=: read -r file header; do
        case $header in
        CL/* | OpenCL/*) [ "$file" = include/clef/opencl.h ] || echo "$file: only clef/opencl.h may include $header" ;;
        */*) [ -f "include/$header" ] || [ "$header" = clef/pointwise.h ] || [ "${header%%/*}" = sys ] ||
            echo "$file: a public header may not include \"$header\"" ;;
        esac
    done
    # Examples and benchmarks are what users could write.
    for dir in examples bench; do
        [ -d $dir ] || continue
        includes $dir | while IFS=: read -r file header; do
            [ -e "src/$header" ] || case $header in ../*) true ;; *) false ;; esac &&
                echo "$file: uses public headers only, not \"$header\""
        done
    done
)
if [ -n "$found" ]; then
    echo "$found" >&2
    exit 1
fi
