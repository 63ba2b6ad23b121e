#!/bin/sh
# targets.sh OUT [--quick] [--devices KEYS]: what Clef's kernels take of GPUs that are not here.
#
# Each case of the benchmarks is planned for each device of cl/devices.def: an OpenCL that runs nothing answers as that
# device would, and writes down programs and launches.  The programs go through the makers' compilers, which need no device.
# OUT/report.md is a table of registers, private and local memory, occupancy and main loops; OUT/kernels.json has every launch.
# Fails when a kernel does not compile or a gate does not hold (bench/targets/targets.py tells which).  --quick: models, in one
# half type on each device, and in TF32 two models and a product in all orders where there are units for it.
#
# Needs Python 3, clang 15 or later, libclc (package libclc-15); for NVIDIA ptxas, and nvdisasm for the main loops (PyPI's
# nvidia-cuda-nvcc-cu12 and nvidia-cuda-nvdisasm; CLEF_GPU_TOOLS names their folder, build/gpu unless set); for SPIR-V
# llvm-spirv-15 and spirv-tools.  What is missing is said and left out.
# Environment: CLEF_BUILD, the build folder (build); CLEF_PYTHON.  Exit 77 where nothing can be compiled.
[ $# -ge 1 ] || { echo "usage: targets.sh OUT [--quick] [--devices KEYS]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
build=${CLEF_BUILD:-$here/../build}
python=$(command -v "${CLEF_PYTHON:-python3}") || { echo "skipped: no Python 3"; exit 77; }
export CLEF_GPU_TOOLS="${CLEF_GPU_TOOLS:-$here/../build/gpu}"
"$python" "$here/targets/targets.py" tools || exit 77
"$python" "$here/targets/targets.py" list "$out" --build "$build" "$@" || exit 1
"$python" "$here/targets/targets.py" compile "$out" "$@"
