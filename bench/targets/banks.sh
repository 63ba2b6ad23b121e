#!/bin/sh
# banks.sh [LINE…]: how often work-items of a sub-group of 32 meet in a bank of local memory, in what bench_clef launches for lines of its
# protocol under a profile for GPUs; without any, for products of f32 in all orders, a softmax and a sum.  Oclgrind interprets the kernels;
# where phases and cycles are equal nothing waits.
#
# Needs the packages oclgrind, liboclgrind-dev and llvm-14-dev (of the LLVM that Oclgrind was built with), and a C++ compiler.
# Environment: CLEF_BUILD, the build folder (build); CLEF_PROFILE (gpu); CLEF_ROWS.  Exit 77 where something is missing.
here=$(cd "$(dirname "$0")" && pwd)
build=${CLEF_BUILD:-$here/../../build}
driver=$(ls /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so 2>/dev/null | head -n 1)
headers=$(ls -d /usr/include/llvm-*/llvm/ADT/StringRef.h /usr/lib/llvm-*/include/llvm/ADT/StringRef.h 2>/dev/null | head -n 1)
[ -n "$driver" ] && [ -n "$headers" ] && [ -e /usr/include/oclgrind/Plugin.h ] || { echo "skipped: Oclgrind or its headers are missing"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CXX:-c++}" -std=c++17 -shared -fPIC -O1 -fno-rtti -I/usr/include/oclgrind -I"${headers%/llvm/ADT/StringRef.h}" -o "$work/banks.so" \
    "$here/banks.cpp" -loclgrind || exit 1
[ $# -gt 0 ] || set -- "gemm m=512 n=512 k=64" "gemm m=512 n=512 k=64 ta=1" "gemm m=512 n=512 k=64 tb=1" "gemm m=512 n=512 k=64 ta=1 tb=1" \
    "reduce op=softmax rows=64 columns=1024 dim=1" "reduce op=sum rows=4096 columns=64 dim=0"
for line; do
    echo "$line:"
    echo "$line calls=1 copies=1" | OCL_ICD_VENDORS="$driver" OCL_ICD_FILENAMES="$driver" OCLGRIND_PLUGINS="$work/banks.so" OCLGRIND_NUM_THREADS=1 \
        OCLGRIND_BUILD_OPTIONS="-O1 -flegacy-pass-manager" LD_PRELOAD="$build/tests/registers.so" CLEF_CACHE=0 \
        CLEF_PROFILE="${CLEF_PROFILE:-gpu}" "$build/bench/bench_clef" 2>&1 | sed -n 's/^banks: /    /p; /^error/p'
done
