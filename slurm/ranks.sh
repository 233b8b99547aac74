# shellcheck shell=bash
# Sourced by launch.sh and regression.sh: which executable a job runs, and how its ranks are started. Expects `script`, the
# name that messages begin with, and `root`, the checkout; gives `ztrain`, `gpus` and, after find_launcher, `start`, the
# words that start as many ranks as the job has. launch.sh documents the environment.

# GPUs of this node: how many, or their numbers where SLURM says only these.
gpus=${SLURM_GPUS_ON_NODE:-${SLURM_JOB_GPUS:+numbers $SLURM_JOB_GPUS}}
[ "$gpus" != 0 ] || gpus=
ztrain=$root/build/cpu/ztrain
[ -z "$gpus" ] || [ ! -x "$root/build/cuda/ztrain" ] || ztrain=$root/build/cuda/ztrain
[ -x "$ztrain" ] || ztrain=$root/../../bin/ztrain  # as `cmake --install` lays it out
ztrain=${ZTRAIN:-$ztrain}

die() {
  echo "$script: $*" >&2
  exit 1
}

built_for_gpus() {
  case $("$ztrain" --version 2>&1 || true) in *"built for cuda"*) ;; *) return 1 ;; esac
}

# Refuses an executable that is not there, or that leaves the job's GPUs idle.
check_executable() {
  [ -x "$ztrain" ] || die "$ztrain: no such executable; build it (cmake --build --preset cuda, or cpu) or set ZTRAIN"
  if [ -n "$gpus" ] && [ "${ZTRAIN_ALLOW_CPU:-0}" != 1 ] && ! built_for_gpus; then
    die "this job has GPUs (on this node: $gpus) and $ztrain is not built for them: build it with --preset cuda, or set" \
      "ZTRAIN to one that is; ZTRAIN_ALLOW_CPU=1 runs on the CPU ranks and leaves the GPUs idle"
  fi
}

# Cores of a rank: those that the job asks for; of GPU ranks else an even share of what the job has on this node, since
# a rank's communication and its watchdog run beside it.
cpus_per_rank() {
  local ranks=${SLURM_NTASKS_PER_NODE:-}
  [ -n "$ranks" ] || ranks=$(((${SLURM_NTASKS:-1} + ${SLURM_NNODES:-1} - 1) / ${SLURM_NNODES:-1}))
  if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
    echo "$SLURM_CPUS_PER_TASK"
  elif [ -n "$gpus" ] && [ "${SLURM_CPUS_ON_NODE:-0}" -gt "$ranks" ]; then
    echo $((SLURM_CPUS_ON_NODE / ranks))
  fi
}

find_launcher() {
  local plugin=${ZTRAIN_MPI:-pmix} plugins cpus
  if [ "$plugin" = mpirun ]; then
    # Takes the nodes and the number of ranks from the allocation. A rank with a GPU is not bound to a single core.
    start=(mpirun)
    [ -z "$gpus" ] || start+=(--bind-to none)
    return
  fi
  # Without the plugin that the MPI library expects, MPI_Init fails or every task is a run of one rank of its own.
  plugins=$(srun --mpi=list 2>&1 || true)
  if ! grep -qw "$plugin" <<<"$plugins"; then
    die "this SLURM has no MPI plugin '$plugin'. It has: $(tr -s '\n\t ' ' ' <<<"$plugins")
Set ZTRAIN_MPI to the one that your MPI library supports, or to mpirun."
  fi
  # Every rank sees all GPUs of its node and takes the one of its place on the node, so none is bound here: GPUs that
  # see each other exchange data directly.
  # srun ends the step at once if a rank fails, and 300 seconds after the first rank has ended.
  start=(srun --mpi="$plugin" --kill-on-bad-exit=1 --wait=300 --cpu-bind=cores)
  [ -z "$gpus" ] || [ -z "${SLURM_GPUS_PER_TASK:-}" ] ||
    echo "$script: warning: with --gpus-per-task=$SLURM_GPUS_PER_TASK each rank sees its own GPU alone, and NCCL may have no peer access" \
      "(NVLink) to the others: ask for --gpus-per-node instead" >&2
  # srun does not take it from the job. Neighbouring ranks have neighbouring cores, as neighbouring GPUs have.
  cpus=$(cpus_per_rank)
  [ -z "$cpus" ] || start+=(--cpus-per-task="$cpus" --distribution=block:block)
}

# One thread per rank: ranks, not threads, fill the cores.
export OMP_NUM_THREADS=1
