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

# Processes of this run that are still there, zombies not counted, after 10 s at most.
left() {
    for wait in 1 2 3 4 5 6 7 8 9 10; do
        alive=
        for pid in $(ls "$folder/pids"); do
            state=$(sed -n 's/^State:[^A-Z]*\([A-Z]\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
            case $state in '' | Z) ;; *) alive="$alive $pid" ;; esac
        done
        [ -n "$alive" ] || return
        sleep 1
    done
    echo "$alive"
}
