# shellcheck shell=bash disable=SC2034,SC2154
# Reads the profile of a cluster, which is a file of slurm/sites or one of the site's own. submit.sh and launch.sh source this file.
# The two scripts set `root`, the checkout, and `script`, the name that messages begin with. docs/sites.md says what a profile holds.

# Reads the profile that ZTRAIN_SITE names, if any, into the variables below.
read_site() {
  local name=${ZTRAIN_SITE:-} profile known
  site_options=() # options of sbatch
  site_account=any # "named": a job must say which project pays
  site_gpus=      # GPUs of a node
  site_cores=     # cores of a node, as SLURM counts them
  site_counts=1   # whether SLURM counts GPUs there, so that jobs ask for them
  site_launch=()  # options of srun that start the ranks in a container
  site_network=() # a list of NAME=VALUE, for the ranks
  [ -n "$name" ] || return 0
  profile=$root/slurm/sites/$name.sh
  case $name in */*) profile=$name ;; esac
  if [ ! -r "$profile" ]; then
    known=$(cd "$root/slurm/sites" && printf '%s ' *.sh)
    echo "$script: ZTRAIN_SITE=$name: there is no such profile; there are ${known//.sh/}and paths of your own (docs/sites.md)" >&2
    exit 1
  fi
  # shellcheck source=/dev/null
  source "$profile"
}

# Gives the ranks the variables of the site's network. A variable that the user has set stays.
enter_site() {
  local pair name
  for pair in ${site_network[@]+"${site_network[@]}"}; do
    name=${pair%%=*}
    [ -n "${!name+set}" ] || export "${pair?}"
  done
  if [ "$site_counts" = 0 ]; then export SLURM_GPUS_ON_NODE=${SLURM_GPUS_ON_NODE:-$site_gpus}; fi
}
