#!/bin/sh
# on_driver_catch.sh SOURCE: cmake/on_driver.sh fails on any word in Oclgrind's log, also when a later process truncates it.
on_driver=$1/cmake/on_driver.sh
sh "$on_driver" oclgrind true
case $? in
0) ;;
77) exit 77 ;;
*) echo "on_driver_catch: a clean run failed" >&2 && exit 1 ;;
esac
sh "$on_driver" oclgrind sh -c 'echo "Invalid write" >"$OCLGRIND_LOG"; : >"$OCLGRIND_LOG"' 2>/dev/null &&
    echo "on_driver_catch: a report in the log passed" >&2 && exit 1
sh "$on_driver" oclgrind sh -c 'exit 3'
[ $? = 3 ] || { echo "on_driver_catch: the program's own failure was lost" >&2; exit 1; }
sh "$on_driver" none true 2>/dev/null
[ $? = 2 ] || { echo "on_driver_catch: an unknown implementation was taken" >&2; exit 1; }
echo "on_driver_catch: as expected"
