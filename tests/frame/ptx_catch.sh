#!/bin/sh
# ptx_catch.sh SOURCE: the gate of 64-bit divisions in loops (bench/targets/compile.py) opens where it should, and only there.
source=$1
fail() { echo "ptx_catch: $*" >&2 && exit 1; }
command -v python3 >/dev/null || { echo "skipped: no Python 3"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# Its slow way lies before the loop's first line, as clang lays it.
tried='bra.uni $L2;
$L1:
 div.s64 %rd3, %rd1, %rd2;
$L3:
 @%p2 bra $L2;
 bra.uni $L4;
$L2:
 and.b64 %rd5, %rd4, -4294967296;
 setp.ne.s64 %p1, %rd5, 0;
 @%p1 bra $L1;
 div.u32 %r3, %r1, %r2;
 bra.uni $L3;
$L4:
 ret;'
# expect NUMBER WHAT BODY: so many wide divisions are in a kernel of that body.
expect() {
    printf '.visible .entry f(\n)\n{\n%s\n}\n' "$3" >"$work/a.ptx"
    found=$(cd "$source/bench/targets" && PYTHONDONTWRITEBYTECODE=1 python3 -c 'import compile, sys; print(compile.read_ptx(sys.argv[1])["f"]["wide_divisions"])' \
        "$work/a.ptx") || fail "$2: it cannot be read"
    [ "$found" = "$1" ] || fail "$2: $found, not $1"
}
expect 0 "one that tries 32 bits first" "$tried"
expect 1 "one that does not" "$(echo "$tried" | sed 's/ and.b64.*/ add.s64 %rd5, %rd4, 1;/')"
expect 1 "one beside a division of 32 bits" '$L1:
 rem.u64 %rd3, %rd1, %rd2;
 div.s32 %r3, %r1, %r2;
 @%p1 bra $L1;
 ret;'
expect 0 "one outside" ' div.s64 %rd3, %rd1, %rd2;
$L1:
 @%p1 bra $L1;
 ret;'
echo "ptx_catch: as expected"
