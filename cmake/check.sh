#!/bin/sh
# check.sh: installs what is missing, builds, runs every test, and says what was skipped and what would enable it.
#
#   1. the release preset: all tests on the usual device; small ones with the kernels of other vector widths (16, 8 and 4 float
#      lanes, the minimal profile; most tests at two of these) and of GPUs, on rusticl, on Intel's OpenCL for CPUs and under Oclgrind
#   2. the asan preset: the plain-main tests under AddressSanitizer and UBSan, the largest of them at other widths; a third of the
#      random cases, and MPI programs with most processes only
#   3. the tsan preset: the tests of threads (label `threads`) under ThreadSanitizer
#   4. the fuzz preset: each fuzz target for a few seconds (needs clang)
#
# check.sh --all runs the whole cross product: at every width all tests in full, more kernels on the other implementations, all random
# cases under sanitizers, and every mutant.
#
# The tests on the usual device come first, then 2 to 4, then the others of 1.  Where CLEF_CHECK_MINUTES is set, no part of the others
# begins later than so many minutes after the start: on a slow machine the summary names what was left out.
#
# Environment: CLEF_DATA, CLEF_SHAPES (default ../shared/data, ../shared/shapes where they exist), CLEF_CHECK_JOBS, CLEF_CHECK_MINUTES,
# CLEF_TEST_WHOLE.
# The last line is "N passed, N failed, N skipped"; the exit status is 0 when nothing failed.
case $*:$# in
:0) left_out=whole ;;
--all:1) left_out=brief && export CLEF_TEST_WHOLE=1 ;;
*)
    echo "check.sh: unknown arguments: $*; it takes --all or nothing" >&2
    exit 2
    ;;
esac
case $CLEF_CHECK_MINUTES in
*[!0-9]* | 0?*)
    echo "check.sh: CLEF_CHECK_MINUTES is no whole number: $CLEF_CHECK_MINUTES" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.." || exit 2
root=$PWD
. cmake/setup.sh

begun=$(date +%s)
elapsed() { echo "$(($(date +%s) - begun)) s"; }
title() { printf '\n==== %s (%s) ====\n' "$1" "$(elapsed)"; }

[ -n "$CLEF_DATA" ] || { [ -d ../shared/data ] && CLEF_DATA=$(cd ../shared/data && pwd) && export CLEF_DATA; }
[ -n "$CLEF_SHAPES" ] || { [ -d ../shared/shapes ] && CLEF_SHAPES=$(cd ../shared/shapes && pwd) && export CLEF_SHAPES; }
jobs=${CLEF_CHECK_JOBS:-$(cores)}
slots=$((jobs + 1)) # of tests: some of them wait, for a compiler, a time-out or other ranks
reports=build/check
failed_steps=
skipped_steps=

fail_step() {
    say "FAILED: $1"
    failed_steps="$failed_steps$1
"
}
skip_step() {
    say "skipped: $1"
    skipped_steps="$skipped_steps$1
"
}

# The profile that the usual device has anyway: its rows of the matrix would repeat the tests on that device.
own_profile() {
    build/clef devices --json 2>/dev/null | sed -n '/"default":true/s/.*"type":"\([a-z]*\)".*"vector_width":\([0-9]*\).*/\1 \2/p' | {
        read -r type lanes
        case $type:$lanes in
        cpu:16) say cpu_avx512 ;;
        cpu:8) say cpu_avx2 ;;
        cpu:*) say cpu ;;
        *) say "${type:-none}" ;;
        esac
    }
}

# tests PRESET WHAT LABELS EXCEPT: those that have one of the labels and none of the others; the report goes to $reports/PRESET-WHAT.xml.
tests() {
    title "$2"
    ctest --preset "$1" -L "$3" -LE "^($left_out|$(own_profile)${4:+|$4})\$" -j $slots --no-tests=ignore \
        --output-junit "$root/$reports/$1-$(say "$2" | tr -c 'a-z\n' -).xml" --test-output-size-passed 65536 --test-output-size-failed 262144
}

# built NAME WHAT TARGET [OPTIONS…]: configures and builds a preset; false, and said, if that fails.
built() {
    name=$1 what=$2 target=$3
    shift 3
    title "$what: configure and build"
    cmake --preset "$name" "$@" >build/check/"$name"-configure.log 2>&1 || {
        cat build/check/"$name"-configure.log
        fail_step "$what: configure"
        return 1
    }
    grep 'Clef' build/check/"$name"-configure.log
    cmake --build --preset "$name" -j "$jobs" --target "$target" >build/check/"$name"-build.log 2>&1 || {
        grep -E 'error: |warning: |undefined reference|multiple definition|\*\*\*' -A 4 build/check/"$name"-build.log | tail -n 80
        fail_step "$what: build (all of it in build/check/$name-build.log)"
        return 1
    }
}

# others WHAT LABELS [EXCEPT]: tests of the release preset away from the usual device, if there is time.
others() {
    if [ -n "$CLEF_CHECK_MINUTES" ] && [ $(($(date +%s) - begun)) -gt $((CLEF_CHECK_MINUTES * 60)) ]; then
        skip_step "$1: later than $CLEF_CHECK_MINUTES minutes after the start (CLEF_CHECK_MINUTES)"
    else
        tests release "$@"
    fi
}

