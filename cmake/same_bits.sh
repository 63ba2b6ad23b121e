#!/bin/sh
# same_bits.sh BASE [INTENDED]: does this working tree compute the same bits as commit BASE?
#
# Both are built, and the SHA-256 of the results of hundreds of graphs (tests/bits/main_graphs.c) compared: with the kernels of 16, 8 and 4
# float lanes and of the minimal profile, each on 1 and on 2 compute units.  Graphs whose names match the extended regular expression
# INTENDED may differ; they are listed apart.  Builds, kernels and hashes stay in build/same_bits, so a second run is short.
# CLEF_BITS_PART=conv tries only graphs whose names begin so.  Needs git, and pocl as the default device.  Exit status 0: the same.
[ $# -ge 1 ] && [ $# -le 2 ] || { echo "usage: same_bits.sh BASE [INTENDED]" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 2
base=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "same_bits.sh: $1 is no commit" >&2; exit 2; }
intended=${2:-^$}
place=$PWD/build/same_bits
least=300
[ -z "$CLEF_BITS_PART" ] || least=1
widths="cpu_avx512 cpu_avx2 cpu minimal"
units="1 2"
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
mkdir -p "$place"

# build_one NAME SOURCE: the library and the program of the graphs.  What lacks the program gets this tree's.
# (A BASE that lacks it and has an older interface does not build with it: commit the program of that interface on top of BASE.)
build_one() {
    program=$2/tests/bits/main_graphs.c
    [ -f "$program" ] || program=$PWD/tests/bits/main_graphs.c
    {
        cmake -S "$2" -B "$place/$1" -DCMAKE_BUILD_TYPE=Release -DCLEF_TESTS=OFF -DCLEF_TOOLS=OFF -DCLEF_EXAMPLES=OFF -DCLEF_BENCH=OFF &&
            cmake --build "$place/$1" -j "$jobs" &&
            cc -std=c11 -O1 -I"$2/include" -I"$place/$1/include" -I"$2/src" -I"$2/cl" -I"${program%/bits/*}" "$program" "$place/$1/libclef.a" \
                -o "$place/$1/graphs" -lOpenCL -lm -lpthread -ldl
    } >"$place/$1-build.log" 2>&1 || { cat "$place/$1-build.log"; echo "same_bits.sh: $1 does not build" >&2; exit 2; }
}

rm -rf "$place/base-source" && mkdir -p "$place/base-source"
git archive "$base" | tar -x -C "$place/base-source" || exit 2
build_one base "$place/base-source"
build_one head "$PWD"

# Both versions with one width: its kernels are compiled once, for all of them.
run_width='for units in '$units'; do for version in base head; do
    CLEF_PROFILE=$1 CLEF_BITS_UNITS=$units CLEF_CACHE=0 CLEF_TUNING=0 POCL_CACHE_DIR="'$place'/pocl" \
        "'$place'/$version/graphs" "$CLEF_BITS_PART" >"'$place'/$version-$1-$units" 2>&1 || exit 255
done; done'
for width in $widths; do echo "$width"; done | xargs -n 1 -P "$jobs" sh -c "$run_width" same_bits || {
    tail -n 3 "$place"/base-*-* "$place"/head-*-*
    echo "same_bits.sh: a run failed" >&2
    exit 1
}

bad=0
for width in $widths; do
    for n in $units; do
        sed 's/ \([0-9a-f]\{64\}\)/\t\1/' "$place/base-$width-$n" >"$place/base.tsv"
        sed 's/ \([0-9a-f]\{64\}\)/\t\1/' "$place/head-$width-$n" >"$place/head.tsv"
        awk -F '\t' -v intended="$intended" -v setting="$width, $n compute units" -v least="$least" '
            FNR == NR { base[$1] = $2; next }
            { head[$1] = 1 }
            !($1 in base) { new++; next }
            base[$1] == $2 { same++; next }
            $1 ~ intended { print setting ": " $1 ": changed as intended"; next }
            { print setting ": " $1 ": OTHER BITS"; bad++ }
            END {
                for (g in base) if (!(g in head)) { print setting ": " g ": LOST"; bad++ }
                printf "%s: %d graphs the same, %d new, %d wrong\n", setting, same, new, bad
                exit bad > 0 || same < least
            }' "$place/base.tsv" "$place/head.tsv" || bad=1
    done
done
[ "$bad" = 0 ] && echo "the same bits as $1" || echo "NOT the same bits as $1"
exit "$bad"
