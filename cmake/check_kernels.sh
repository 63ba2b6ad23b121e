#!/bin/sh
# check_kernels.sh [CL_DIR]: every kernel file through clang's OpenCL front end, alone with the defaults of its knobs, then
# for each dtype with the knobs that are dtypes (their default is a dtype's name) set to it.  A knob that takes fewer dtypes
# says so in the file's comment, as in "IN: f32, f64 or i32"; it then gets the dtype that this one is computed in.
# Other values of other knobs, which compile other text, stand in the comment, too: "Checked with: UNIT=1; ROOM=2048 MR=6."
# A third run has the declarations of declarations.h alone in place of those of clang, and loads and stores as CPUs get them.
# Core OpenCL C 1.2 is the floor: what only clang has, as variadic macros, fails; a warning fails as an error does.  Exit 77 without clang.
dir=${1:-$(dirname "$0")/../cl}

clang=
for name in clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19 clang-20 clang-21 clang-13; do
    if command -v "$name" >/dev/null 2>&1; then
        clang=$name
        break
    fi
done
if [ -z "$clang" ]; then
    echo "skipped: the syntax check of kernels needs clang (package clang)"
    exit 77
fi

# One line for each run of clang over a file: its options.  Each is run as for a device of 4 lanes, too, as what is made for wider
# vectors must not be needed there.
runs_of() {
    awk -v all="f32 f16 bf16 f64 i32 i64 u8 bool" '
        BEGIN { total = split(all, dtype); for (i in dtype) known[dtype[i]] = 1 }
        $1 == "#ifndef" { open = $2 }
        $1 == "#define" && $2 == open && $3 in known { knob[++knobs] = open }
        { text = text " " $0 }
        function takes(name, dt) {
            if (!match(text, "[^A-Za-z0-9_]" name ": *(f32|f16|bf16|f64|i32|i64|u8|bool)( |,|or|and|f32|f16|bf16|f64|i32|i64|u8|bool)*")) return 1
            return substr(text, RSTART, RLENGTH) ~ ("[ ,:]" dt "( |,|$)")
        }
        function option(name, dt) { return " -D" name "=" dt (dt == "f64" ? " -DCLEF_F64" : "") }
        END {
            compute["f16"] = compute["bf16"] = "f32"; compute["u8"] = compute["bool"] = "i32"
            print ""
            if (match(text, /Checked with: [A-Za-z0-9_=; ]+/)) {
                for (i = split(substr(text, RSTART + 14, RLENGTH - 14), values, ";"); i > 0; i--) {
                    gsub(/[A-Z0-9_]+=/, "-D&", values[i])
                    print " " values[i]
                }
            }
            for (i = 1; i <= total && knobs; i++) {
                line = ""
                for (k = 1; k <= knobs; k++) {
                    dt = dtype[i]
                    if (!takes(knob[k], dt)) dt = compute[dt]
                    if (dt != "" && takes(knob[k], dt)) line = line option(knob[k], dt)
                }
                if (line != "" && !seen[line]++) print line
            }
        }' "$1"
}
declared="-DCLEF_WIDE -D_OPENCL_H_ -DCLEF_DECLARES -cl-no-stdinc -include opencl-c-base.h"
runs() {
    for file in "$dir"/*.cl; do
        [ -f "$file" ] || continue
        runs_of "$file" | sed "s|\$| $file|; h; s|^| -DCLEF_LANES=4|; G; p; x; s|^| $declared|"
    done
}

# xargs fails (123) when any run did; clang's own words say which.
runs | xargs -P "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" -L 1 \
    "$clang" -x cl -cl-std=CL1.2 -target spir64 -Xclang -cl-ext=+cl_khr_fp16 -Wall -Wconditional-uninitialized -pedantic-errors -Werror -fsyntax-only \
    -ferror-limit=3 -fmacro-backtrace-limit=1 -I"$dir" || {
    echo "check_kernels: at least one kernel file does not compile ($clang)" >&2
    exit 1
}
echo "check_kernels: $(runs | wc -l) runs of $clang over $(ls "$dir" | grep -c '[.]cl$') files, no complaint"
