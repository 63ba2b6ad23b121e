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
have_icd() { ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || [ -n "$OCL_ICD_VENDORS$OCL_ICD_FILENAMES" ]; }
have_module() { have pkg-config && pkg-config --exists "$1"; }
have_clang() {
    for clang in clang clang-14 clang-15 clang-16 clang-17 clang-18 clang-19; do have $clang && return 0; done
    return 1
}
have_oclgrind() { ls /usr/lib/oclgrind/liboclgrind-rt-icd.so /usr/lib/*/oclgrind/liboclgrind-rt-icd.so 2>/dev/null | grep -q .; }

# The packages that LEVEL wants and this machine lacks, one per line.
missing_packages() {
    have cc && have_header stdlib.h || say gcc libc6-dev
    have make || have ninja || say make
    have_cmake || say cmake
    have pkg-config || say pkg-config
    have_header CL/cl.h || say opencl-headers
    have cc && have_opencl_loader || say ocl-icd-opencl-dev
    have_icd || say pocl-opencl-icd
    have_header zlib.h || say zlib1g-dev
    [ "$1" = check ] || return 0
    have c++ || say g++
    have_module criterion || say libcriterion-dev
    have_clang || say clang
    have_oclgrind || say oclgrind
    [ -e /etc/OpenCL/vendors/rusticl.icd ] || say mesa-opencl-icd
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

setup_packages() {
    # shellcheck disable=SC2046
    set -- $(missing_packages "$1")
    if [ $# -eq 0 ]; then
        say "setup: nothing to install"
        return 0
    fi
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
