#!/bin/sh
# on_driver.sh rusticl|oclgrind PROGRAM [ARGS]: runs a test on another OpenCL implementation.
# Exit 77 where it is not installed.  Under Oclgrind, which reports and goes on, any line in its log fails the test.
driver=$1
shift

# first PATTERN…: the first existing file.
first() {
    for path; do
        [ -e "$path" ] && echo "$path" && return
    done
    return 1
}

case $driver in
rusticl)
    icd=$(first /etc/OpenCL/vendors/rusticl.icd /usr/share/OpenCL/vendors/rusticl.icd) || {
        echo "skipped: rusticl is not installed (package mesa-opencl-icd)"
        exit 77
    }
    [ -z "$CLEF_CACHE_DIR" ] || export CLEF_CACHE_DIR="$CLEF_CACHE_DIR/rusticl"
    # Tiny shapes and few kernels: its compiler takes long for each, and the others are the main run's business.
    export CLEF_TEST_SMALL=2 OCL_ICD_VENDORS="$icd" OCL_ICD_FILENAMES="$icd" RUSTICL_ENABLE="${RUSTICL_ENABLE:-llvmpipe}"
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
# No cache, so that reports name lines of the source; no optimiser, as it makes instructions that cannot be interpreted;
# tiny shapes and few kernels, as every instruction is; one thread, as Oclgrind is not made for more.
OCL_ICD_VENDORS="$library" OCL_ICD_FILENAMES="$library" OCLGRIND_DATA_RACES=1 OCLGRIND_UNINITIALIZED=1 \
    OCLGRIND_CHECK_API=1 OCLGRIND_LOG="$work/pipe" OCLGRIND_BUILD_OPTIONS=-cl-opt-disable CLEF_CACHE_DIR="$work/cache" \
    CLEF_TEST_SMALL=2 CLEF_COMPILE_THREADS=1 CRITERION_JOBS=1 "$@" 9>&-
status=$?
exec 9>&-
wait $reader
if [ -s "$work/log" ]; then
    echo "Oclgrind reported $(wc -l <"$work/log") lines; the first of them:" >&2
    head -n 60 "$work/log" >&2
    [ $status = 0 ] && status=1
fi
exit $status
