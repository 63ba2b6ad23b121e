#!/bin/sh
# quickstart.sh: installs what is missing, builds into build/, trains a network on the embedded digits, and says on what
# device, how well and how fast.  Exit 0 from 97 % of the held-out digits on.
cd "$(dirname "$0")/.." || exit 2
. cmake/setup.sh

setup_packages quick
say "Building into build/ …"
mkdir -p build
if ! { cmake --preset release -DCLEF_WERROR=OFF && cmake --build --preset release --target clef_tool -j "$(cores)"; } >build/quickstart.log 2>&1; then
    tail -n 40 build/quickstart.log >&2
    say "The build failed; all of its words are in build/quickstart.log" >&2
    exit 1
fi

say "Training on 8x8 handwritten digits; the first run compiles kernels, once."
build/clef train --data digits --model cnn --epochs 20 --batch 32 --seed 1 --json >build/quickstart.json
status=$?
if [ $status -ne 0 ]; then
    [ $status -ne 77 ] || say "No OpenCL device here: install one (package pocl-opencl-icd runs on any CPU)" >&2
    exit $status
fi

# value EVENT KEY: from the last line of that event.
value() {
    sed -n "/\"event\": *\"$1\"/s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" build/quickstart.json | tail -n 1
}
accuracy=$(value done test_accuracy)
awk -v device="$(value start device)" -v accuracy="$accuracy" -v speed="$(value done images_per_second)" \
    -v seconds="$(value done seconds)" -v compile="$(value done compile_seconds)" 'BEGIN {
    printf "Device:   %s\n", device
    printf "Accuracy: %.2f %% of the held-out digits\n", 100 * accuracy
    printf "Speed:    %.0f images/s (%.1f s in all, %.1f s of it compiling kernels)\n", speed, seconds, compile
    if (accuracy < 0.97) {
        print "That is below 97 %: something is wrong."
        exit 1
    }
    print "Next: build/clef --help, and the examples in examples/."
}'
