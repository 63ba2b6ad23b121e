#!/bin/sh
# parallel.sh [--quick] [ROW…]: what training on several ranks gives, a line for each figure with what it must reach; on a machine with two cores and
# nothing else to do, in less than ten minutes.  Rows: train uneven exposed pipeline reduce zero simulate; none: all of them.
# Of the first row, Clef and PyTorch take three turns; medians.  CLEF_PYTHON: a Python with PyTorch, else build/bench/venv of compare.sh; without
# one its line is left out, and without MPI those of processes.  --quick: one turn of few rounds, to see that it runs.
# Ceiling: the ranks without a group, each with its part of the batch, all at the same time; with MPI these are independent processes of one core.
# Exit code 1: a figure is below what it must reach.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${CLEF_BUILD:-$root/build}
python=${CLEF_PYTHON:-$build/bench/venv/bin/python3}
turns=3 rounds=11 seconds=0.5 model=--resnet18 parameters=44.7
[ "${1:-}" = --quick ] && { turns=1 rounds=1 seconds=0.01 model= parameters=0.17; shift; }
rows=${*:-train uneven exposed pipeline reduce zero simulate}
[ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release >&2 || exit 1
cmake --build "$build" --target bench_group bench_exposed bench_pipeline bench_simulate clef_tool slow_device group_main_sharded >&2 || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0 began=$(date +%s)

# row WHAT FIGURE MUST: at least so much, or "<=0.2": at most.
row() {
    awk -v what="$1" -v figure="$2" -v must="$3" 'BEGIN {
        most = must ~ /^<=/
        limit = must
        sub(/^<=/, "", limit)
        ok = figure != "" && (must == "-" || (most ? figure <= limit + 0 : figure >= limit + 0))
        printf "%-92s %9s  must %-6s %s\n", what, figure == "" ? "none" : sprintf("%.3f", figure), most ? "≤ " limit : must == "-" ? "-" : "≥ " limit, ok ? "" : "MISSED"
        exit !ok
    }' || status=1
}
# of PATTERN COLUMN FILE…: the median of this column (from the end: 1, 2) of lines that begin so.
of() {
    pattern=$1 column=$2
    shift 2
    awk -v p="^$pattern" -v c="$column" '$0 ~ p { print $(NF + 1 - c) }' "$@" | sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}
divided() { awk -v a="$1" -v b="$2" 'BEGIN { if (a != "" && b > 0) print a / b }'; }
json() { sed -n "s/.*\"event\":\"$1\".*\"$2\":\([0-9.e+-]*\).*/\1/p" "$3"; }

mpi=
if [ -e "$build/libclef-mpi.so" ] && command -v mpiexec >/dev/null; then
    case $(mpiexec --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) mpi="mpiexec --allow-run-as-root --oversubscribe --bind-to none -n 2" ;;
    *) mpi="mpiexec -n 2" ;;
    esac
fi

train() {
    turn=0
    while [ $turn -lt "$turns" ]; do
        turn=$((turn + 1))
        # shellcheck disable=SC2086
        ${mpi:-} "$build/bench/bench_group" 0/2 train ${mpi:+mpi} rounds=$rounds >"$work/train.$turn" || cat "$work/train.$turn" >&2
        [ ! -x "$python" ] || "$python" "$root/bench/peers/peer_ddp.py" 64 $rounds 2>"$work/log" >"$work/ddp.$turn" || cat "$work/log" >&2
    done
    row "ResNet-18, batch 64, two one-core ranks by threads: of the ceiling" "$(of '2 threads  ' 2 "$work"/train.*)" 0.92
    [ -z "$mpi" ] || row "the same by two MPI processes" "$(of '2 processes  ' 2 "$work"/train.*)" 0.88
    row "two one-core ranks against one rank on the two-core device" "$(of '2 threads  ' 1 "$work"/train.*)" 0.95
    ms=$(of '2 threads  ' 3 "$work"/train.*)
    [ ! -x "$python" ] || row "against PyTorch's DistributedDataParallel over gloo, 2 processes" "$(divided "$(of Distributed 2 "$work"/ddp.*)" "$ms")" 1.3
}

