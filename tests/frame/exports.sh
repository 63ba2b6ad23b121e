#!/bin/sh
# exports.sh LIBRARY VERSION: the shared library (libclef, libclef-mpi) shows clef_ functions only, has its SONAME, and needs no surprising
# library.
library=$1 version=$2
name=$(basename "$library" .so)
for tool in nm readelf; do
    command -v $tool >/dev/null 2>&1 || {
        echo "skipped: $tool is missing (package binutils)"
        exit 77
    }
done
others=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | grep -Ev '^clef_[a-z0-9]|^(_init|_fini)$')
leaked=$(nm -D --defined-only "$library" | awk '{ print $3 }' | grep '^clef__')
if [ -n "$others$leaked" ]; then
    echo "exports: these symbols should be hidden:" $others $leaked >&2
    exit 1
fi
dynamic=$(readelf -d "$library")
echo "$dynamic" | grep -q "SONAME.*\[$name\.so\.$version\]" || {
    echo "exports: SONAME is not $name.so.$version" >&2
    exit 1
}
needed=$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for need in $needed; do
    case $name:$need in
    libclef-mpi:libclef.so* | libclef-mpi:libmpi*.so*) continue ;;
    esac
    case $need in
    libc.so* | libm.so* | libpthread.so* | libOpenCL.so* | libz.so* | ld-linux* | libgcc_s.so*) ;;
    libc.musl*) ;;
    *)
        echo "exports: the library needs $need" >&2
        exit 1 ;;
    esac
done
echo "exports: $(nm -D --defined-only "$library" | grep -c ' clef_') functions; needs" $needed
