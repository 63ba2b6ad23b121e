# setup.sh: sourced by quickstart.sh and check.sh.  setup_packages LEVEL installs what LEVEL (quick or check) still lacks,
# on Debian and Ubuntu by apt-get; elsewhere it says what is missing and goes on.  It looks for the things themselves, not
# for package names, so what came another way counts.

have() { command -v "$1" >/dev/null 2>&1; }
say() { printf '%s\n' "$*"; }

have_header() { have cc && printf '#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }
have_opencl_loader() { printf 'int main(void){return 0;}\n' | cc -x c - -lOpenCL -o /dev/null >/dev/null 2>&1; }
have_cmake() {
    have cmake && cmake --version | sed -n '1s/[^0-9]*\([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | {
        read -r major minor && [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge 22 ]; }
    }
}

# Does a driver offer a device?  A driver's file alone says little: some packages leave one that offers none.
have_device() {
    probe=$(mktemp) || return 1
    if printf '%s\n' 'int clGetPlatformIDs(unsigned, void **, unsigned *);' \
        'int clGetDeviceIDs(void *, unsigned long long, unsigned, void **, unsigned *);' \
        'int main(void) { void *p[64]; unsigned n = 0, d;' \
        'if (clGetPlatformIDs(64, p, &n)) return 1;' \
        'for (n = n > 64 ? 64 : n; n--;) if (d = 0, !clGetDeviceIDs(p[n], 0xFFFFFFFF, 0, 0, &d) && d) return 0;' \
        'return 1; }' | cc -x c - -o "$probe" -lOpenCL >/dev/null 2>&1; then
        "$probe" >/dev/null 2>&1
    else # no compiler or loader yet
        ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || [ -n "$OCL_ICD_VENDORS$OCL_ICD_FILENAMES" ]
    fi
    set -- $?
    rm -f "$probe"
    return "$1"
}
have_module() { have pkg-config && pkg-config --exists "$1"; }

clangs="clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14"
first_clang() { for clang in $clangs; do have $clang && say $clang && return 0; done; return 1; }
# The first clang that links a fuzzer with sanitizers: its runtime may be a package of its own.
fuzzing_clang() {
    for clang in $clangs; do
        have $clang && printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }\n' |
            $clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null >/dev/null 2>&1 && say $clang && return 0
    done
    return 1
}
# What to install for fuzzing.  Which runtime goes with `clang` shows when it is there: hence the second pass of setup_packages.
fuzzing_packages() {
    clang=$(first_clang) || { say clang; return; }
    say "libclang-rt-$($clang -dumpversion | cut -d. -f1)-dev"
}

# python_with MODULES: an interpreter that has them: $CLEF_PYTHON, build/python's or the system's.
python_with() {
    for python in "$CLEF_PYTHON" "$PWD/build/python/bin/python3" python3; do
        [ -n "$python" ] && "$python" -c "import $1" >/dev/null 2>&1 && say "$python" && return 0
    done
    return 1
}
have_venv() { python3 -c 'import venv, ensurepip' >/dev/null 2>&1; }
# The user's choice stays, whatever else it lacks.
own_python() { [ -n "$CLEF_PYTHON" ] && "$CLEF_PYTHON" -c 'import numpy, safetensors' >/dev/null 2>&1; }
# That of the tests.
find_python() {
    if own_python; then say "$CLEF_PYTHON"
    else python_with numpy,safetensors,tokenizers || python_with numpy,safetensors || python_with numpy
    fi
}
install_modules() {
    build/python/bin/python3 -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$@" </dev/null
}
# The modules with which Python reads our files and writes others, in an environment of our own.  tokenizers needs its packages only to fetch
# files.
setup_python() {
    own_python || python_with numpy,safetensors,tokenizers >/dev/null && return 0
    have_venv || return 1
    say "setup: pip install numpy safetensors tokenizers into build/python (about 30 MB to download)"
    python3 -m venv build/python && install_modules numpy safetensors && install_modules --no-deps tokenizers
}
# Intel's OpenCL for x86-64 CPUs, in an environment of our own: tests only.  Its ICD file is written when it offers a device.
intel_icd() { say "$PWD/build/intel/intel.icd"; }
setup_intel() {
    [ "$(uname -sm)" = "Linux x86_64" ] || { say "setup: Intel's OpenCL for CPUs wants Linux on x86-64"; return 1; }
    [ ! -e "$(intel_icd)" ] || return 0
    have_venv || return 1
    say "setup: pip install intel-opencl-rt intel-cmplr-lib-rt into build/intel (about 330 MB to download, 0.9 GB on disk)"
    python3 -m venv build/intel && build/intel/bin/python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir \
        --retries 1 --timeout 20 intel-opencl-rt intel-cmplr-lib-rt </dev/null || return 1
    say "$PWD/build/intel/lib/libintelocl.so" >build/intel/found.icd
    OCL_ICD_VENDORS=$PWD/build/intel/found.icd OCL_ICD_FILENAMES=$PWD/build/intel/found.icd have_device || {
        say "setup: it offers no device here"
        return 1
    }
    mv build/intel/found.icd "$(intel_icd)"
}
# NVIDIA's assembler and disassembler, which need no device, in an environment of our own: bench/targets.sh.
setup_gpu_tools() {
    [ "$(uname -sm)" = "Linux x86_64" ] || { say "setup: NVIDIA's assembler wants Linux on x86-64"; return 1; }
    [ ! -e build/gpu/complete ] || return 0
    have_venv || return 1
    say "setup: pip install nvidia-cuda-nvcc-cu12 nvidia-cuda-nvdisasm into build/gpu (about 45 MB to download)"
    python3 -m venv build/gpu && build/gpu/bin/python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
        --retries 1 --timeout 20 nvidia-cuda-nvcc-cu12 nvidia-cuda-nvdisasm </dev/null && : >build/gpu/complete
}
have_oclgrind() { ls /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so 2>/dev/null | grep -q .; }

