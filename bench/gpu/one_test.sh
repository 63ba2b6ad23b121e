#!/bin/sh
# one_test.sh RESULTS PROFILE LOGS PROGRAM: runs a test for bench/gpu.sh, a line of JSON in RESULTS; what it said is shown where it fails.
results=$1 profile=$2 log=$3/$2-$4.log name=$4
begin=$(date +%s)
[ "$profile" = own ] || export CLEF_PROFILE="$profile"
# At most CLEF_GPU_MOST seconds, and no longer than the part: what is killed with the part would leave this process behind.
most=${CLEF_GPU_MOST:-120}
limit=$((${CLEF_GPU_END:-$((begin + most))} - begin - 8))
[ $limit -le "$most" ] || limit=$most
[ $limit -gt 0 ] || { echo "$name, profile $profile: not reached in time"; exit 1; }
timeout -k 5 $limit "$(dirname "$0")/../bin/$name" >"$log" 2>&1 </dev/null
code=$?
echo "{\"test\":\"$name\",\"profile\":\"$profile\",\"code\":$code,\"seconds\":$(($(date +%s) - begin))}" >>"$results"
[ $code = 0 ] || [ $code = 77 ] || { echo "$name, profile $profile: exit code $code"; tail -n 20 "$log"; exit 1; }
