#!/usr/bin/env bash
# Usage: abort.sh MESSAGE LAUNCHER... HELPER WAY
# All ranks end within 5 seconds of one rank's failure, with a non-zero status, and the message names the rank.
set -u
message=$1
shift
output=$(timeout 60 "$@" 2>&1)
status=$?
fail() {
  printf '%s\n%s\n' "FAILED: $1" "$output"
  exit 1
}
[ $status -ne 0 ] || fail "the exit status is zero"
[ $status -ne 124 ] || fail "the ranks did not end"
failed_at=$(sed -n 's/^failed_at //p' <<<"$output")
[ -n "$failed_at" ] || fail "rank 2 did not get to its failure"
grep -q "^ztrain: rank 2 (.*)$message" <<<"$output" || fail "the message does not name the rank and what failed"
[ "$(grep -c '^ztrain: ' <<<"$output")" -eq 1 ] || fail "more than one message"
pids=$(sed -n 's/^pid //p' <<<"$output")
[ "$(wc -w <<<"$pids")" -eq 4 ] || fail "not four ranks"
# The launcher may return a moment before the last rank it ends.
for pid in $pids; do
  while kill -0 "$pid" 2>/dev/null; do
    [ $(($(date +%s%3N) - failed_at)) -le 5000 ] || fail "process $pid still runs 5 s after the failure"
    sleep 0.05
  done
done
took=$(($(date +%s%3N) - failed_at))
[ $took -le 5000 ] || fail "ended $took ms after the failure"
echo "ended $took ms after the failure, status $status"
