#!/bin/sh
# tool.sh MPIEXEC CLEF: `clef train --mpi` on two processes trains one net, and rank 0 alone says so; so does `clef bench parallel --mpi`.
# With CLEF_TRACE each process writes its file.
here=$(dirname "$0")
out=$(sh "$here/on_ranks.sh" "$1" 2 "$2" train --data digits --epochs 4 --mpi)
code=$?
[ $code -eq 77 ] && echo "$out" && exit 77
[ $code -eq 0 ] || {
    echo "FAILED: exit code $code: $out"
    exit 1
}
[ "$(echo "$out" | grep -c 'test accuracy')" -eq 1 ] || {
    echo "FAILED: not one line of accuracy: $out"
    exit 1
}
accuracy=$(echo "$out" | sed -n 's/^test accuracy \([0-9]*\).*/\1/p')
[ "${accuracy:-0}" -ge 90 ] || {
    echo "FAILED: $out"
    exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=$(CLEF_TRACE="$folder/trace" sh "$here/on_ranks.sh" "$1" 2 "$2" bench parallel --mpi --seconds 0.001 --json --quiet)
code=$?
[ $code -eq 0 ] && [ "$(echo "$out" | wc -l)" -eq 23 ] || {
    echo "FAILED: exit code $code, not 23 lines: $out"
    exit 1
}
for rank in 0 1; do
    grep -q "\"name\":\"all_reduce\".*\"pid\":$((rank + 1)),.*\"op\":\"all_reduce\"" "$folder/trace.rank$rank" || {
        echo "FAILED: trace of rank $rank has no all_reduce of process $((rank + 1))"
        exit 1
    }
done