title "setup"
setup_packages check
mkdir -p $reports
rm -f $reports/*.xml
setup_python >$reports/python.log 2>&1 || say "setup: no Python with numpy, safetensors and tokenizers ($reports/python.log)"
setup_gpu_tools >$reports/gpu.log 2>&1 || say "setup: no assembler of NVIDIA's ($reports/gpu.log)"
setup_intel >$reports/intel.log 2>&1 || say "setup: no OpenCL of Intel's ($reports/intel.log)"
if python=$(find_python); then
    CLEF_PYTHON=$python
    export CLEF_PYTHON
fi

released=
built release "release" all && released=yes
[ -z "$released" ] || tests release "tests on the usual device" "" portability
if printf 'int main(void){return 0;}\n' | cc -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null; then
    built asan "sanitizers" all && tests asan "sanitizers" ""
else
    skip_step "sanitizers: this compiler has no AddressSanitizer (packages libasan, libubsan)"
fi
# Run, not only linked: it refuses kernels whose memory is laid out too freely.
if printf 'int main(void){return 0;}\n' | cc -fsanitize=thread -x c - -o $reports/tsan 2>/dev/null && $reports/tsan 2>/dev/null; then
    built tsan "threads" thread_tests && tests tsan "threads" threads
else
    skip_step "threads: ThreadSanitizer does not work here (package libtsan, or a kernel setting: vm.mmap_rnd_bits above 28)"
fi
if clang=$(fuzzing_clang); then
    built fuzz "fuzzing" all -DCMAKE_C_COMPILER="$clang" && tests fuzz "fuzzing" ""
else
    skip_step "fuzzing: needs clang with its runtime ($(fuzzing_packages | tr '\n' ' ')is missing)"
fi
if [ -n "$released" ]; then
    others "kernels as for other devices" portability 'intel.*|rusticl.*|oclgrind.*'
    others "intel and rusticl" '^(intel|rusticl)'
    others "oclgrind" '^oclgrind'
fi

title "summary"
# One line per test: STATUS name, then its reasons for skipping, from ctest's JUnit files.
for report in $reports/*.xml; do
    [ ! -f "$report" ] || { say "<preset name=\"$(basename "$report" .xml)\"" && cat "$report"; }
done | sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' | awk -F'"' '
    /^<preset / { preset = $2; sub(/-.*/, "", preset) }
    /<testcase / {
        name = $2
        for (i = 1; i < NF; i++) if ($i ~ / status=$/) status = $(i + 1)
        # `notrun` is a skip when the test asked for it; else its program is missing.
        kind = status == "run" ? "passed" : status == "fail" ? "failed" : ""
    }
    /<failure/ { kind = "failed" }
    # Of a test that fails, the last lines.
    /<testcase / { printed = 0 }
    !/^\t*<\/?(testcase|failure|properties|system-out>$)/ { last[printed++ % 20] = $0 }
    /<skipped/ && kind == "" { kind = $0 ~ /SKIP/ ? "skipped" : "failed" }
    /skipped: / { line = $0; sub(/.*skipped: /, "", line); reasons[++n] = line }
    /\[SKIP\]|\[ *SKIP *\]/ { line = $0; sub(/.*\] */, "", line); reasons[++n] = line }
    /<\/testcase>/ {
        print kind " " name (kind == "failed" ? " (" preset ")" : "")
        for (i = printed > 20 ? printed - 20 : 0; kind == "failed" && i < printed; i++) print "failed_lines     " last[i % 20]
        if (kind == "skipped" && n == 0)
            reasons[++n] = "ended with 77 and gave no reason (see: ctest --preset release -V -R " name ")"
        for (i = 1; i <= n; i++) if (!seen[name, reasons[i]]++) print "reason " (kind == "skipped" ? "all" : "part") " " name ": " reasons[i]
        n = 0
    }' >$reports/summary
count() { grep -c "^$1 " $reports/summary; }
lines() { printf '%s' "$1" | grep -c .; }
passed=$(count passed)
failed=$(($(count failed) + $(lines "$failed_steps")))
skipped=$(($(count skipped) + $(count 'reason part') + $(lines "$skipped_steps")))

if [ "$skipped" -gt 0 ]; then
    say "Skipped, and what would enable it:"
    [ -z "$skipped_steps" ] || printf '%s' "$skipped_steps" | sed 's/^/  /'
    sed -n 's/^reason \(all\|part\) /  /p' $reports/summary | sort -u
    [ -n "$CLEF_DATA" ] || say "  (CLEF_DATA is not set: tests on MNIST and CIFAR-10 want a folder with mnist/ and cifar10/)"
    [ -n "$CLEF_SHAPES" ] || say "  (CLEF_SHAPES is not set: twenty of DeepBench's shapes were tried, not all; it names a folder with its CSV files)"
fi
if [ "$failed" -gt 0 ]; then
    say "Failed:"
    [ -z "$failed_steps" ] || printf '%s' "$failed_steps" | sed 's/^/  /'
    sed -n 's/^failed /  /p; s/^failed_lines //p' $reports/summary
fi
say "Time: $(elapsed)"
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
