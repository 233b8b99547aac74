#!/usr/bin/env bash
# One node of preflight.sh: preflight_node.sh FOLDER GPUS, where FOLDER is shared and holds `token`, and GPUS is how many there should be.
# Each line begins with the node's name; "sick: ..." says what is wrong, and "well" comes last where nothing is.
set -euo pipefail
shared=$1 gpus=$2
node=${SLURMD_NODENAME:-$(hostname)}
sick=0
say() {
  echo "$node: $*"
}
sick() {
  say "sick: $*"
  sick=1
}

memory() {
  awk -v name="$1:" '$1 == name { printf "%d", $2 / 1e6 }' /proc/meminfo
}
say "memory $(memory MemTotal) GB, $(memory MemAvailable) GB free; cores $(sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status) of this task;" \
  "NUMA nodes: $(for n in /sys/devices/system/node/node*; do [ -r "$n/cpulist" ] && echo -n "${n##*/node} (cores $(cat "$n/cpulist")) "; done || true)"
[ "$(memory MemAvailable)" -ge "${ZTRAIN_LEAST_MEMORY:-1}" ] ||
  sick "$(memory MemAvailable) GB of memory are free, less than ZTRAIN_LEAST_MEMORY = ${ZTRAIN_LEAST_MEMORY:-1}"

# How many, and none that has lost memory cells since it was started.
if [ "$gpus" != 0 ]; then
  if ! found=$(nvidia-smi --query-gpu=name,memory.total,ecc.errors.uncorrected.volatile.total --format=csv,noheader 2>&1); then
    sick "nvidia-smi fails: ${found//$'\n'/; }"
  else
    say "$(wc -l <<<"$found") GPUs: $(sort <<<"$found" | uniq -c | tr -s ' \n' ' ')"
    case $gpus in *[!0-9]*) ;; *) [ "$(wc -l <<<"$found")" -ge "$gpus" ] || sick "$gpus GPUs are the job's, and $(wc -l <<<"$found") are here" ;; esac
    if grep -qE ', [1-9][0-9]*$' <<<"$found"; then sick "a GPU has memory errors that were not corrected"; fi
  fi
fi

# disk FOLDER WHAT: 32 MiB are written, to the disk itself, and read again.
disk() {
  local file=$1/$node began took
  began=$(date +%s%N)
  if ! head -c $((32 << 20)) /dev/zero | dd of="$file" bs=1M conv=fsync status=none 2>"$file.error"; then
    sick "$2 $1 cannot be written: $(cat "$file.error" 2>/dev/null || true)"
    return
  fi
  took=$((($(date +%s%N) - began) / 1000000 + 1))
  [ "$(wc -c <"$file")" = $((32 << 20)) ] || sick "$2 $1 does not give back what was written"
  rm -f "$file" "$file.error"
  say "$2 $1: $((32 * 1049 / took)) MB/s of writing"
  [ $((32 * 1049 / took)) -ge "${ZTRAIN_LEAST_DISK:-20}" ] ||
    sick "$2 $1 takes $((32 * 1049 / took)) MB/s, less than ZTRAIN_LEAST_DISK = ${ZTRAIN_LEAST_DISK:-20}"
}
if [ -f "$shared/token" ]; then disk "$shared" "shared folder"; else sick "it does not see $shared: submit from a folder that all nodes share"; fi
if [ -n "${ZTRAIN_NVME:-}" ]; then disk "$ZTRAIN_NVME" "ZTRAIN_NVME"; fi

[ "$sick" = 1 ] || say well
