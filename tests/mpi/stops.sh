#!/bin/sh
# stops.sh MPIEXEC CLEF: runs of `clef train --parallel` that are stopped at a random moment, CLEF_KILLS (6) times: one process of several is
# killed (kill -9), or one, or mpirun, gets the signal of Ctrl-C; or the process whose threads the ranks are.  All end within 10 s, with one
# line for each process that says why, no process is left, and the run goes on from the last whole checkpoint to the bits of one that nobody
# stopped: in the same way, or where batches are in parts with another number of ranks.
mpiexec=$1 clef=$2
limit=90 # seconds: far above what a loaded machine takes
. "$(dirname "$0")/processes.sh"
status=0 stops=0 resumed=0 slowest=0
train="train --quiet --data digits --model mlp --limit 176 --batch 40 --epochs 60 --schedule constant --clip-norm 0.7 --seed 5"
impatient="--timeout 3" # of runs that are stopped; the others take what a busy machine takes
fail() {
    echo "stops: stop $stops, --parallel $way on $ranks ranks by $by, $how of rank $victim after $moment ms: $1" >&2
    cat "$folder/out" >&2
    status=1
}

devices() { echo "0,0,0,0" | cut -c 1-$((2 * $1 - 1)); }

# Each process leaves a file by its number with its rank.
begin='echo "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" >"$0/$$"; exec "$@"'

# start BY RANKS OPTIONS…: in the background; its number in $job.
start() {
    rm -rf "$folder/pids" && mkdir "$folder/pids"
    by_=$1 ranks_=$2
    shift 2
    # shellcheck disable=SC2086
    if [ "$by_" = mpi ]; then
        "$mpiexec" $usual $lasting -n "$ranks_" sh -c "$begin" "$folder/pids" "$clef" $train --mpi --devices 0 "$@" >"$folder/out" 2>&1 &
    else
        sh -c "$begin" "$folder/pids" "$clef" $train --devices "$(devices "$ranks_")" "$@" >"$folder/out" 2>&1 &
    fi
    job=$!
}

# options WAY: as the command takes them.
options() { if [ "$1" = parts ]; then echo "--parts 4"; else echo "--parallel $1"; fi; }

# wanted WAY RANKS: the file that nobody's stop makes.
wanted() {
    file=$folder/wanted.$1
    [ -e "$file" ] && return
    # shellcheck disable=SC2046
    "$clef" $train $(options "$1") --devices "$(devices "$2")" --out "$file" >"$folder/out" 2>&1
    code=$?
    [ $code -eq 77 ] && { echo "skipped: no OpenCL device"; exit 77; }
    [ $code -eq 0 ] || { fail "the run that nobody stops failed"; exit 1; }
}

# stop_it: the signal, to whom it goes; false where the run was done before.
stop_it() {
    target=$(grep -lx "$victim" "$folder"/pids/* | head -n 1)
    target=${target##*/}
    signal=-INT
    case $how in
    kill) signal=-KILL ;;
    launcher) target=$job ;;
    esac
    kill $signal "$target" 2>/dev/null
}

check_lines() {
    case $how in
    kill) [ $by = threads ] || [ -z "$lasting" ] ||
        [ "$(grep -c "^clef train: .*rank $victim (" "$folder/out")" -eq $((ranks - 1)) ] || fail "not all others name rank $victim" ;;
    signal) [ "$(grep -c '^clef train: interrupted; --resume continues' "$folder/out")" -eq 1 ] || fail "not one line of the interruption" ;;
    esac
}

# Goes on with the run until it is done: for parts with other numbers of ranks.
go_on() {
    others=$ranks
    [ $way = parts ] && others=$((1 << $(draw) % 3))
    # shellcheck disable=SC2046
    start threads $others $(options $way) --checkpoint "$folder/c" --checkpoint-every 3 --resume --out "$folder/result"
    if ! finish $limit || [ $code -ne 0 ]; then
        fail "it does not go on, on $others ranks"
    elif ! cmp -s "$folder/wanted.$way" "$folder/result"; then
        fail "other bits, on $others ranks"
    else
        resumed=$((resumed + 1))
    fi
}

kinds="parts:2 pipeline:2 tensor:2 2x2x1:4 parts:4 2x1x2:4"
while [ $stops -lt "${CLEF_KILLS:-6}" ]; do
    for kind in $kinds; do
        [ $stops -lt "${CLEF_KILLS:-6}" ] || break
        way=${kind%:*} ranks=${kind#*:} by=mpi how=kill victim=$(($(draw) % ranks)) moment=$(($(draw) % 600))
        case $(($(draw) % 5)) in 0) by=threads victim=0 ;; 1) how=signal ;; 2) how=launcher ;; esac
        [ $by = threads ] && [ $(($(draw) % 2)) -eq 0 ] && how=signal
        wanted $way $ranks
        rm -rf "$folder/c" "$folder/result" "$folder/done"
        # shellcheck disable=SC2046
        start $by $ranks $(options $way) $impatient --checkpoint "$folder/c" --checkpoint-every 3 --out "$folder/done"
        tries=$((limit * 50))
        while [ ! -e "$folder/c/last.ckpt" ] && kill -0 $job 2>/dev/null && [ $tries -gt 0 ]; do
            tries=$((tries - 1))
            sleep 0.02
        done
        sleep $((moment / 1000)).$(printf %03d $((moment % 1000)))
        stop_it || { finish $limit; continue; } # it was done before
        begun=$(now)
        finish $limit || fail "it hangs"
        [ ! -e "$folder/done" ] || continue # it was done before, and had only to end
        took=$((ended - begun))
        stops=$((stops + 1))
        [ $took -le 10000 ] || fail "it took $took ms to end"
        [ $took -le $slowest ] || slowest=$took
        remaining=$(left)
        [ -z "$remaining" ] || { fail "processes are left: $remaining"; kill -9 $remaining; }
        check_lines
        go_on
    done
done
echo "stops: $stops stops, the slowest end after $slowest ms; $resumed runs went on to the same bits"
[ $resumed -eq $stops ] || status=1
exit $status
