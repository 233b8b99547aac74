#!/usr/bin/env bash
# Submits a script of this folder to a cluster that has a profile in slurm/sites, with that site's partition, account and GPUs.
#   ZTRAIN_SITE=alps ZTRAIN_ACCOUNT=g123 slurm/submit.sh [OPTIONS OF SBATCH] slurm/train_70b.sh [DECK] [--section.key=value ...]
#
# The job has as many ranks as the script asks for, on as many nodes as that takes there. The options of sbatch that are given here override all others.
#   ZTRAIN_SITE        a name (ls slurm/sites), or the path of a profile of your own   (docs/sites.md)
#   ZTRAIN_ACCOUNT     the project that pays; SBATCH_ACCOUNT and --account do as well
#   ZTRAIN_DRY_RUN=1   prints the command and submits nothing
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=slurm/submit.sh
# shellcheck source=slurm/sites.sh
source "$root/slurm/sites.sh"

die() {
  echo "$script: $*" >&2
  exit 1
}

options=()
while [ $# -gt 0 ] && { [ "${1%.sh}" = "$1" ] || [ ! -f "$1" ]; }; do
  options+=("$1")
  shift
done
[ $# -gt 0 ] || die "which script? usage: ZTRAIN_SITE=NAME submit.sh [OPTIONS OF SBATCH] slurm/train_70b.sh [DECK] [--section.key=value ...]"
[ -n "${ZTRAIN_SITE:-}" ] || die "set ZTRAIN_SITE to a name in $root/slurm/sites, or use sbatch itself"
read_site

# asked OPTION: prints the number in the script's line #SBATCH --OPTION=NUMBER.
asked() {
  sed -n "s/^#SBATCH --$1=\([0-9]*\)\$/\1/p" "$job"
}
job=$1
shift
nodes=$(asked nodes)
ranks=$(asked ntasks-per-node)
ranks=$((${nodes:-1} * ${ranks:-0}))
[ "$ranks" -gt 0 ] || die "$job does not say how many ranks it has (#SBATCH --nodes, --ntasks-per-node)"
per_node=$((ranks < site_gpus ? ranks : site_gpus))
gpus=$per_node
[ "$site_counts" = 1 ] || gpus=0
words=(sbatch ${site_options[@]+"${site_options[@]}"} --nodes=$(((ranks + per_node - 1) / per_node)) --ntasks-per-node="$per_node"
  --gpus-per-node="$gpus" --cpus-per-task=$((site_cores / site_gpus)))
[ -z "${ZTRAIN_ACCOUNT:-}" ] || words+=(--account="$ZTRAIN_ACCOUNT")
case " ${ZTRAIN_ACCOUNT:+-A} ${SBATCH_ACCOUNT:+-A} ${options[*]-}" in
  *" -A"* | *" --account"*) ;;
  *) [ "$site_account" = any ] || die "set ZTRAIN_ACCOUNT to the project that pays for the job" ;;
esac
words+=(${options[@]+"${options[@]}"} "$job" "$@")
# The job finds the checkout and the profile by these variables, from whatever folder it was submitted.
export ZTRAIN_ROOT=${ZTRAIN_ROOT:-$root} ZTRAIN_SITE

if [ "${ZTRAIN_DRY_RUN:-0}" = 1 ]; then
  printf '%q ' "${words[@]}"
  echo
  exit
fi
exec "${words[@]}"
