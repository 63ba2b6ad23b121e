#!/bin/sh
# The manual page knows every option that the tool's help prints, in the section of its verb, and every variable that the sources read.
# usage: manual.sh SOURCE TOOL
set -u
page=$1/cmake/clef.1
tool=$2
failed=0
missing() {
    echo "cmake/clef.1 does not know $*"
    failed=1
}

section() { awk -v wanted="$1" '/^\.SH/ { on = $0 == ".SH " wanted } on' "$page" | sed 's/\\-/-/g'; }

for verb in devices train eval bench tune cache generate; do
    "$tool" "$verb" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' >options.txt
    [ -s options.txt ] || missing "clef $verb"
    while read -r option; do
        { section "OPTIONS OF $(echo "$verb" | tr a-z A-Z)"; section "COMMON OPTIONS"; } | grep -qF "fB$option\\fR" || missing "$option of clef $verb"
    done <options.txt
done
rm -f options.txt

for variable in $(cat "$1"/src/*/*.c | grep -oE '(env|flag|has|unless)\("[A-Z_]+"' | cut -d'"' -f2 | grep -E '^(CLEF_.*|NO_COLOR|TERM)$' | sort -u); do
    section ENVIRONMENT | grep -qx "\.B $variable" || missing "$variable"
done
exit $failed
