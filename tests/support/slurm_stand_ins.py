"""Stand-ins for SLURM's programs and for ztrain, and a checkout for each test whose slurm/*.sh meet them."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import ztrain_run as zt

STAND_INS = {
    # Runs what it is given on this node, once, and another rank that does nothing where the test wants that; refuses the first steps, or ends well without them, where the test wants that.
    # A task on one node, beside the job's, comes to nothing where that node is dead: from the beginning, or since one of ztrain's starts.
    "srun": """#!/usr/bin/env bash
if [ "$*" = --mpi=list ]; then echo "MPI plugin types are... none pmi2 pmix"; exit; fi
if [ "$1" = --overlap ]; then
  for name in ${DEAD:-} $(cat "$CALLS.dead" 2>/dev/null); do case " $* " in *" --nodelist=$name "*) exit 1 ;; esac; done
  echo "$*" >> "$CALLS.beside"
  while [ "${1#-}" != "$1" ]; do shift; done
  exec "$@"
fi
echo >> "$CALLS.steps"
[ "$(wc -l < "$CALLS.steps")" -gt "${SKIPPED:-0}" ] || exit 0
[ "$(wc -l < "$CALLS.steps")" -gt "${REFUSED:-0}" ] || { echo "srun: error: task 1 launch failed" >&2; exit 137; }
echo "srun $*" >> "$CALLS"
while [ "${1#-}" != "$1" ]; do shift; done
env > "$CALLS.environment"
[ -z "${ALSO:-}" ] || SLURM_PROCID=$ALSO "$1" "$2" true
exec "$@"
""",
    "mpirun": """#!/usr/bin/env bash
echo "mpirun $*" >> "$CALLS"
while [ ! -x "$1" ]; do shift; done
exec "$@"
""",
    "scontrol": """#!/usr/bin/env bash
if [ "$1 $2" = "show hostnames" ]; then tr , '\\n' <<< "$3"; exit; fi
echo "scontrol $*" >> "$CALLS"
""",
    # What SLURM knows of the job: its state, when it ends, and the nodes that it keeps away from.
    "squeue": """#!/usr/bin/env bash
echo "squeue $*" >> "$CALLS.asked"
case $* in
  *--format=%T) echo "${STATE:-RUNNING}" ;;
  *--format=%e) echo "${ENDS:-NONE}" ;;
  *--format=%N) echo "${LEFT:-}" ;;
  *"--format=%T %N") echo "${STATE:-RUNNING} ${LEFT:-}" ;;
  *--format=%x) echo "${EXCLUDED:-(null)}" ;;
esac
""",
    # Says how many ranks are legal. Trains; the first starts fail, where the test wants that, and say what they are given to say.
    # Trains until it is told to stop, where the test wants that: then it ends with the status that the test gives.
    "ztrain": """#!/usr/bin/env bash
build=$(basename "$(dirname "$0")")
if [ "$*" = --version ]; then echo "ztrain 1.2.3, built for $build, with an MPI"; exit; fi
trap 'echo saved >> "$CALLS"; echo "${SAYS:-}" >&2; exit "${TRAIN:-}"' USR1
if [ "$1" = ranks ]; then echo "$0 $*" >> "$CALLS.beside"; echo "${RANKS:-ztrain: the deck fixes its mesh}" >&2; echo "${RANKS:-}"; [ -n "${RANKS:-}" ]; exit; fi
echo "$0 $*" >> "$CALLS"
start=$(grep -c "^$0 " "$CALLS")
if [ -n "${DIES:-}" ]; then cut -d" " -f"$start" <<< "$DIES" >> "$CALLS.dead"; fi
if [ "$start" -le "${FAIL:-0}" ]; then echo "${FAILS:-}" >&2; exit "${STATUS:-1}"; fi
echo "${SLURM_JOB_END_TIME:-never}" >> "$CALLS.ends"
[ -n "${TRAIN:-}" ] || exit 0
while true; do sleep 0.05; done
""",
}
NODE = {
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "16",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS_PER_NODE": "8",
    "SLURM_CPUS_ON_NODE": "128",
    "SLURM_JOB_NODELIST": "node[1-2]",
}
NODES = {**NODE, "SLURM_NTASKS": "32", "SLURM_NNODES": "4", "SLURM_JOB_NODELIST": "a,b,c,d", "LEFT": "a,b,c,d"}
GPUS = {**NODE, "SLURM_GPUS_ON_NODE": "8"}


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Scripts(unittest.TestCase):
    """Of a job whose scripts run here."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-slurm-")
        self.addCleanup(folder.cleanup)
        self.root, self.bin = pathlib.Path(folder.name) / "checkout", pathlib.Path(folder.name) / "bin"
        self.calls, self.steps = pathlib.Path(folder.name) / "calls", pathlib.Path(folder.name) / "calls.steps"
        self.beside = pathlib.Path(folder.name) / "calls.beside"
        for part in ("slurm", "inputs"):
            shutil.copytree(zt.SOURCE / part, self.root / part)
        for name in ("srun", "mpirun", "scontrol", "squeue"):
            put(self.bin / name, STAND_INS[name])
        put(self.root / "build/cpu/ztrain", STAND_INS["ztrain"])

    def build_for_gpus(self):
        put(self.root / "build/cuda/ztrain", STAND_INS["ztrain"])

    def environment(self, job):
        own = {key: value for key, value in zt.environment().items() if not key.startswith("ZTRAIN")}
        return {**own, "PATH": f"{self.bin}:{own['PATH']}", "CALLS": str(self.calls), "ZTRAIN_GUARD": "0", **job}

    def submit(self, job, *words, script="launch.sh"):
        """As sbatch runs the script on the first node; what was called, one line each."""
        self.calls.write_text("")
        self.steps.write_text("")
        self.beside.write_text("")
        pathlib.Path(f"{self.calls}.dead").unlink(missing_ok=True)
        command = [self.root / "slurm" / script, *words]
        self.done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, cwd=self.root, env=self.environment(job), check=False
        )
        return self.calls.read_text().splitlines()
