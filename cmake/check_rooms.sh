#!/bin/sh
# check_rooms.sh ROOT [OBJECTS]: includes go one way through the rooms, and so do calls.  OBJECTS is the folder of the object files of
# src: a symbol that one of them lacks must be defined in a room that it may use.  Prints whatever goes back, and fails; so it does for a
# folder of src that is no room of the list below, or of the table in CONTRIBUTING.md.
objects=${2:+$(cd "$2" && pwd)}
root=${1:-$(dirname "$0")/..}
cd "$root" || exit 2

# Each room and what it may use besides itself and the public headers; false if there is no such room.
allowed() {
    plan="plan/capture plan/passes plan/lower plan/schedule plan/run plan/tune"
    case $1 in
    runtime) echo ;;
    graph) echo runtime ;;
    plan/capture) echo graph runtime ;;
    plan/passes) echo plan/capture graph runtime ;;
    plan/lower) echo plan/passes plan/capture graph runtime ;;
    plan/schedule) echo plan/lower plan/passes plan/capture graph runtime ;;
    plan/run) echo plan/schedule plan/lower plan/passes plan/capture graph runtime ;;
    plan/tune) echo plan/run plan/schedule plan/lower plan/passes plan/capture graph runtime ;;
    kernels) echo plan/lower graph runtime ;;
    ops) echo kernels $plan graph runtime ;;
    group) echo ops $plan graph runtime ;;
    nn) echo group ops $plan graph runtime ;;
    optim) echo nn group ops $plan graph runtime ;;
    data) echo group ops $plan graph runtime ;;
    io) echo optim data group ops nn $plan graph runtime ;;
    text) echo io data group ops nn optim $plan graph runtime ;;
    parallel) echo nn optim data io group ops $plan graph runtime ;;
    train) echo parallel nn optim data io text group ops $plan graph runtime ;;
    tools | mpi) echo ;; # programs and libraries of their own
    *) return 1 ;;
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
            case $file:$header in
            src/runtime/*) ;;
            src/ops/interop.c:clef/opencl.h | src/plan/run/open.c:clef/opencl.h) ;; # which define what it declares
            *) echo "$file: only src/runtime may include $header" ;;
            esac ;;
        mpi.h | clef/mpi.h) case $file in src/mpi/*) ;; *) echo "$file: only src/mpi may include $header" ;; esac ;;
        ../../cl/* | ../../../cl/*) ;; # what host and device share
        ../*) echo "$file: includes \"$header\"; name the room instead" ;;
        clef.h | clef/*) ;;
        runtime/json.h) ;; # src/tools may use this one too: it needs nothing else of Clef
        */*)
            other=${header%/*}
            if [ -d "src/$other" ]; then
                case " $1 $2 " in
                *" $other "*) ;;
                *) echo "$file: $1 may not include \"$header\"" ;;
                esac
            fi ;;
        esac
    done
}

rooms() { find src -mindepth 1 -type d | sed 's|^src/||' | grep -vx plan | sort; }

# Lines "room symbol how": how is U where the symbol is lacking.
symbols() {
    rooms | while read -r room; do
        for object in "$objects/$room"/*.o; do # some may be left of sources that are gone
            [ -f "src/$room/$(basename "$object" .o)" ] && nm "$object" | awk -v room="$room" '{ print room, $NF, $(NF - 1) }'
        done
    done
}

found=$(
    rooms | while read -r room; do
        allowed "$room" >/dev/null || echo "src/$room: not in the list of cmake/check_rooms.sh"
        grep -q "^|.*\`src/$room/\`.*|" CONTRIBUTING.md || echo "src/$room: not in the table of rooms of CONTRIBUTING.md"
    done
    grep '^|' CONTRIBUTING.md | grep -o '`src/[a-z/]*/`' | tr -d '`' | while read -r dir; do
        [ -d "$dir" ] || echo "CONTRIBUTING.md: there is no room $dir"
    done
    rooms | while read -r room; do
        includes "src/$room" | complaints "$room" "$(allowed "$room")"
    done
    if [ -n "$objects" ]; then
        {
            rooms | while read -r room; do echo "may $room $room $(allowed "$room")"; done
            symbols
        } | awk '
            $1 == "may" { for (i = 3; i <= NF; i++) may[$2, $i] = 1; next }
            $3 == "U" { lacks[$1 " " $2] = 1; next }
            $3 ~ /^[TDBRVW]$/ { home[$2] = $1 }
            END {
                for (l in lacks) {
                    split(l, part, " ")
                    to = home[part[2]]
                    if (to != "" && !((part[1], to) in may)) print "src/" part[1] ": may not use " part[2] " of src/" to
                }
            }'
    fi
    # The public headers know nothing of src, and only clef/opencl.h of OpenCL.
    includes include | while IFS=: read -r file header; do
        case $header in
        CL/* | OpenCL/*) [ "$file" = include/clef/opencl.h ] || echo "$file: only clef/opencl.h may include $header" ;;
        mpi.h) [ "$file" = include/clef/mpi.h ] || echo "$file: only clef/mpi.h may include $header" ;;
        clef/mpi.h | clef/opencl.h) echo "$file: may not include $header, which not everybody can compile" ;;
        */*) [ -f "include/$header" ] || [ "$header" = clef/pointwise.h ] || [ "${header%%/*}" = sys ] ||
            echo "$file: a public header may not include \"$header\"" ;;
        esac
    done
    # Examples and benchmarks are what users could write; benchmarks go through the rows of the tables in cl.
    for dir in examples bench; do
        [ -d $dir ] || continue
        includes $dir | while IFS=: read -r file header; do
            case $dir:$header in bench:../cl/*.def | bench:../../cl/*.def) continue ;; esac
            [ -e "src/$header" ] || case $header in ../*) true ;; *) false ;; esac &&
                echo "$file: uses public headers only, not \"$header\""
        done
    done
)
if [ -n "$found" ]; then
    echo "$found" >&2
    exit 1
fi
