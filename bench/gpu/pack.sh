#!/bin/sh
# pack.sh DIR [--no-data]: gathers in DIR, and compressed in DIR.tar.gz, what bench/gpu.sh needs on a machine that has a driver and
# nothing else.
[ -n "$1" ] || { echo "usage: gpu.sh --pack DIR [--no-data]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
build=${CLEF_BUILD:-$here/../../build}
to=$1
[ -x "$build/clef" ] && [ -x "$build/tests/kernels/main_mutants" ] && [ -x "$build/tests/kernels/test_tile" ] || {
    echo "gpu.sh: $build lacks clef or the kernel tests; build them first (CLEF_BUILD names the folder)" >&2
    exit 1
}
mkdir -p "$to/bin" "$to/lib" "$to/gpu" || exit 1
cp "$build/clef" "$build/clef-probe" "$build/bench/bench_clef" "$build"/tests/kernels/main_* "$to/bin/"
for name in $(sed 's/#.*//' "$here/tests.txt"); do cp "$build/tests/kernels/$name" "$to/bin/" || exit 1; done
cp "$here/../gpu.sh" "$to/"
cp "$here/report.sh" "$here/one_test.sh" "$here/tests.txt" "$here/cases.txt" "$here/../peers/peer_torch.py" "$to/gpu/"
# The checks of kernels for GPUs.
sed -n '/define GPU_CHECKS/,/[^\\]$/p' "$here/../../tests/kernels/mutant_checks.h" | grep -o 'X([a-z_]*)' | sed 's/X(\(.*\))/\1/' >"$to/gpu/checks.txt"
# All shared libraries but those of the C library, which belong to the system.
for program in "$to"/bin/*; do LD_LIBRARY_PATH="$build" ldd "$program"; done | sed -n 's/^.* => \(\/[^ ]*\).*/\1/p' | sort -u |
    grep -Ev '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util))\.so\.[0-9]+$' | while read -r library; do cp -L "$library" "$to/lib/"; done
strip "$to"/bin/* "$to"/lib/* 2>/dev/null
if [ "$2" != --no-data ] && [ -n "$CLEF_DATA" ]; then
    mkdir -p "$to/data"
    for set in mnist cifar10; do [ ! -d "$CLEF_DATA/$set" ] || cp -r "$CLEF_DATA/$set" "$to/data/"; done
fi
tar -C "$(dirname "$to")" -cf - "$(basename "$to")" | gzip -9 >"$to.tar.gz" || exit 1
du -sh "$to" "$to.tar.gz"
