#!/bin/sh
# run.sh SOURCE BUILD CMAKE: installs into a fresh prefix, then builds and runs the consumer beside this script against the
# installed package: by CMake (find_package, shared and static) and by pkg-config, in C11 and C++17; and through
# add_subdirectory.  Also the moved prefix and the installed tool.
source=$1 build=$2 cmake=$3
here=$source/tests/install
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# step NAME COMMAND…: quiet unless it fails.
step() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok: $name"
    else
        rc=$?
        cat "$work/log" >&2
        echo "FAILED: $name (exit $rc)" >&2
        status=1
    fi
}

step "install" env DESTDIR= "$cmake" --install "$build" --prefix "$work/prefix"
[ $status = 0 ] || exit 1
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libclef.a)")
step "tool runs from the prefix" "$prefix/bin/clef" --version
step "man page" test -s "$prefix/share/man/man1/clef.1"

cxx=ON
command -v c++ >/dev/null 2>&1 || { cxx=OFF; echo "skipped: the C++17 consumers need a C++ compiler (package g++)"; }

# A prefix may be moved: nothing in the package may hold the old path.
mv "$prefix" "$work/moved" && prefix=$work/moved && libdir=$work/moved/${libdir#"$work/prefix/"}
if "$prefix/bin/clef" devices --quiet >/dev/null 2>&1; then
    step "a moved library finds clef-probe" sh -c "'$prefix/bin/clef' devices --probe --quiet | grep -qE 'queues: (yes|no)'"
fi
for kind in shared static; do
    step "configure by find_package, $kind" "$cmake" -S "$here/consumer" -B "$work/$kind" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_BUILD_TYPE=Release -DKIND=$kind -DWITH_CXX=$cxx
    step "build by find_package, $kind" "$cmake" --build "$work/$kind"
    step "run in C11, $kind" "$work/$kind/consumer_c"
    [ $cxx = ON ] && step "run in C++17, $kind" "$work/$kind/consumer_cxx"
done
step "a too new version is refused" sh -c "! '$cmake' -S '$here/consumer' -B '$work/newer' -DCMAKE_PREFIX_PATH='$prefix' \
    -DWITH_CXX=OFF -DWANT=99.0"

if [ -e "$libdir/cmake/Clef/ClefMpiTargets.cmake" ]; then
    step "configure by find_package, mpi" "$cmake" -S "$here/mpi_consumer" -B "$work/mpi" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
    step "build by find_package, mpi" "$cmake" --build "$work/mpi"
    step "run by mpiexec" sh "$source/tests/mpi/on_ranks.sh" mpiexec 2 "$work/mpi/consumer_mpi"
else
    echo "skipped: the consumer of Clef::mpi (packages libopenmpi-dev openmpi-bin)"
fi

if command -v pkg-config >/dev/null 2>&1; then
    pc() { PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@" clef; }
    step "pkg-config version" sh -c "test '$(pc --modversion)' = '$("$prefix/bin/clef" --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')'"
    # shellcheck disable=SC2046
    step "build by pkg-config, C11" cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$work/pc_c" "$here/consumer/consumer.c" \
        $(pc --cflags --libs) -Wl,-rpath,"$libdir"
    step "run by pkg-config, C11" "$work/pc_c"
    step "build by pkg-config, static" cc -std=c11 -o "$work/pc_s" "$here/consumer/consumer.c" $(pc --cflags) \
        "$libdir/libclef.a" $(pc --static --libs | sed 's/-lclef//')
    step "run by pkg-config, static" "$work/pc_s"
    if [ $cxx = ON ]; then
        step "build by pkg-config, C++17" c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -o "$work/pc_cxx" \
            "$here/consumer/consumer.cpp" $(pc --cflags --libs) -Wl,-rpath,"$libdir"
        step "run by pkg-config, C++17" "$work/pc_cxx"
    fi
else
    echo "skipped: the pkg-config consumers (package pkg-config)"
fi

# As a subproject: no tests, no tool, no global settings; only configuring it is tried, as compiling is the main build's.
sub() { # NAME KIND OPTION...
    name=$1 wanted=$2
    shift 2
    step "add_subdirectory, $name" "$cmake" -S "$here/subproject" -B "$work/$name" -DCLEF_SOURCE="$source" -DWANTED_KIND="$wanted" "$@"
}
sub unset SHARED_LIBRARY
sub on SHARED_LIBRARY -DBUILD_SHARED_LIBS=ON
sub off STATIC_LIBRARY -DBUILD_SHARED_LIBS=OFF

# An installation of the static library alone, made of what is built already.
step "configure with BUILD_SHARED_LIBS=OFF" "$cmake" -S "$source" -B "$work/only" -DBUILD_SHARED_LIBS=OFF -DCLEF_TESTS=OFF -DCLEF_TOOLS=OFF \
    -DCLEF_EXAMPLES=OFF -DCLEF_BENCH=OFF -DCLEF_WITH_MPI=OFF
mkdir -p "$work/only/include/clef"
cp "$build/libclef.a" "$build/clef-probe" "$work/only/" && cp "$build/include/clef/pointwise.h" "$work/only/include/clef/" || status=1
step "install, static only" env DESTDIR= "$cmake" --install "$work/only" --prefix "$work/alone"
step "no shared library is installed" sh -c "! find '$work/alone' -name 'libclef.so*' | grep -q ."
step "configure by find_package, static only" "$cmake" -S "$here/consumer" -B "$work/alone_build" -DCMAKE_PREFIX_PATH="$work/alone" \
    -DCMAKE_BUILD_TYPE=Release -DKIND=shared -DWITH_CXX=OFF
step "build by find_package, static only" "$cmake" --build "$work/alone_build"
step "run in C11, static only" "$work/alone_build/consumer_c"
if command -v pkg-config >/dev/null 2>&1; then
    alone=$(dirname "$(find "$work/alone" -name libclef.a)")
    # shellcheck disable=SC2046
    step "build by pkg-config, static only" cc -std=c11 -o "$work/pc_a" "$here/consumer/consumer.c" \
        $(PKG_CONFIG_PATH=$alone/pkgconfig pkg-config --cflags --libs clef)
    step "run by pkg-config, static only" "$work/pc_a"
fi
exit $status
