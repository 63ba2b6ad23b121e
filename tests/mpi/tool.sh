#!/bin/sh
# tool.sh MPIEXEC CLEF: `clef train --mpi` on two processes trains one net, and rank 0 alone says so.
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
