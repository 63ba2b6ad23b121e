#!/bin/sh
# finalize.sh MPIEXEC PROGRAM: processes whose ranks have all ended well, of which one does not come out of MPI_Finalize: it hangs there, once, or is
# killed there at a random moment, CLEF_KILLS (6) times.  The others end within 10 s, with a line or without one, and no process is left.
mpiexec=$1 program=$2
limit=60 # seconds: far above what a loaded machine takes
. "$(dirname "$0")/processes.sh"
status=0 run=0 told=0 slowest=0
fail() {
    echo "finalize: run $run, $how after $moment us on $ranks ranks: $1" >&2
    cat "$folder/out" >&2
    status=1
}

line='ended: run_mpi: MPI_Finalize has not returned for 5 s: '

# run HOW MICROSECONDS RANKS
run() {
    how=$1 moment=$2 ranks=$3 begun=$(now)
    rm -rf "$folder/pids" && mkdir "$folder/pids"
    # shellcheck disable=SC2086
    "$mpiexec" $usual $lasting -n $ranks "$program" "$how" "$moment" "$folder/pids" >"$folder/out" 2>&1 &
    job=$!
    finish $limit || { fail "it hangs"; return; }
    grep -q 'no OpenCL device' "$folder/out" && { echo "skipped: no OpenCL device"; exit 77; }
    took=$((ended - begun))
    [ $took -le $slowest ] || slowest=$took
    remaining=$(left)
    [ -z "$remaining" ] || { fail "processes are left: $remaining"; kill -9 $remaining; }
    lines=$(grep -c "^$line" "$folder/out")
    told=$((told + lines))
}

# everyone_ended: each with the line or, where it needed none, without; with MPICH all are killed.
everyone_ended() { [ -z "$lasting" ] || [ $((lines + $(grep -c '^ended: well' "$folder/out"))) -ge "$1" ]; }

run hangs 0 2
[ "$lines" -ge 1 ] && everyone_ended 2 || fail "not a line of each"
while [ $run -lt "${CLEF_KILLS:-6}" ]; do
    run=$((run + 1))
    random=$(od -An -N4 -tu4 /dev/urandom)
    run killed $((random % 12000)) $((2 + run % 2))
    everyone_ended $((ranks - 1)) || fail "not all others end"
done
echo "finalize: $run kills, $told processes gave up, the slowest run $slowest ms"
exit $status
