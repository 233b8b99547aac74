"""slurm/*.sh with stand-ins for SLURM's programs and for ztrain: what they start, and what they refuse."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import ztrain_run as zt

STAND_INS = {
    # Runs what it is given on this node, once; refuses the first steps, where the test wants that.
    # A task on one node, beside the job's, comes to nothing where that node is dead.
    "srun": """#!/usr/bin/env bash
if [ "$*" = --mpi=list ]; then echo "MPI plugin types are... none pmi2 pmix"; exit; fi
if [ "$1" = --overlap ]; then
  case " $* " in *" --nodelist=${DEAD:-none} "*) exit 1 ;; esac
  echo "$*" >> "$CALLS.beside"
  while [ "${1#-}" != "$1" ]; do shift; done
  exec "$@"
fi
echo >> "$CALLS.steps"
[ "$(wc -l < "$CALLS.steps")" -gt "${REFUSED:-0}" ] || { echo "srun: error: task 1 launch failed" >&2; exit 137; }
echo "srun $*" >> "$CALLS"
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
""",
    "mpirun": """#!/usr/bin/env bash
echo "mpirun $*" >> "$CALLS"
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
if [ "$*" = --version ]; then echo "ztrain 1.2.3, built for $build"; exit; fi
trap 'echo saved >> "$CALLS"; echo "${SAYS:-}" >&2; exit "${TRAIN:-}"' USR1
if [ "$1" = ranks ]; then echo "$0 $*" >> "$CALLS.beside"; echo "${RANKS:-ztrain: the deck fixes its mesh}" >&2; echo "${RANKS:-}"; [ -n "${RANKS:-}" ]; exit; fi
echo "$0 $*" >> "$CALLS"
if [ "$(grep -c "^$0 " "$CALLS")" -le "${FAIL:-0}" ]; then echo "${FAILS:-}" >&2; exit "${STATUS:-1}"; fi
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