have_clang_format() { have clang-format-14 || clang-format --version 2>/dev/null | grep -q 'version 14\.'; }

have_clblast() { ls /usr/lib/libclblast.so.1 /usr/lib/*/libclblast.so.1 /usr/local/lib/libclblast.so.1 2>/dev/null | grep -q .; }

# The packages that LEVEL wants and this machine lacks, one per line.
missing_packages() {
    have cc && have_header stdlib.h || say gcc libc6-dev
    have make || have ninja || say make
    have_cmake || say cmake
    have_header CL/cl.h || say opencl-headers
    have cc && have_opencl_loader || say ocl-icd-opencl-dev
    have_device || say pocl-opencl-icd
    have_header zlib.h || say zlib1g-dev
    [ "$1" = check ] || return 0
    have c++ || say g++
    have pkg-config || say pkg-config
    have_module criterion || say libcriterion-dev
    have mpicc || say libopenmpi-dev
    have mpiexec || say openmpi-bin
    have mpicc.mpich || say libmpich-dev mpich
    fuzzing_clang >/dev/null || fuzzing_packages
    have_oclgrind || say oclgrind
    have_clblast || say libclblast1
    [ -e /etc/OpenCL/vendors/rusticl.icd ] || say mesa-opencl-icd
    have_venv || say python3-venv
    have_clang_format || say clang-format-14
    have clang-15 || say clang-15
    [ -e /usr/lib/clc/nvptx64--nvidiacl.bc ] || say libclc-15
    have llvm-spirv-15 || say llvm-spirv-15
    have spirv-val || say spirv-tools
}

# Those that apt knows of; the others are named and left.
known_packages() {
    for package; do
        if LC_ALL=C apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]'; then
            say "$package"
        else
            say "setup: this system offers no package $package" >&2
        fi
    done
}

# A second look, as some things show only when others are there (a device needs the loader, a runtime its compiler).
setup_packages() {
    # shellcheck disable=SC2046
    set -- "$1" $(missing_packages "$1")
    if [ $# -eq 1 ]; then
        say "setup: nothing to install"
        return 0
    fi
    level=$1
    shift
    install_packages "$@"
    tried=" $* "
    set --
    for package in $(missing_packages "$level"); do
        case $tried in *" $package "*) ;; *) set -- "$@" "$package" ;; esac
    done
    [ $# -eq 0 ] || install_packages "$@"
}

install_packages() {
    say "setup: missing here: $*"
    if ! have apt-get; then
        say "setup: no apt-get on this system; please install what corresponds to these Debian packages"
        return 0
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        # Without a terminal nobody can type a password.
        if have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            as_root=sudo
        else
            say "setup: neither root nor sudo here; please run: apt-get install $*"
            return 0
        fi
    fi
    if ! LC_ALL=C apt-cache policy "$@" 2>/dev/null | grep -q 'Candidate: [^(]'; then
        say "setup: ${as_root:+$as_root }apt-get update (the package lists are empty or old)"
        $as_root apt-get update -q </dev/null || say "setup: apt-get update failed"
    fi
    # shellcheck disable=SC2046
    set -- $(known_packages "$@")
    [ $# -gt 0 ] || return 0
    LC_ALL=C $as_root apt-get install --no-install-recommends --assume-no "$@" </dev/null 2>/dev/null |
        sed -n 's/^\(Need to get\|After this operation\)/setup: &/p'
    say "setup: ${as_root:+$as_root }apt-get install $*"
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null; then
        say "setup: trying once more after apt-get update"
        $as_root apt-get update -q </dev/null
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null ||
            say "setup: apt-get could not install everything; going on with what is here"
    fi
    return 0
}

cores() { getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }
