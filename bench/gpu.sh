#!/bin/sh
# gpu.sh: everything that is to be known of Clef on a GPU, in at most 25 minutes, on a machine with an OpenCL driver and nothing else.
#
#     gpu.sh --pack DIR [--no-data]                where Clef was built: gathers in DIR, and in DIR.tar.gz, all that the other machine needs
#     DIR/gpu.sh OUT [FORM] [--parts NAME,…]       on the other machine: OUT/report.html and OUT/report.json
#     gpu.sh --report OUT                          both files once more, of the parts in OUT/parts (of several runs, if they were put together)
#
# The other machine needs a shell with the usual commands, glibc 2.34 or later where the pack was made on Debian 12, and a driver.
# Drivers that no ICD file tells of are searched for.  No part stops another: one that fails, or takes longer than it may, is noted with
# its last lines; what a part leaves of its time those behind it may take, and the mutants, which come last, all that is left.  Parts:
# machine devices probes matrix digits kernels profiles mnist cifar torch tune bench predict cases mutants.
#
# FORM: --full, all of it; --small, the same parts with fewer kernels, images and smaller cases, for a device that is no GPU, a rehearsal
# of the day; --quick, a case or two of each part in a minute.  Without one: --small where the device that Clef takes is a CPU, else --full.
#
# Environment: CLEF_BUILD, the build folder of --pack (build); CLEF_DATA, a folder with mnist/ and cifar10/ (that of the pack);
# CLEF_PYTHON, a Python with PyTorch for the GPU (python3); CLEF_PREDICT, the row of cl/devices.def that figures are predicted by (that of the
# device's name); CLEF_PROFILE forces a row of cl/profile.def in all parts but `profiles`.
here=$(cd "$(dirname "$0")" && pwd)
case $1 in
--pack) shift && exec sh "$here/gpu/pack.sh" "$@" ;;
--report) exec sh "$here/gpu/report.sh" "$2" ;;
--inside) inside=$2 && shift 2 ;;
esac
usage="usage: gpu.sh OUT [--full | --small | --quick] [--parts NAME,…] | --pack DIR [--no-data] | --report OUT"
[ -n "$1" ] && [ "${1#-}" = "$1" ] || { echo "$usage" >&2; exit 2; }
[ -x "$here/bin/clef" ] || { echo "gpu.sh: no programs in $here/bin; gpu.sh --pack DIR makes a folder that has them" >&2; exit 2; }
mkdir -p "$1/parts" "$1/work" && out=$(cd "$1" && pwd) || exit 1
shift
all="machine devices probes matrix digits kernels profiles mnist cifar torch tune bench predict cases mutants"
parts=$all
while [ $# -gt 0 ]; do
    case $1 in
    --full | --small | --quick) CLEF_GPU_FORM=${1#--} ;;
    --parts) parts=$(echo "$2" | tr , ' ') && shift ;;
    *) echo "$usage" >&2; exit 2 ;;
    esac
    shift
done
for name in $parts; do
    case " $all " in
    *" $name "*) ;;
    *) echo "gpu.sh: no part \"$name\"; there are $all" >&2; exit 2 ;;
    esac
done

bin=$here/bin
into=$out/parts
[ -n "$inside" ] || export CLEF_GPU_LIBRARIES="$LD_LIBRARY_PATH" # what it was, for programs that are not of the pack
[ -n "$inside" ] || export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export CLEF_PROBE="$bin/clef-probe" CLEF_CACHE_DIR="$out/work/cache" CUDA_CACHE_PATH="$out/work/driver" POCL_CACHE_DIR="$out/work/driver"
export CRITERION_VERBOSITY_LEVEL=1 CLEF_DATA="${CLEF_DATA:-$here/data}"
# by_form QUICK SMALL FULL: the one of this form.
by_form() { case $CLEF_GPU_FORM in quick) echo "$1" ;; small) echo "$2" ;; *) echo "$3" ;; esac; }

# ---- the driver ----
# Libraries of drivers, wherever the loader or the makers' installers have them.
find_libraries() {
    for name in libnvidia-opencl.so.1 libamdocl64.so libamdocl12cl64.so libigdrcl.so libintelocl.so libmali.so.1 libmali.so libRusticlOpenCL.so.1 libpocl.so.2; do
        for folder in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/lib /usr/local/nvidia/lib64 /usr/local/nvidia/lib \
            /usr/local/cuda/compat /usr/lib/wsl/lib /opt/rocm*/lib /opt/rocm*/opencl/lib /usr/lib/*/intel-opencl /opt/intel/*/lib /vendor/lib64; do
            [ -e "$folder/$name" ] && echo "$folder/$name" && break
        done || ldconfig -p 2>/dev/null | sed -n "s|^.*[[:space:]]$name .*=> ||p" | head -n 1
    done
}

# Those that are registered or in OCL_ICD_FILENAMES, which not every loader knows, and those that are neither: a machine may have a
# CPU's driver registered beside a GPU's that is not.
find_driver() {
    [ -z "$OCL_ICD_VENDORS" ] || return 0
    mkdir -p "$out/work/vendors"
    cp /etc/OpenCL/vendors/*.icd "$out/work/vendors/" 2>/dev/null
    { echo "$OCL_ICD_FILENAMES" | tr ':' '\n' | grep -v '\.icd$'; find_libraries; } | while read -r library; do
        name=$(basename "$library")
        [ -z "$name" ] || grep -qsE "(^|/)${name%%.so*}\.so" "$out"/work/vendors/*.icd || echo "$library" >"$out/work/vendors/$name.icd"
    done
    export OCL_ICD_VENDORS="$out/work/vendors"
}

# ---- parts: do_NAME, in a process of its own; lines of JSON go to NAME.jsonl ----
do_machine() {
    uname -a
    date -u
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c
    grep MemTotal /proc/meminfo
    echo "OCL_ICD_VENDORS=$OCL_ICD_VENDORS OCL_ICD_FILENAMES=$OCL_ICD_FILENAMES"
    cat "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}"/*.icd 2>/dev/null
    nvidia-smi 2>&1
    nvidia-smi -q -d CLOCK,POWER,TEMPERATURE 2>&1
    "$bin/clef" --version
}
do_devices() { "$bin/clef" devices --json >"$into/devices.jsonl" && "$bin/clef" devices; }
do_probes() { "$bin/clef" devices --probe --json >"$into/probes.jsonl" && cat "$into/probes.jsonl"; }

# run_tests RESULTS PROFILE PROGRAM…: as many at a time as there are processors, at most 8, since compilers take most of the time.
run_tests() {
    results=$1 profile=$2
    shift 2
    jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
    [ "$jobs" -le 8 ] || jobs=8
    export CLEF_GPU_MOST=$(by_form 120 240 120)
    echo "$@" | tr ' ' '\n' | xargs -P "$jobs" -n 1 sh "$here/gpu/one_test.sh" "$results" "$profile" "$out/work"
}
do_kernels() {
    export CLEF_TEST_SMALL=$(by_form 2 1 0) CLEF_TEST_WHOLE=$(by_form 0 0 1)
    run_tests "$into/kernels.jsonl" own $(by_form test_reduce "$(sed 's/#.*//' "$here/gpu/tests.txt")" "$(sed 's/#.*//' "$here/gpu/tests.txt")")
}
do_profiles() {
    export CLEF_TEST_SMALL=$(by_form 2 1 1)
    tests="test_matmul test_conv test_winograd test_reduce test_sums test_softmax test_norm test_loss test_pool test_epilogue"
    all_profiles="gpu gpu_64 gpu_16 gpu_shared minimal"
    bad=0
    for profile in $(by_form gpu_shared "$all_profiles" "$all_profiles"); do
        run_tests "$into/profiles.jsonl" $profile $(by_form test_sums "$tests" "$tests") || bad=1
    done
    return $bad
}
# The device's own matrix units and shuffles, which the kernel tests replace by local memory unless told otherwise.
do_matrix() {
    export CLEF_TEST_SMALL=$(by_form 2 1 0) CLEF_TEST_MATRIX=1 CLEF_TEST_SHUFFLE=1
    run_tests "$into/matrix.jsonl" own test_matrix test_shuffle
}
do_mutants() {
    bad=0
    export CLEF_CACHE_DIR="$out/work/untuned" # without what `tune` found: checks are of the ways that are chosen by default
    for check in $(by_form softmax_vectors "$(sed -n '1~6p' "$here/gpu/checks.txt")" "$(cat "$here/gpu/checks.txt")"); do
        echo "$check:"
        "$bin/main_mutants" "$check" || bad=1
    done
    return $bad
}
do_digits() { "$bin/clef" train --data digits $(by_form "--epochs 1 --limit 200") --json >"$into/digits.jsonl"; }
do_mnist() { "$bin/clef" train --data "mnist:$CLEF_DATA/mnist" $(by_form "--epochs 1 --limit 200" "--epochs 1 --limit 20000") --json >"$into/mnist.jsonl"; }
do_cifar() { "$bin/clef" train --data "cifar10:$CLEF_DATA/cifar10" $(by_form "--epochs 1 --limit 100" "--epochs 2 --limit 4000") --json >"$into/cifar.jsonl"; }
do_tune() { "$bin/clef" tune --budget $(by_form 1 30 40) --export "$into/tuning.json" --json >"$into/tune.jsonl"; }
do_bench() {
    "$bin/clef" bench $(by_form "copy fma --seconds 0.01" "--seconds 0.02" "--seconds 0.2 --resnet18") --json >"$into/bench.jsonl"
    code=$?
    "$bin/clef" bench --compare "$into/bench.jsonl" --html "$into/bench.html"
    return $code
}
# What bench has measured beside what was to be expected of the device.
do_predict() {
    gpu=${CLEF_PREDICT:-$(sed -n 's/.*"name":"\([^"]*\)".*/\1/p' "$into/devices.jsonl" 2>/dev/null | head -n 1)}
    "$bin/clef" bench --predict "$gpu" --json >"$into/predict.jsonl" || {
        [ -n "$CLEF_PREDICT" ] && return 1
        echo "skipped: nothing is published in cl/devices.def of \"$gpu\"; CLEF_PREDICT names a row"
        return 77
    }
    [ ! -s "$into/bench.jsonl" ] || "$bin/clef" bench --compare "$into/predict.jsonl" "$into/bench.jsonl"
}
# Each line of cases.txt to a program of the protocol of bench_clef.c: "LINE => ANSWER".  Small ones are of few images and at most 1024 wide.
ask_cases() {
    case $CLEF_GPU_FORM in
    quick) grep -m 2 pointwise "$here/gpu/cases.txt" | sed 's/calls=.*/calls=2/' ;;
    small) grep -v '^#' "$here/gpu/cases.txt" | sed 's/=\(2048\|4096\|8192\)/=1024/g; s/conv n=32/conv n=2/; s/batch=[0-9]*/batch=8/; s/steps=50/steps=10/; s/calls=.*/calls=2/' | uniq ;;
    *) grep -v '^#' "$here/gpu/cases.txt" ;;
    esac >"$out/work/cases"
    "$@" <"$out/work/cases" | {
        read -r ready && echo "$ready"
        while read -r answer && read -r line <&3; do echo "$line => $answer"; done 3<"$out/work/cases"
    }
}
do_cases() { ask_cases "$bin/bench_clef"; }
do_torch() {
    export LD_LIBRARY_PATH="$CLEF_GPU_LIBRARIES"
    python=$(command -v "${CLEF_PYTHON:-python3}") || { echo "skipped: no Python"; return 77; }
    "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null || { echo "skipped: no PyTorch that reaches a GPU"; return 77; }
    CLEF_TORCH_DEVICE=cuda ask_cases "$python" "$here/gpu/peer_torch.py"
}

