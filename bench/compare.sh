#!/bin/sh
# compare.sh SUITE… [--quick] [--json] [--rounds N] [--install]: Clef beside every peer that is here, interleaved in one run.
# Suites: gemm conv pointwise unary reduce ops norm attention rnn lm train infer idle host start all.  Peers: OpenBLAS, CLBlast, oneDNN (Debian), PyTorch (PyPI);
# missing ones are named.  --install fetches them: libopenblas-dev, libclblast-dev and libdnnl-dev with apt, PyTorch into build/bench/venv.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${CLEF_BUILD:-$root/build}
out=$build/bench
mkdir -p "$out"

case " $* " in *" --install "*)
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get install -y --no-install-recommends libopenblas-dev libclblast-dev opencl-headers ocl-icd-opencl-dev libdnnl-dev python3-venv >&2
    [ -x "$out/venv/bin/python3" ] || python3 -m venv "$out/venv"
    "$out/venv/bin/python3" -m pip install --quiet "${CLEF_TORCH:-torch}" numpy >&2 ;;
esac

[ -f "$build/CMakeCache.txt" ] || cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release >&2
cmake --build "$build" --target bench_clef clef_tool >&2

# Each peer in C is compiled where its library is.
peer() { # NAME OPTIONS
    name=$1
    shift
    cc -O2 "$root/bench/peers/peer_$name.c" -o "$out/peer_$name" "$@" 2>/dev/null || rm -f "$out/peer_$name"
}
peer openblas -lopenblas
peer clblast -lclblast -lOpenCL
peer onednn -ldnnl

python=${CLEF_PYTHON:-$out/venv/bin/python3}
[ -x "$python" ] || python=$(command -v python3) || { echo "compare.sh: needs python3" >&2; exit 1; }
exec "$python" "$root/bench/compare.py" --build "$build" "$@"
