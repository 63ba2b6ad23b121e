#!/bin/sh
# on_driver.sh pocl|rusticl|oclgrind|intel PROGRAM [ARGS]: runs a test on that OpenCL implementation (pocl stands for what is there
# without further ado).  CLEF_PROFILE and CLEF_TEST_SMALL, where set, hold on each.  Exit 77 where it is not installed.
# With CLEF_PROFILE=cpu_avx2 or cpu and the library CLEF_TEST_PRETEND_CPU, pocl makes code for such a CPU.
# Under Oclgrind, which reports and goes on, any line in its log fails the test; CLEF_TEST_WHOLE_WRITES, build/tests/whole_writes.so
# unless set, keeps it from reporting what is initialised; CLEF_TEST_REGISTERS, where set, is build/tests/registers.so, which makes it faster.
driver=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)

# first PATTERN…: the first existing file.
first() {
    for path; do
        [ -e "$path" ] && echo "$path" && return
    done
    return 1
}

has_feature() { grep -qw "$1" /proc/cpuinfo 2>/dev/null; }

# use_icd FILE: that implementation and no other, with a cache of its own.
use_icd() {
    [ -z "$CLEF_CACHE_DIR" ] || export CLEF_CACHE_DIR="$CLEF_CACHE_DIR/$driver"
    export OCL_ICD_VENDORS="$1" OCL_ICD_FILENAMES="$1"
}

case $driver in
pocl)
    case $CLEF_PROFILE in
    cpu_avx2) pretend=avx2 feature=avx2 ;;
    cpu) pretend=sse feature=sse4_2 ;;
    *) pretend= ;;
    esac
    # Under AddressSanitizer, whose library wants to be the first of all.
    if [ -n "$pretend" ] && [ -e "$CLEF_TEST_PRETEND_CPU" ] && has_feature $feature; then
        export LD_PRELOAD="$CLEF_TEST_PRETEND_CPU" PRETEND_CPU=$pretend
        export ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"
    fi
    exec "$@"
    ;;
rusticl)
    icd=$(first /etc/OpenCL/vendors/rusticl.icd /usr/share/OpenCL/vendors/rusticl.icd) || {
        echo "skipped: rusticl is not installed (package mesa-opencl-icd)"
        exit 77
    }
    use_icd "$icd"
    export RUSTICL_ENABLE="${RUSTICL_ENABLE:-llvmpipe}"
    exec "$@"
    ;;
intel)
    # The one that cmake/setup.sh fetches, else one that is installed; it finds its own libraries beside it.
    icd=$(first "$CLEF_INTEL_ICD" "$here/build/intel/intel.icd" || grep -l libintelocl /etc/OpenCL/vendors/*.icd 2>/dev/null | head -n 1)
    [ -n "$icd" ] || {
        echo "skipped: Intel's OpenCL for CPUs is not here (Python packages intel-opencl-rt and intel-cmplr-lib-rt; cmake/check.sh fetches them)"
        exit 77
    }
    use_icd "$icd"
    exec "$@"
    ;;
oclgrind)
    tool=$(command -v oclgrind)
    library=$(first ${tool:+"$(dirname "$(dirname "$tool")")"/lib/oclgrind/liboclgrind-rt-icd.so} \
        /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so \
        /usr/lib/*/liboclgrind-rt-icd.so) || {
        echo "skipped: Oclgrind is not installed (package oclgrind)"
        exit 77
    }
    ;;
*)
    echo "on_driver: unknown driver $driver" >&2
    exit 2
    ;;
esac

# Each process of the test truncates the log it opens, so all of them write into one pipe that stays open.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkfifo "$work/pipe" || exit 1
cat "$work/pipe" >"$work/log" &
reader=$!
exec 9>"$work/pipe"
whole=${CLEF_TEST_WHOLE_WRITES:-$here/build/tests/whole_writes.so}
[ -e "$whole" ] || whole=
# No cache, so that reports name lines of the source; no optimiser, as it makes instructions that cannot be interpreted, or that of
# registers.so, where Oclgrind's compiler can run such a one; one thread, as Oclgrind is not made for more.
compile=-cl-opt-disable registers=
if [ -e "$CLEF_TEST_REGISTERS" ] && core=$(ldd "$library" | sed -n 's/.*=> *\(.*liboclgrind[^ ]*\).*/\1/p') &&
    grep -qa flegacy-pass-manager "$core"; then
    compile="-O1 -flegacy-pass-manager" registers=$CLEF_TEST_REGISTERS
fi
OCL_ICD_VENDORS="$library" OCL_ICD_FILENAMES="$library" LD_PRELOAD="$whole:$registers${LD_PRELOAD:+:$LD_PRELOAD}" \
    OCLGRIND_DATA_RACES=1 OCLGRIND_UNINITIALIZED=1 OCLGRIND_CHECK_API=1 OCLGRIND_LOG="$work/pipe" \
    OCLGRIND_BUILD_OPTIONS="$compile" CLEF_CACHE_DIR="$work/cache" \
    CLEF_COMPILE_THREADS=1 CRITERION_JOBS=1 "$@" 9>&-
status=$?
exec 9>&-
wait $reader
if [ -s "$work/log" ]; then
    echo "Oclgrind reported $(wc -l <"$work/log") lines; the first of them:" >&2
    head -n 60 "$work/log" >&2
    [ $status = 0 ] && status=1
fi
exit $status
