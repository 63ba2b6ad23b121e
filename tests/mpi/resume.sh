#!/bin/sh
# resume.sh MPIEXEC PROGRAM: training runs of 1, 2 and 4 ranks, one of which is killed at a random moment, CLEF_KILLS (3) times in all.  The others
# end within 10 s with a line that names it, no process is left, and the run goes on from the last whole checkpoint, with another number of
# ranks, killed again or not, until it is done: with the bits of a run that nobody killed.  Ranks are processes of MPI, and threads of
# one process, which is killed whole.
mpiexec=$1 program=$2
steps=${CLEF_STEPS:-40} limit=60
. "$(dirname "$0")/processes.sh"
status=0 kills=0 clear=0 resumed=0 slowest=0
fail() {
    echo "resume: kill $kills, $ranks ranks by $way, victim $victim after $moment ms: $1" >&2
    cat "$folder/out" >&2
    status=1
}

# run RANKS WAY VICTIM MILLISECONDS: one run; its exit code in $code; false where it hangs.
run() {
    rm -rf "$folder/pids" && mkdir "$folder/pids"
    if [ "$2" = threads ]; then
        devices=$(echo "0,0,0,0" | cut -c 1-$((2 * $1 - 1)))
        CLEF_RANKS=$devices "$program" "$folder" "$steps" "$3" "$4" "$folder/result" >"$folder/out" 2>&1 &
    else
        # shellcheck disable=SC2086
        "$mpiexec" $usual $lasting -n "$1" "$program" "$folder" "$steps" "$3" "$4" "$folder/result" >"$folder/out" 2>&1 &
    fi
    job=$!
    finish $limit
}

way=threads ranks=1 victim=-1 moment=0
run 1 threads -1 0
grep -q 'no OpenCL device' "$folder/out" && { echo "skipped: no OpenCL device"; exit 77; }
[ $code -eq 0 ] || { fail "the run that nobody kills failed"; exit 1; }
mv "$folder/result" "$folder/wanted"

while [ $kills -lt "${CLEF_KILLS:-3}" ]; do
    rm -f "$folder/last.ckpt" "$folder/result"
    ranks=$((1 << $(draw) % 3)) finished=
    while [ -z "$finished" ]; do
        way=mpi
        [ $(($(draw) % 3)) -eq 0 ] && way=threads
        victim=$(($(draw) % ranks)) moment=$(($(draw) % 600))
        [ $kills -lt "${CLEF_KILLS:-3}" ] || victim=-1
        rm -f "$folder/killed"
        run $ranks $way "$victim" $moment || fail "it hangs"
        took=0
        [ -e "$folder/killed" ] && took=$((ended - $(stat -c %.3Y "$folder/killed" | tr -d .)))
        remaining=$(left)
        [ -z "$remaining" ] || { fail "processes are left: $remaining"; kill -9 $remaining; }
        if grep -q '^resumed after' "$folder/out"; then resumed=$((resumed + 1)); fi
        if [ -e "$folder/result" ]; then # mpirun's own code says nothing once it goes on without a process
            finished=1
            cmp -s "$folder/wanted" "$folder/result" || { fail "other bits at the end"; diff "$folder/wanted" "$folder/result" >&2; }
        else
            kills=$((kills + 1))
            [ "$victim" -ge 0 ] || { fail "a run that nobody killed failed"; break; }
            if [ $way = threads ] || [ -z "$lasting" ] || [ "$(grep -c "^ended: .*rank $victim (" "$folder/out")" -eq $((ranks - 1)) ]; then
                clear=$((clear + 1))
            else
                fail "not all others name rank $victim"
            fi
            [ $took -le $((slowest)) ] || slowest=$took
        fi
        case $ranks in 1) ranks=2 ;; 2) ranks=$((1 + 3 * ($(draw) % 2))) ;; *) ranks=2 ;; esac # 1→2, 2→1 or 4, 4→2
    done
done
echo "resume: $kills kills, $clear clear endings, the slowest ${slowest} ms after the kill; $resumed resumes"
exit $status
