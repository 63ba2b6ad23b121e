#!/bin/sh
# generators.sh SOURCE CMAKE CC: what the two generators make of awkward input, compiled and compared.
source=$1 cmake=$2 cc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
    echo "generators: $1" >&2
    exit 1
}

# ---- embed.cmake: quotes, semicolons, brackets, backslashes, UTF-8; no comments, no indentation, but the space before a
# backslash that ends a line; a header once, a table each time ----
mkdir "$work/cl"
printf 'int base = "[;] \\n \303\251"; /* gone *\n * "too" **/\n\n    #define TWO a    \\\n        b /* gone */\n' >"$work/cl/base.h"
printf '#include "base.h"\nint more;\n' >"$work/cl/more.h"
printf 'ROW(a)\n' >"$work/cl/table.def"
printf '#include "base.h"\n  #include "more.h" // twice\n#include "table.def"\n#include "table.def"\nkernel\n' >"$work/cl/k.cl"
"$cmake" -DFROM="$work/cl" -DTO="$work/out.c" -P "$source/cmake/embed.cmake" || fail "embed.cmake failed"
cat >"$work/main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "out.c"
int main(int argc, char **argv) {
    for (int i = 0; i < clef__embedded_count; i++)
        if (argc > 1 && !strcmp(clef__embedded_files[i].name, argv[1])) fputs(clef__embedded_files[i].text, stdout);
    return clef__embedded_count != 3;
}
END
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$work/main" "$work/main.c" || fail "embedded text does not compile"
"$work/main" k.cl | grep -v '^$' >"$work/got" || fail "not three entries"
base='int base = "[;] \\n \303\251";\n#define TWO a \\\nb\n'
printf "${base}int more;\nROW(a)\nROW(a)\nkernel\n" >"$work/want"
cmp -s "$work/want" "$work/got" || { diff "$work/want" "$work/got" >&2; fail "k.cl embedded wrongly"; }
"$work/main" base.h | grep -v '^$' >"$work/got"
printf "$base" | cmp -s - "$work/got" || fail "base.h embedded wrongly"
printf '#include "nowhere.h"\n' >"$work/cl/k.cl"
"$cmake" -DFROM="$work/cl" -DTO="$work/out.c" -P "$source/cmake/embed.cmake" 2>/dev/null && fail "a missing include passed"

# ---- pointwise_header.cmake: rows over lines, brackets inside strings, comments, every kind of row ----
mkdir "$work/defs"
cat >"$work/defs/unary.def" <<'END'
/* UNARY(not_this, REAL, a "quote ( in a comment */
#ifndef UNARY
#define UNARY(...)
#endif
UNARY(one, REAL, SEL(x > K(0.0f), x, ((x))), "", g * (x), K(0), "x in (0, 1]; \"half-open\"")
UNARY(two, REAL, f(x),
      "(", g,
      K(0),
      "a row over lines")
UNARY_P(leak, REAL, x * p, "x", g, "", "p times x")
UNARY_PP(clip, REAL, x, "x", g, "", "x between p and q")
END
printf '%s\n' 'BINARY(sum, ANY, a + b, "", g, "", g, "a + b")' 'BINARY_CORE(less, ANY, a - b, g, -g, "a - b")' >"$work/defs/binary.def"
echo 'TERNARY(pick, ANY, SEL(a, b, c), "b where a, else c")' >"$work/defs/ternary.def"
mkdir -p "$work/include/clef"
cp "$source/include/clef/base.h" "$source/include/clef/context.h" "$source/include/clef/tensor.h" "$work/include/clef/"
"$cmake" -DFROM="$work/defs" -DTO="$work/include/clef/pointwise.h" -P "$source/cmake/pointwise_header.cmake" ||
    fail "pointwise_header.cmake failed"
grep '^CLEF_API\|^/\* .*[.] \*/$' "$work/include/clef/pointwise.h" >"$work/got"
cat >"$work/want" <<'END'
/* x in (0, 1]; "half-open". */
CLEF_API clef_tensor *clef_one(clef_tensor *x);
/* a row over lines. */
CLEF_API clef_tensor *clef_two(clef_tensor *x);
/* p times x. */
CLEF_API clef_tensor *clef_leak(clef_tensor *x, double p);
/* x between p and q. */
CLEF_API clef_tensor *clef_clip(clef_tensor *x, double p, double q);
/* a + b. */
CLEF_API clef_tensor *clef_sum(clef_tensor *a, clef_tensor *b);
CLEF_API clef_tensor *clef_sum_scalar(clef_tensor *a, double b);
/* a - b. */
CLEF_API clef_tensor *clef_less(clef_tensor *a, clef_tensor *b);
CLEF_API clef_tensor *clef_less_scalar(clef_tensor *a, double b);
/* b where a, else c. */
CLEF_API clef_tensor *clef_pick(clef_tensor *a, clef_tensor *b, clef_tensor *c);
END
cmp -s "$work/want" "$work/got" || { diff "$work/want" "$work/got" >&2; fail "clef/pointwise.h is wrong"; }
echo '#include "clef/pointwise.h"' >"$work/use.c"
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$work/include" -fsyntax-only "$work/use.c" || fail "the header does not compile"
echo 'UNARY(open, REAL, (x, "never closed"' >"$work/defs/unary.def"
"$cmake" -DFROM="$work/defs" -DTO="$work/x.h" -P "$source/cmake/pointwise_header.cmake" 2>/dev/null && fail "an open row passed"
echo "generators: as expected"
