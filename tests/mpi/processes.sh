# processes.sh — for scripts that start processes with $mpiexec, after which none may be left: the options that it takes, and a folder.
# Sets usual, lasting (go on without a rank that was killed; empty where mpiexec cannot) and folder, which is removed at the end; each process of
# a run leaves a file by its number in $folder/pids.  Skips where there is no MPI.
[ -n "$mpiexec" ] && command -v "$mpiexec" >/dev/null 2>&1 || {
    echo "skipped: no MPI (packages libopenmpi-dev openmpi-bin, before the build is configured)"
    exit 77
}
case $("$mpiexec" --version 2>&1) in
*"Open MPI"* | *OpenRTE*) usual="--allow-run-as-root --oversubscribe --bind-to none" lasting=--enable-recovery ;;
*) usual= lasting= ;;
esac
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# A random number; milliseconds.
draw() { od -An -N4 -tu4 /dev/urandom | tr -d ' '; }
now() { date +%s%N | cut -c 1-13; }

# Processes of this run that are there now, zombies not counted.
alive() {
    for pid in $(ls "$folder/pids"); do
        state=$(sed -n 's/^State:[^A-Z]*\([A-Z]\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
        case $state in '' | Z) ;; *) printf ' %s' "$pid" ;; esac
    done
}

# Those that are still there after 10 s.
left() {
    for wait in 1 2 3 4 5 6 7 8 9 10; do
        remaining=$(alive)
        [ -n "$remaining" ] || return
        sleep 1
    done
    echo "$remaining"
}

# finish SECONDS: waits for the job $job, whose exit code is $code and whose end $ended; false where it takes longer: all are killed then.
# On a busy machine mpirun of Open MPI 4.1 sometimes stays when all of its processes have ended: after 5 s of that it is killed, as it was no fault
# of theirs.  The end is theirs then.
finish() {
    rounds=$(($1 * 20)) alone=0
    while kill -0 "$job" 2>/dev/null && [ $rounds -gt 0 ] && [ $alone -lt 5 ]; do
        rounds=$((rounds - 1))
        sleep 0.05
        [ $((rounds % 20)) -eq 0 ] || continue
        if [ -z "$(ls "$folder/pids")" ] || [ -n "$(alive)" ]; then alone=0; else alone=$((alone + 1)); fi
        [ $alone -ne 1 ] || ended=$(now)
    done
    if [ $alone -ge 5 ]; then
        echo "mpirun stayed when its processes had ended" >&2
        kill -9 "$job"
        wait "$job" 2>/dev/null
        code=0
        return 0
    fi
    ended=$(now) code=124
    [ $rounds -gt 0 ] || { kill -9 "$job" $(ls "$folder/pids") 2>/dev/null; wait "$job" 2>/dev/null; return 1; }
    wait "$job" 2>/dev/null
    code=$?
    return 0
}
