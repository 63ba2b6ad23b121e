#!/bin/sh
# mpich.sh SOURCE GENERATED LIBRARY: compiles src/mpi and its tests once more, against MPICH, and runs them; on a machine that has it.  LIBRARY:
# libclef.so.
source=$1 generated=$2 library=$3
compiler=mpicc.mpich mpiexec=mpiexec.mpich
for command in $compiler $mpiexec; do
    command -v $command >/dev/null 2>&1 || {
        echo "skipped: no MPICH (packages libmpich-dev mpich)"
        exit 77
    }
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
# compile TEST FLAGS…
compile() {
    test=$1
    shift
    $compiler -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -Wall -Wextra -Werror -I"$source/include" -I"$source/src" -I"$generated" "$@" \
        "$source/tests/mpi/$test.c" "$source"/src/mpi/*.c "$library" -Wl,-rpath,"$(dirname "$library")" -lpthread -lm -o "$work/$test" || status=1
}
compile main_transport -Wl,--wrap=malloc -Wl,--wrap=calloc
compile main_ranks
compile finalize_rank
for test in main_transport main_ranks; do
    for n in 1 3; do
        sh "$source/tests/mpi/on_ranks.sh" $mpiexec $n "$work/$test" || { echo "FAILED: $test on $n ranks (exit $?)" >&2; status=1; }
    done
done
CLEF_KILLS=2 sh "$source/tests/mpi/finalize.sh" $mpiexec "$work/finalize_rank" || { echo "FAILED: finalize (exit $?)" >&2; status=1; }
exit $status
