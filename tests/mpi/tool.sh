#!/bin/sh
# tool.sh MPIEXEC CLEF: `clef train --mpi` on two processes trains one net, and rank 0 alone says so; so does `clef bench parallel --mpi`.
# In parts they have the bits of one device.  With CLEF_TRACE each process writes its file.
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

# In parts, processes end with the bits of threads and of one device, and resume what these left.
small="train --quiet --data digits --model lenet --limit 160 --batch 24 --parts 4"
fail() {
    echo "FAILED: $*"
    exit 1
}
"$2" $small --epochs 2 --out "$folder/one" >/dev/null || fail "one device in parts"
sh "$here/on_ranks.sh" "$1" 2 "$2" $small --epochs 2 --zero 1 --mpi --out "$folder/two" >/dev/null || fail "two processes in parts"
cmp "$folder/one" "$folder/two" || fail "two processes have other bits than one device"
"$2" $small --epochs 1 --schedule constant --devices 0,0,0,0 --checkpoint "$folder/c" >/dev/null || fail "four threads in parts"
sh "$here/on_ranks.sh" "$1" 2 "$2" $small --epochs 2 --schedule constant --mpi --checkpoint "$folder/c" --resume --out "$folder/two" >/dev/null ||
    fail "two processes do not resume what four threads left"
"$2" $small --epochs 2 --schedule constant --out "$folder/one" >/dev/null || fail "one device in parts, constant"
cmp "$folder/one" "$folder/two" || fail "two processes resumed to other bits"
