#!/usr/bin/env bash
# One rank of a job, as launch.sh starts it on the cores that SLURM gives it: rank.sh FOLDER COMMAND ...
# What the rank says on stderr goes on to the job's log and also into FOLDER/RANK.log, below a line that says where it runs.
# The command takes the place of this process, so that signals and exit statuses are its own.
set -euo pipefail
logs=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}  # SLURM's variables of a rank of mpirun are those of its daemon

allowed() {
  sed -n "s/^$1_allowed_list:[[:space:]]*//p" /proc/self/status
}
log=$logs/$rank.log
start=$((${SLURM_RESTART_COUNT:-0} + 1))
[ "${ZTRAIN_TRY:-1}" = 1 ] || start="$start, try $ZTRAIN_TRY"
{
  echo "start $start, rank $rank on $(hostname): process $$, cores $(allowed Cpus)," \
    "memory of NUMA nodes $(allowed Mems), $(date -Is)" >>"$log"
} 2>/dev/null || { echo "slurm/rank.sh: $log cannot be written on $(hostname): ZTRAIN_LOGS must name a folder that all nodes share" >&2; exit 1; }
# Signals to the job reach the copying process too, which ends with the rank and not before.
exec "$@" 2> >(trap '' USR1 USR2 TERM INT && exec tee -a "$log" >&2)