uneven() {
    LD_PRELOAD=$build/tests/slow_device.so CLEF_TEST_SLOW=1=3 "$build/clef" devices --plan resnet18 --devices 0/2 --batch 64 --json >"$work/uneven"
    sum=$(json device items_per_second_alone "$work/uneven" | awk '{ s += $1 } END { print s }')
    row "one rank three times as slow, shares by speed: of the sum of both speeds" "$(divided "$(json plan items_per_second "$work/uneven")" "$sum")" 0.9
}

exposed() {
    "$build/bench/bench_exposed" bandwidth=0.2 rounds=$rounds >"$work/exposed"
    row "exposed communication, ResNet-18, links of 0.2 GB/s and 50 us" "$(awk '/^exposed/ { print $2 }' "$work/exposed")" "<=0.2"
}

pipeline() {
    "$build/bench/bench_pipeline" rounds=$rounds >"$work/pipeline"
    row "pipeline of 2 stages, 8 micro-batches: of 2 x 8/9 times one device" "$(awk '/of the ideal/ { print $1 }' "$work/pipeline")" 0.85
}

reduce() {
    "$build/bench/bench_group" 0/2 reduce rounds=$rounds >"$work/reduce"
    row "all-reduce of 64 MB by two threads: of memcpy by both" "$(of ' *65536 KB' 1 "$work/reduce")" 0.5
}

# The most of all nets and optimizers.
zero() {
    "$build/tests/group/main_sharded" >"$work/zero"
    row "ZeRO 2 on two ranks: states and gradients of one rank, of those without it" \
        "$(awk '/MB of .* on one of two ranks/ { for (i = 1; i <= NF; i++) if ($i == "MB") { r = $(i - 1) / $(i + 2); if (r > most) most = r } } END { print most }' "$work/zero")" "<=0.55"
}

# Four ranks, whose kernels take four times as long without keeping a core busy, so that two cores are enough for four ranks.  What the simulator
# is told was measured in the same run: a step on one rank, and an all-reduce by as many ranks, 2·(n − 1)/n of its bytes over a link.
simulate() {
    # shellcheck disable=SC2086
    POCL_MAX_PTHREAD_COUNT=4 LD_PRELOAD=$build/tests/slow_device.so CLEF_TEST_SLOW=0=4,1=4,2=4,3=4 \
        "$build/clef" bench parallel --devices 0/4 $model --seconds "$seconds" --json --quiet >"$work/parallel"
    step=$(measured scaling 1)
    for n in 2 4; do
        bandwidth=$(awk -v t="$(measured all_reduce $n '64 MiB')" -v n=$n 'BEGIN { if (t > 0) print 0.067108864 * 2 * (n - 1) / n / t }')
        latency=$(awk -v t="$(measured all_reduce $n '1 KiB')" -v n=$n 'BEGIN { if (t > 0) print 1e6 * t / 2 / (n - 1) }')
        ms=$("$build/bench/bench_simulate" "step=$(ms_of "$step")" parameters=$parameters "bandwidth=$bandwidth" "latency=$latency" | awk -v n=$n '$1 == n { print $2 }')
        row "simulator, ${model:+ResNet-18 on }$n ranks: predicted of measured time" "$(divided "$ms" "$(ms_of "$(measured scaling $n)")")" -
    done
}
measured() { sed -n "s/.*\"suite\":\"$1\".*\"shape\":\"$2 ranks, ${3:-batch 64}\",\"seconds\":\([0-9.e+-]*\).*/\1/p" "$work/parallel"; }
ms_of() { awk -v s="$1" 'BEGIN { print 1e3 * s }'; }

for each in $rows; do
    case $each in
    train | uneven | exposed | pipeline | reduce | zero | simulate) $each ;;
    *) echo "parallel.sh: no row is called $each" >&2; exit 2 ;;
    esac
done
echo "$(($(date +%s) - began)) s, load $(cut -d ' ' -f 1 /proc/loadavg)"
exit $status
