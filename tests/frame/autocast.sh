#!/bin/sh
# autocast.sh SOURCE: every function of clef/ops.h that computes has a row in tests/expectations/autocast.def, which says what it gives under
# autocast.  (A row of the op tables without one does not compile: tests/kernels/test_autocast.c.)
source=$1
# These make, convert, draw or hand on what autocast has nothing to do with.
apart=' to one_hot multinomial alibi_slopes recurrent_from_onnx kernel '
missing=
for name in $(sed -nE 's/^CLEF_API clef_(tensor \*|status )clef_([a-z0-9_]*)\(.*/\2/p' "$source/include/clef/ops.h"); do
    case $apart in *" $name "*) continue ;; esac
    grep -q "^AUTOCAST($name," "$source/tests/expectations/autocast.def" || missing="$missing $name"
done
[ -z "$missing" ] || {
    echo "autocast: no row in tests/expectations/autocast.def for:$missing" >&2
    exit 1
}
