#!/bin/sh
# gpu_catch.sh SOURCE BUILD: bench/gpu.sh from a folder of its own, without a network where that can be had: its short form, and parts
# that fail, which it has to note and to go on from.
source=$1
fail() { echo "gpu_catch: $*" >&2 && exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
CLEF_BUILD=$2 sh "$source/bench/gpu.sh" --pack "$work/pack" --no-data || fail "no pack"
cd "$work/pack" || exit 1
offline=
unshare -rn true 2>/dev/null && offline="unshare -rn"
CLEF_PREDICT=a100 $offline sh ./gpu.sh "$work/out" --quick || fail "it stopped"
well_formed() { [ -z "$(command -v python3)" ] || python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1" || fail "$1 is no JSON"; }
has() { grep -q "$2" "$1" || fail "$1 lacks $2"; }
well_formed "$work/out/report.json"
for part in machine devices probes matrix digits kernels profiles mnist cifar torch tune bench predict cases mutants; do
    has "$work/out/report.json" "{\"name\":\"$part\",\"result\":"
done
for part in machine devices probes kernels profiles mutants digits tune bench predict cases; do
    has "$work/out/report.json" "{\"name\":\"$part\",\"result\":\"good\""
done
has "$work/out/report.json" '"clef_seconds":[0-9]'
has "$work/out/report.json" '"label":"a100, predicted"'
has "$work/out/report.html" 'A  a100, predicted'
has "$work/out/report.json" '{"test":"test_reduce","profile":"own","code":0'
has "$work/out/report.html" '<h2>Rooflines</h2>'
grep -q 'src=\|href=' "$work/out/report.html" && fail "the page wants something else"
# A CPU gets the form for a rehearsal, unless told otherwise.
sh ./gpu.sh "$work/form" --parts machine | grep -q '^form: small$' || fail "another form for a CPU"
sh ./gpu.sh "$work/form" --parts machine --full | grep -q '^form: full$' || fail "--full is not heard"
# A device that is not there and a test that is not there.
rm bin/test_reduce
CLEF_DEVICE=99 sh ./gpu.sh "$work/bad" --quick --parts devices,kernels,digits || fail "it stopped at a failure"
well_formed "$work/bad/report.json"
for part in devices kernels digits; do has "$work/bad/report.json" "{\"name\":\"$part\",\"result\":\"failed\""; done
has "$work/bad/report.json" 'test_reduce, profile own: exit code 127'
has "$work/bad/report.html" '<h3>kernels: failed</h3>'
sh ./gpu.sh "$work/bad" --parts nothing 2>/dev/null && fail "an unknown part passed"
echo "gpu_catch: as expected"
