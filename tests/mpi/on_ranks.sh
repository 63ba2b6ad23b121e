#!/bin/sh
# on_ranks.sh MPIEXEC N PROGRAM…: runs it in N processes on this machine, as root and on few cores too.  "" for MPIEXEC: skipped.
mpiexec=$1 n=$2
shift 2
[ -n "$mpiexec" ] && command -v "$mpiexec" >/dev/null 2>&1 || {
    echo "skipped: no MPI (packages libopenmpi-dev openmpi-bin, before the build is configured)"
    exit 77
}
case $("$mpiexec" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *PRRTE*) set -- --allow-run-as-root --oversubscribe --bind-to none "$@" ;;
esac
exec "$mpiexec" -n "$n" "$@"
