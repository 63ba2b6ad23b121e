#!/bin/sh
# listings.sh SOURCE GENERATED CC [LIBRARY]: every listing in C of README.md and docs/*.md compiles, and those that are whole programs run
# (LIBRARY: the shared library; without it they are compiled only).  A listing that is a part may use the names that are declared here.
source=$1 generated=$2 cc=$3 library=$4
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0
n=0

cat >"$work/names.h" <<'END'
#include <clef.h>
#include <stdio.h>
clef_context *ctx;
clef_module *net;
clef_optimizer *opt;
clef_dataset *set;
clef_loader *data, *test;
clef_group *all;
clef_tensor *x, *y;
int64_t classes[10];
END

compile() { "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -I"$work" -I"$source/include" -I"$generated" "$@"; }

fail() {
    echo "listings: $1" >&2
    status=1
}

# check PAGE FILE LINE: one listing, which begins at that line of the page.
check() {
    if ! grep -q 'int main(' "$2"; then
        { echo '#include "names.h"'; echo 'void listing(void);'; echo 'void listing(void) {'; cat "$2"; echo '}'; } >"$2.c"
        compile -Wno-unused-variable -fsyntax-only "$2.c" || fail "$1, line $3: does not compile"
        return
    fi
    cp "$2" "$2.c"
    if [ -z "$library" ]; then
        compile -fsyntax-only "$2.c" || fail "$1, line $3: does not compile"
        return
    fi
    compile -o "$work/program" "$2.c" "$library" -Wl,-rpath,"$(dirname "$library")" -lm -lpthread || { fail "$1, line $3: does not compile"; return; }
    (cd "$work" && ./program)
    code=$?
    [ $code = 0 ] || [ $code = 77 ] || fail "$1, line $3: ended with $code"
}

for page in "$source"/README.md "$source"/docs/*.md; do
    rm -f "$work"/part.*
    awk -v to="$work/part." '/^```c$/ { on = 1; file = to (NR + 1); next } /^```/ { on = 0 } on { print > file }' "$page"
    for part in "$work"/part.*; do
        [ -f "$part" ] || continue
        n=$((n + 1))
        check "${page#"$source"/}" "$part" "${part##*.}"
    done
done
[ $n -ge 4 ] || fail "only $n listings found"
echo "listings: $n"
exit $status
