#!/bin/sh
# kill.sh MPIEXEC PROGRAM: kills one of three ranks at a random moment, CLEF_KILLS (6) times.  The others must end within seconds, each with
# a line that names the killed one, and no process may be left.  Every third time mpirun does as it does by itself: it ends the rest.  So does
# MPICH's always: without -disable-auto-cleanup by itself, and with it by SIGUSR1.
mpiexec=$1 program=$2
ranks=3 limit=60 # seconds: far above the time-out of 2 and what a loaded machine adds
. "$(dirname "$0")/processes.sh"
status=0
fail() {
    echo "kill: run $run, victim $victim after $moment ms: $1" >&2
    cat "$folder/out" >&2
    status=1
}

run=0
while [ $run -lt "${CLEF_KILLS:-6}" ]; do
    run=$((run + 1))
    random=$(od -An -N4 -tu4 /dev/urandom)
    victim=$((random % ranks)) moment=$((random / 8 % 700))
    how=$lasting
    [ $((run % 3)) -eq 0 ] && how=
    rm -rf "$folder/pids" && mkdir "$folder/pids"
    # shellcheck disable=SC2086
    "$mpiexec" $usual $how -n $ranks "$program" $victim $moment "$folder/pids" >"$folder/out" 2>&1 &
    job=$!
    finish $limit || [ -z "$how" ] || fail "it hangs"
    grep -q 'no OpenCL device' "$folder/out" && { echo "skipped: no OpenCL device"; exit 77; }
    [ "$(ls "$folder/pids" | wc -l)" -eq $ranks ] || fail "not all ranks began"
    remaining=$(left)
    [ -z "$remaining" ] || { fail "processes are left: $remaining"; kill -9 $remaining; }
    [ -n "$how" ] || continue
    [ "$(grep -c "^ended: .*rank $victim (" "$folder/out")" -eq $((ranks - 1)) ] || fail "not all others name rank $victim"
done
[ $status -eq 0 ] && echo "kill: $run runs, as expected"
exit $status
