#!/bin/sh
# rooms_catch.sh SOURCE: cmake/check_rooms.sh passes a good tree and complains of each kind of wrong include, and of rooms that are not listed.
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/include/clef" "$work/examples" "$work/src/runtime" "$work/src/graph" "$work/src/plan/passes" "$work/src/plan/lower" \
    "$work/src/plan/run" "$work/src/kernels" "$work/src/ops" "$work/src/nn" "$work/src/io" "$work/src/train" "$work/src/tools" "$work/src/mpi"
cd "$work" || exit 1
: >include/clef.h
: >include/clef/base.h
find src -mindepth 1 -type d ! -path src/plan | sed 's/.*/| `&\/` | a room |/' >CONTRIBUTING.md

# try FILE INCLUDE good|bad
wrong=0
try() {
    echo "#include $2" >"$1"
    if sh "$source/cmake/check_rooms.sh" "$work" >/dev/null 2>&1; then verdict=good; else verdict=bad; fi
    if [ $verdict != "$3" ]; then
        echo "rooms_catch: $1 with #include $2 was called $verdict" >&2
        wrong=1
    fi
    rm "$1"
}
try src/runtime/a.c '<CL/cl.h>' good
try src/graph/a.c '<CL/cl.h>' bad
try src/tools/a.c '<clef/opencl.h>' bad
try include/clef/opencl.h '<CL/cl.h>' good
try include/clef/tensor.h '<CL/cl.h>' bad
try include/clef/tensor.h '"graph/graph.h"' bad
try src/plan/run/a.c '"graph/graph.h"' good
try src/plan/run/open.c '<clef/opencl.h>' good
try src/graph/a.h '"plan/run/run.h"' bad
try src/plan/passes/a.c '"plan/lower/lower.h"' bad
try src/plan/lower/a.c '"plan/passes/groups.h"' good
try src/kernels/a.c '"plan/lower/lower.h"' good
try src/kernels/a.c '"plan/run/run.h"' bad
try src/ops/a.c '"plan/run/run.h"' good
try src/graph/a.c '"runtime/runtime.h"' good
try src/runtime/a.c '"graph/graph.h"' bad
try src/nn/a.c '"ops/ops.h"' good
try src/ops/a.c '"nn/nn.h"' bad
try src/io/a.c '"train/train.h"' bad
try src/train/a.c '"io/io.h"' good
try src/nn/a.c '"../ops/ops.h"' bad
try src/tools/a.c '"runtime/runtime.h"' bad
try src/tools/a.c '"runtime/json.h"' good
try src/tools/a.c '"clef.h"' good
try src/mpi/a.c '<mpi.h>' good
try src/mpi/a.c '"clef/transport.h"' good
try src/mpi/a.c '"graph/graph.h"' bad
try src/mpi/a.c '"runtime/runtime.h"' bad
try src/graph/a.c '<mpi.h>' bad
try src/graph/a.c '"clef/mpi.h"' bad
try include/clef/mpi.h '<mpi.h>' good
try include/clef/group.h '<mpi.h>' bad
: >include/clef/mpi.h
try include/clef.h '"clef/mpi.h"' bad
rm include/clef/mpi.h
: >src/graph/graph.h
: >src/runtime/json.h
try examples/a.c '"graph/graph.h"' bad
try examples/a.c '"../src/graph/graph.h"' bad
try examples/a.c '"runtime/json.h"' bad
try examples/a.c '<clef.h>' good

# calls ROOM OF good|bad: the object of one room uses a function of another.
calls() {
    rm -rf objects
    mkdir -p "objects/$1" "objects/$2"
    touch "src/$1/here.c" "src/$2/there.c"
    echo 'void clef__there(void); void clef__here(void); void clef__here(void) { clef__there(); }' | cc -c -x c - -o "objects/$1/here.c.o"
    echo 'void clef__there(void); void clef__there(void) {}' | cc -c -x c - -o "objects/$2/there.c.o"
    if sh "$source/cmake/check_rooms.sh" "$work" "$work/objects" >/dev/null 2>&1; then verdict=good; else verdict=bad; fi
    [ $verdict = "$3" ] && return
    echo "rooms_catch: a call from $1 to $2 was called $verdict" >&2
    wrong=1
}
calls graph runtime good
calls graph plan/run bad
calls plan/passes plan/lower bad
calls ops kernels good
calls kernels ops bad
calls plan/run plan/run good
rm -rf objects
# listed COMMAND: what is wrong after it.
listed() {
    cp CONTRIBUTING.md before
    "$@"
    if sh "$source/cmake/check_rooms.sh" "$work" >/dev/null 2>&1; then
        echo "rooms_catch: good after $*" >&2
        wrong=1
    fi
    cp before CONTRIBUTING.md
}
without_row() { grep -v src/nn/ before >CONTRIBUTING.md; }
without_folder() { echo '| `src/none/` | nothing |' >>CONTRIBUTING.md; }
without_rule() {
    mkdir src/new
    echo '| `src/new/` | nobody says what it may use |' >>CONTRIBUTING.md
}
listed without_row
listed without_folder
listed without_rule
rmdir src/new
try src/graph/a.c '"runtime/runtime.h"' good
[ $wrong = 0 ] && echo "rooms_catch: as expected"
exit $wrong