[ -z "$inside" ] || { "do_$inside"; exit; }

# ---- all of them ----
# seconds NAME: what a part may take beside what those before it left or took too much; together less than 25 minutes.
seconds() {
    case $1 in
    kernels) by_form 240 460 240 ;;
    profiles) echo 200 ;;
    cases) by_form 150 100 150 ;;
    mutants) echo 130 ;;
    bench) by_form 120 100 120 ;;
    cifar | torch) by_form 100 60 100 ;;
    machine) echo 30 ;;
    *) by_form 60 40 60 ;;
    esac
}
word() {
    case $1 in
    0) echo good ;;
    77) echo skipped ;;
    124 | 137) echo "out of time" ;;
    *) echo failed ;;
    esac
}
find_driver
[ -n "$CLEF_GPU_FORM" ] || CLEF_GPU_FORM=$("$bin/clef" devices --json 2>/dev/null | grep '"default":true' | grep -q '"type":"cpu"' && echo small || echo full)
export CLEF_GPU_FORM
echo "form: $CLEF_GPU_FORM"
left=0
for name in $parts; do
    rm -f "$into/$name.jsonl"
    begin=$(date +%s)
    most=$(($(seconds "$name") + left))
    export CLEF_GPU_END=$((begin + most))
    timeout -k 5 "$most" sh "$here/gpu.sh" --inside "$name" "$out" >"$into/$name.log" 2>&1 </dev/null
    code=$?
    took=$(($(date +%s) - begin))
    left=$((most - took)) # less than nothing where it had to be killed: the next has less
    echo "$code $took $(word $code)" >"$into/$name.status"
    printf '%-10s %-12s %4d s\n' "$name" "$(word $code)" "$took"
    [ $code = 0 ] || tail -n 3 "$into/$name.log" | sed 's/^/    /'
done
rm -rf "${out:?}/work" 2>/dev/null || { sleep 2 && rm -rf "${out:?}/work"; } # compilers of a part that was ended may still write
sh "$here/gpu/report.sh" "$out"