class Slurm(unittest.TestCase):
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
        command = [self.root / "slurm" / script, *words]
        self.done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, cwd=self.root, env=self.environment(job), check=False
        )
        return self.calls.read_text().splitlines()

    def start(self, job, **options):
        calls = self.submit(job, "inputs/smoke.toml", **options)
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertEqual(len(calls), 2, calls)
        launcher, program = calls
        self.assertTrue(program.endswith("inputs/smoke.toml --checkpoint.resume=auto"), program)
        return launcher.split(), pathlib.Path(program.split()[0]).relative_to(self.root / "build").parts[0]

    def refuse(self, job, pattern):
        self.assertEqual(self.submit(job, "inputs/smoke.toml"), [])
        self.assertEqual(self.done.returncode, 1)
        self.assertRegex(self.done.stderr, r"^slurm/launch\.sh: " + pattern)

    def test_gpus_are_not_left_idle_without_a_word(self):
        for job in (GPUS, {**NODE, "SLURM_JOB_GPUS": "0"}):
            self.refuse(job, r"this job has GPUs .*build/cpu/ztrain is not built for them: build .*ZTRAIN_ALLOW_CPU=1")
            self.assertEqual(self.start({**job, "ZTRAIN_ALLOW_CPU": "1"})[1], "cpu")
        self.build_for_gpus()
        self.assertEqual(self.start(GPUS)[1], "cuda")
        self.refuse({**GPUS, "ZTRAIN": str(self.root / "build/cpu/ztrain")}, "this job has GPUs ")
        wrapper = self.bin / "wrapper"
        put(wrapper, f'#!/usr/bin/env bash\nexec "{self.root}/build/cuda/ztrain" "$@"\n')
        self.start({**GPUS, "ZTRAIN": str(wrapper)})

    def test_without_gpus_ranks_are_cores(self):
        self.build_for_gpus()
        for job in (NODE, {**NODE, "SLURM_GPUS_ON_NODE": "0"}):
            launcher, build = self.start(job)
            self.assertEqual(build, "cpu")
            self.assertIn("--cpu-bind=cores", launcher)
            self.assertNotIn("--cpus-per-task", " ".join(launcher))

    def test_ranks_with_gpus_have_their_share_of_the_cores(self):
        self.build_for_gpus()
        of_nodes = {key: value for key, value in GPUS.items() if key != "SLURM_NTASKS_PER_NODE"}
        for job, share in ((GPUS, 16), (of_nodes, 16), ({**GPUS, "SLURM_CPUS_PER_TASK": "6"}, 6)):
            launcher, _ = self.start(job)
            self.assertIn(f"--cpus-per-task={share}", launcher)
            self.assertIn("--distribution=block:block", launcher)
        launcher, _ = self.start({**NODE, "SLURM_CPUS_PER_TASK": "2"})
        self.assertIn("--cpus-per-task=2", launcher, "srun does not take it from the job")
        launcher, _ = self.start({**GPUS, "SLURM_CPUS_ON_NODE": "4"})
        self.assertNotIn("--cpus-per-task", " ".join(launcher), "there is less than one for each")

    def test_mpirun_binds_ranks_with_gpus_to_no_core(self):
        self.build_for_gpus()
        (line,) = self.submit({**GPUS, "ZTRAIN_MPI": "mpirun"}, "inputs/smoke.toml")
        self.assertIn("mpirun --bind-to none ", line)
        (line,) = self.submit({**NODE, "ZTRAIN_MPI": "mpirun"}, "inputs/smoke.toml")
        self.assertNotIn("--bind-to", line)

    def test_what_is_missing_is_named(self):
        self.refuse({**NODE, "ZTRAIN_MPI": "pmi9"}, r"this SLURM has no MPI plugin 'pmi9'. It has: .*pmix")
        self.refuse({}, "not inside a SLURM job")
        self.refuse({**NODE, "ZTRAIN": "nowhere/ztrain"}, "nowhere/ztrain: no such executable")

    def test_a_step_that_is_not_launched_is_tried_again(self):
        self.start({**NODE, "REFUSED": "4", "SLURM_RESTART_COUNT": "2"})
        self.assertIn("slurm/launch.sh: a node refused to launch the step; up to 1 more tries\n", self.done.stdout)
        self.assertEqual(self.submit({**NODE, "REFUSED": "9"}, "inputs/smoke.toml"), [])
        self.assertEqual(self.done.returncode, 137, self.done.stderr)
        self.assertEqual(self.steps.read_text().count("\n"), 3)

    def test_ranks_that_crash_are_started_again_once(self):
        """Unlike a run that fails, whose ranks may be killed once it has."""
        again = "slurm/launch.sh: a rank has crashed or was killed; all are started again\n"
        failed = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 8: Killed"
        for status, says, count in (
            ("139", "", 1),
            ("143", "srun: error: n1: task 0: Segmentation fault", 1),
            ("137", "srun: error: n2: tasks 8-9: Killed\nsrun: error: n1: task 0: Exited with exit code 1", 1),
            ("137", failed, 0),
            ("1", "", 0),
        ):
            job = {**NODE, "FAIL": "9", "FAILS": says, "STATUS": status}
            for allowed, times in (({}, count), ({"ZTRAIN_FAILURES": "3"}, 3 * count), ({"ZTRAIN_FAILURES": "0"}, 0)):
                calls = self.submit({**job, **allowed}, "inputs/smoke.toml")
                self.assertEqual(self.done.returncode, int(status))
                self.assertEqual(self.done.stdout.count(again), times, says)
                self.assertEqual(len(calls), 2 * (1 + times), "srun and ztrain for each start")

    def test_training_goes_on_with_the_nodes_that_are_left(self):
        """One of four is not SLURM's any more, or does not answer; three have 24 ranks, and the deck takes 16."""
        for gone in ({"LEFT": "a,b,d"}, {"DEAD": "c"}):
            job = {**NODES, **gone, "FAIL": "1", "RANKS": "16"}
            first, _, second, program = self.submit(job, "inputs/smoke.toml", "--run.steps=3")
            self.assertEqual(self.done.returncode, 0, self.done.stderr)
            self.assertNotIn("--nodelist", first)
            self.assertIn(" --nodes=2 --ntasks=16 --ntasks-per-node=8 --nodelist=a,b ", second)
            self.assertIn("--kill-on-bad-exit=1", second)
            self.assertTrue(program.endswith(" inputs/smoke.toml --run.steps=3 --checkpoint.resume=auto"), program)
            self.assertIn("launch.sh: 3 of the job's 4 nodes answer (a b d), ", self.done.stdout)
            self.assertIn("launch.sh: training goes on with 16 ranks on a b\n", self.done.stdout)
            asked = f"ztrain ranks inputs/smoke.toml --run.steps=3 --checkpoint.resume=auto --most 24 --per-node 8\n"
            self.assertIn(asked, self.beside.read_text())
            self.assertRegex((self.root / "ztrain-7.ranks/0.log").read_text(), r"(?m)^start 1, try 2, rank 0 on ")
        # A second failure, of which the four nodes know nothing, is that of the run.
        self.submit({**NODES, "DEAD": "c", "FAIL": "9", "RANKS": "24"}, "inputs/smoke.toml")
        self.assertEqual((self.done.returncode, self.done.stdout.count("training goes on with 24 ranks on a b d")), (1, 1))

    def test_a_guard_on_another_node_looks_after_the_script(self):
        """It is not there where there is no other node."""
        put(self.root / "slurm/guard.sh", '#!/bin/sh\necho "guard $*" >> "$CALLS.guard"\n')
        called = pathlib.Path(str(self.calls) + ".guard")
        for job, expected in ((NODES, ["guard 7 b 9"]), ({**NODES, "LEFT": "b"}, []), (NODE, [])):
            called.write_text("")
            self.beside.write_text("")
            self.submit({**job, "ZTRAIN_GUARD": "9", "SLURMD_NODENAME": "b"}, "inputs/smoke.toml")
            zt.wait_for("the guard", lambda: called.read_text().splitlines() == expected)
            self.assertEqual("--nodelist=d --mpi=none" in self.beside.read_text(), expected != [])

    def test_a_guard_requeues_a_job_whose_script_is_gone(self):
        """And ends with the job, not with the signals that come to its ranks."""
        asked = pathlib.Path(str(self.calls) + ".asked")
        for job, calls in (({"LEFT": "a,c"}, ["scontrol requeue 7"]), ({"LEFT": "a,b"}, []), ({"LEFT": ""}, [])):
            self.calls.write_text("")
            asked.write_text("")
            command = [zt.SOURCE / "slurm/guard.sh", "7", "b", "0.1"]
            with subprocess.Popen(command, env=self.environment({**NODES, **job}), start_new_session=True) as guard:
                self.addCleanup(zt.end, guard)
                try:
                    zt.wait_for("a look", lambda: asked.read_text().count("%N") > 2)
                    guard.terminate()
                    zt.wait_for("another", lambda: asked.read_text().count("%N") > 4)
                    self.assertIsNone(guard.poll())
                finally:
                    guard.kill()
            self.assertEqual(sorted(set(self.calls.read_text().splitlines())), calls)
        done = [zt.SOURCE / "slurm/guard.sh", "7", "b", "0.1"]
        subprocess.run(done, env=self.environment({**NODES, "LEFT": "a", "STATE": "COMPLETING"}), check=True, timeout=20)
        self.assertEqual(self.calls.read_text(), "")

    def test_a_job_of_which_too_little_is_left_waits_for_nodes(self):
        requeued = ["scontrol requeue 7"]
        gone = {**NODES, "LEFT": "a,b,d", "FAIL": "1"}
        for job, said in (
            ({**gone, "RANKS": "24", "ZTRAIN_MIN_NODES": "4"}, "too few nodes are left: ZTRAIN_MIN_NODES = 4: requeueing"),
            ({**gone, "RANKS": "8"}, "the deck's mesh takes 1 of the nodes: ZTRAIN_MIN_NODES = 2: requeueing"),
            ({**gone, "LEFT": "a"}, "too few nodes are left: ZTRAIN_MIN_NODES = 2: requeueing"),
            (gone, "the deck's mesh takes none of the 24 ranks that are left: requeueing"),
            ({**gone, "FAIL": "2", "RANKS": "24", "FAILS": "ztrain: the job does not fit: ..."}, "does not fit 3 of its 4 nodes: requeueing"),
        ):
            calls = self.submit(job, "inputs/smoke.toml")
            self.assertEqual((calls[-1:], self.done.returncode), (requeued, 0), self.done.stderr)
            self.assertIn(said, self.done.stdout)
        self.assertEqual(self.submit({**gone, "ZTRAIN_MPI": "mpirun", "TRAIN": "9"}, "inputs/smoke.toml")[1:], [], "mpirun has ended well")
        # What SLURM takes from its nodes it starts again itself; where nothing answers nothing is known.
        for job in ({**gone, "RANKS": "24", "STATE": "COMPLETING"}, {**gone, "LEFT": ""}, {**gone, "LEFT": "c", "DEAD": "c"}):
            self.assertEqual(len(self.submit(job, "inputs/smoke.toml")), 2)
            self.assertEqual(self.done.returncode, 1)

    def told_to_stop(self, job, how):
        """What launch.sh ends with, and what it called since the ranks were told."""
        self.calls.write_text("")
        command = [self.root / "slurm/launch.sh", "inputs/smoke.toml"]
        environment = self.environment({**NODE, **job})
        with subprocess.Popen(command, cwd=self.root, env=environment, stdout=subprocess.PIPE, text=True) as process:
            zt.wait_for("the ranks", lambda: self.calls.read_text().count("\n") == 2)
            how(process)
            process.communicate(timeout=20)
        return process.returncode, self.calls.read_text().splitlines()[2:]

    def test_near_its_end_a_job_saves_and_requeues_itself(self):
        stop = lambda process: process.send_signal(signal.SIGUSR1)
        requeued = (0, ["saved", "scontrol requeue 7"])
        self.assertEqual(self.told_to_stop({"TRAIN": "75"}, stop), requeued)
        says = "ztrain: the run is saved before its end: the same command goes on (exit status 75)"
        self.assertEqual(self.told_to_stop({"TRAIN": "137", "SAYS": says}, stop), requeued)
        self.assertEqual(self.told_to_stop({"TRAIN": "0"}, stop), (0, ["saved"]), "the run was complete")
        self.assertEqual(self.told_to_stop({"TRAIN": "1"}, stop), (1, ["saved"]), "the run failed")

    def test_nodes_that_an_audit_names_are_left_out(self):
        says = (
            "ztrain: step 9: silent corruption: weights of a: rank 3 (n5) has other bytes than the other 2 ranks that hold copies\n"
            "the run has gone back 3 times (watchdog.audit_limit), and ends; nodes to leave out: {}; the same command goes on"
        )
        for nodes, job, status, calls in (
            ("n5,n7", {}, 0, ["scontrol requeue 7", "scontrol update JobId=7 ExcNodeList=n5,n7"]),
            ("not known", {}, 1, []),
            ("n5", {"STATE": "COMPLETING"}, 1, []),
        ):
            said = says.format(nodes)
            put(self.root / "build/cpu/ztrain", STAND_INS["ztrain"].replace("exit 0", f'{{ echo "{said}" >&2; exit 1; }}'))
            self.assertEqual(self.submit({**NODE, **job}, "inputs/smoke.toml")[2:], calls)
            self.assertEqual(self.done.returncode, status)

    def test_a_task_of_an_array_speaks_for_itself_alone(self):
        """Also the one with the number of the array, which stands for all tasks."""
        stop = lambda process: process.send_signal(signal.SIGUSR1)
        asked = pathlib.Path(str(self.calls) + ".asked")
        for job in ("40", "43"):
            asked.write_text("")
            task = {"SLURM_JOB_ID": job, "SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3", "TRAIN": "75", "EXCLUDED": "n9"}
            self.assertEqual(self.told_to_stop(task, stop), (0, ["saved", "scontrol requeue 40_3"]))
            self.calls.write_text("")
            without = ["bash", "-euc", f"restarts=0; source {self.root}/slurm/requeue.sh; requeue why n5"]
            subprocess.run(without, env=self.environment({**NODE, **task}), check=True, timeout=20)
            update = "scontrol update JobId=40_3 ExcNodeList=n5,n9"
            self.assertEqual(self.calls.read_text().splitlines(), ["scontrol requeue 40_3", update])
            self.assertEqual(set(re.findall(r"--jobs=(\S+)", asked.read_text())), {"40_3"})

    def test_a_job_that_is_restarted_too_often_stays_away(self):
        stop = lambda process: process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.told_to_stop({"TRAIN": "75", "SLURM_RESTART_COUNT": "50"}, stop), (1, ["saved"]))
        often = {"TRAIN": "75", "SLURM_RESTART_COUNT": "50", "ZTRAIN_RESTARTS": "51"}
        self.assertEqual(self.told_to_stop(often, stop)[1], ["saved", "scontrol requeue 7"])

    def test_ranks_learn_when_the_job_ends(self):
        ends = pathlib.Path(str(self.calls) + ".ends")
        for job, said in (({}, "never"), ({"ENDS": "2026-05-04T03:02:01", "TZ": "UTC"}, "1777863721"), ({"ENDS": "N/A"}, "never")):
            ends.write_text("")
            self.start({**NODE, **job})
            self.assertEqual(ends.read_text(), said + "\n")

    def test_ranks_that_stop_by_themselves_are_started_again_while_the_job_runs(self):
        """As near the end of the allocation. Where SLURM takes the job from its nodes it knows whether it is to come back."""

        def stop(process):
            for child in zt.descendants(process.pid):
                if b"inputs/smoke.toml" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(child, signal.SIGUSR1)

        self.assertEqual(self.told_to_stop({"TRAIN": "75"}, stop), (0, ["saved", "scontrol requeue 7"]))
        self.assertEqual(self.told_to_stop({"TRAIN": "75", "STATE": "COMPLETING"}, stop), (75, ["saved"]))
        self.assertEqual(self.told_to_stop({"TRAIN": "1"}, stop), (1, ["saved"]))

    def test_each_rank_has_a_log(self):
        says = "what the rank says"
        self.told_to_stop({"TRAIN": "75", "SAYS": says}, lambda process: process.send_signal(signal.SIGUSR1))
        log = (self.root / "ztrain-7.ranks/0.log").read_text()
        self.assertRegex(log, rf"^start 1, rank 0 on \S+: process \d+, cores [\d,-]+, memory of NUMA nodes [\d,-]+, \S+\n{says}\n$")
        self.start({**NODE, "ZTRAIN_LOGS": str(self.root / "elsewhere"), "SLURM_PROCID": "3"})
        self.assertTrue((self.root / "elsewhere/3.log").exists())

    def preflight(self, environment, gpus="0", token=True):
        shared = self.root / "shared"
        shared.mkdir(exist_ok=True)
        (shared / "token").unlink(missing_ok=True)
        if token:
            (shared / "token").write_text("now\n")
        command = [self.root / "slurm/preflight_node.sh", shared, gpus]
        env = self.environment({"SLURMD_NODENAME": "n7", "ZTRAIN_LEAST_DISK": "0", **environment})
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=True)
        self.assertRegex(done.stdout, r"(?m)^n7: memory \d+ GB, \d+ GB free; cores [\d,-]+ of this task; NUMA nodes: ")
        return re.findall(r"n7: (well|sick: .*)", done.stdout)

    def test_a_node_says_what_it_lacks(self):
        self.assertEqual(self.preflight({}), ["well"])
        self.assertRegex(self.preflight({"ZTRAIN_LEAST_MEMORY": "1000000"})[0], r"^sick: \d+ GB of memory are free, less than")
        self.assertRegex(self.preflight({"ZTRAIN_LEAST_DISK": "1000000"})[0], r"^sick: shared folder .* takes \d+ MB/s, less")
        self.assertRegex(self.preflight({}, token=False)[0], "^sick: it does not see .*: submit from a folder that all nodes share")
        self.assertRegex(self.preflight({"ZTRAIN_NVME": "/nowhere"})[0], "^sick: ZTRAIN_NVME /nowhere cannot be written")
        put(self.bin / "nvidia-smi", "#!/bin/sh\necho 'no driver'; exit 9\n")
        self.assertEqual(self.preflight({}, "2"), ["sick: nvidia-smi fails: no driver"])
        put(self.bin / "nvidia-smi", "#!/bin/sh\necho 'H100, 81559 MiB, 0'\n")
        self.assertEqual(self.preflight({}, "1"), ["well"])
        self.assertEqual(self.preflight({}, "2"), ["sick: 2 GPUs are the job's, and 1 are here"])
        put(self.bin / "nvidia-smi", "#!/bin/sh\necho 'H100, 81559 MiB, 3'\n")
        self.assertEqual(self.preflight({}, "1"), ["sick: a GPU has memory errors that were not corrected"])

    def test_the_scripts_ask_for_what_they_are_named_after(self):
        """Each with its own deck, or with one that is given."""
        self.build_for_gpus()
        asked = {}
        for script in sorted((self.root / "slurm").glob("train_*.sh")):
            asked[script.name] = re.findall(r"(?m)^#SBATCH --([\w-]+)=(\d+)$", script.read_text())
            job = {**GPUS, "ZTRAIN_DATA": "/data", "SLURM_SUBMIT_DIR": str(self.root)}
            for words in ((), ("inputs/smoke.toml", "--run.steps=3"), ("--run.steps=3",)):
                calls = self.submit(job, *words, script=script.name)
                self.assertEqual(self.done.returncode, 0, self.done.stderr)
                deck = "smoke" if "inputs/smoke.toml" in words else r"\w+"
                self.assertRegex(calls[-1], rf"build/cuda/ztrain \S*inputs/{deck}\.toml ")
                self.assertIn(" ".join(words), calls[-1])
        self.assertIn(("gpus-per-node", "8"), asked["train_8gpu_node.sh"])
        self.assertIn(("ntasks-per-node", "8"), asked["train_8gpu_node.sh"])
        self.assertIn(("gpus-per-node", "8"), asked["train_70b.sh"])
        self.assertIn(("nodes", "1"), asked["train_8b.sh"])
        self.assertEqual(len(asked), 4)

    def test_a_sweep_tries_each_combination_once(self):
        array = {**NODE, "SLURM_SUBMIT_DIR": str(self.root), "SLURM_ARRAY_JOB_ID": "40", "SLURM_JOB_NAME": "tries"}
        words = ("inputs/smoke.toml", "optimizer.lr=1e-4,3e-4,1e-3", "--run.steps=5", "batch.global=32,64")
        found = []
        for task in range(6):
            *_, program = self.submit({**array, "SLURM_ARRAY_TASK_ID": str(task)}, *words, script="array_sweep.sh")
            self.assertEqual(self.done.returncode, 0, self.done.stderr)
            rate, batch = re.search(r"smoke.toml --run.steps=5 --optimizer.lr=(\S+) --batch.global=(\S+) ", program).groups()
            self.assertIn(f"--run.output=runs/tries-40/optimizer.lr={rate},batch.global={batch} ", program)
            found.append((rate, batch))
        self.assertEqual(found, [(rate, batch) for rate in ("1e-4", "3e-4", "1e-3") for batch in ("32", "64")])
        for job, wrong, said in (
            ({"SLURM_ARRAY_TASK_ID": "6"}, words, r"6 combinations, and none for task 6: sbatch --array=0-5"),
            ({}, words, r"no job array: sbatch --array=0-5"),
            ({"SLURM_ARRAY_TASK_ID": "0"}, ("inputs/smoke.toml", "lr"), r"'lr' is neither KEY=VALUE"),
            ({"SLURM_ARRAY_TASK_ID": "0"}, ("inputs/smoke.toml", "--run.steps=5"), "which keys are to be varied"),
        ):
            self.assertEqual(self.submit({**array, **job}, *wrong, script="array_sweep.sh"), [])
            self.assertEqual(self.done.returncode, 1)
            self.assertRegex(self.done.stderr, "^slurm/array_sweep.sh: .*" + said)


if __name__ == "__main__":
    zt.main()
