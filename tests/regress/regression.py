"""slurm/regression.sh without SLURM: two ranks on their meshes; and what it says of faults, planted in stand-ins for ztrain,
CTest and the launcher."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

import ztrain_run as zt

SCRIPT = zt.SOURCE / "slurm" / "regression.sh"
GOLDEN = zt.SOURCE / "tests" / "regress" / "golden" / "meshes.json"
FEW = ("--only", "meshes", "--strategies", "FULL_SHARD", "--precisions", "fp32")

# Plans and trains by writing the golden losses, but for what its environment plants on a mesh.
ZTRAIN = f"""#!{sys.executable}
import json, os, signal, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("ztrain 1.2.3, built for cpu"))
keys = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
mesh = next((axis for axis in ("replicate", "shard", "context", "tensor") if keys["mesh." + axis] == "2"), "one rank")
fault = json.loads(os.environ.get("FAULTS", "{{}}")).get(mesh, "")
refusals = {{"refused": "ztrain: mesh.shard = 2 is not legal: because", "proof": "ztrain: op 3 reads 'x' before any op writes it"}}
if words[0] == "plan":
    sys.exit(refusals.get(fault) or print(json.dumps({{"traffic": {{"bytes": 7}}}})))
golden = json.load(open(os.environ["GOLDEN"]))["fp32"]
if fault == "other bits" and "again" in keys["run.output"]:
    golden["norm"][9] *= 1 + 1e-9
if fault == "sum":
    golden["loss"][2] *= 1.5
if fault == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if fault == "hang":
    time.sleep(1000)
if fault == "alone":
    sys.exit("ztrain: mesh.shard = 2 is not legal: it does not divide the job's 1 ranks")
os.makedirs(keys["run.output"])
with open(keys["run.output"] + "/metrics.jsonl", "w") as file:
    for loss, norm in zip(golden["loss"], golden["norm"]):
        print(json.dumps({{"loss": loss, "grad_norm": norm, "bytes_sent": {{"shard": 8 if fault == "bytes" else 7}}}}), file=file)
"""
MPIRUN = """#!/bin/sh
while [ "$1" != -n ]; do shift; done
shift 2
exec "$@"
"""
CTEST = f"""#!{sys.executable}
import json, os
def test(name, ranks, *words):
    command = ["mpirun", "-np", str(ranks), os.environ["TESTS"], *words]
    return {{"name": name, "command": command, "properties": [{{"name": "TIMEOUT", "value": 20}}]}}
print(json.dumps({{"tests": [test("mpi/good/np2", 2), test("mpi/bad/np2", 2, "bad"), test("mpi/large/np4", 4)]}}))
"""
TESTS = """#!/bin/sh
[ "$1" = bad ] || exit 0
echo '[  FAILED  ] Sums.AreRight'
exit 1
"""

# As SLURM 22.05 and Open MPI 4.1 have said it.
CRASHED = """srun: error: n4: task 1: Segmentation fault
srun: launch/slurm: _step_signal: Terminating StepId=13.0
slurmstepd-n3: error: *** STEP 13.0 ON n3 CANCELLED AT 2026-11-23T07:40:03 ***
srun: error: n3: task 0: Terminated
"""
ENDED = """srun: cluster configuration lacks support for cpu binding
ztrain: process 20553: no progress for 10 s (watchdog.timeout); waiting in: starting MPI
srun: error: n3: task 0: Exited with exit code 1
srun: error: n4: task 1: Terminated
"""
OF_MPIRUN = """--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 11 (Segmentation fault).
--------------------------------------------------------------------------
"""


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Sentences(unittest.TestCase):
    def test_the_first_rank_that_ended_is_named(self):
        sys.path.insert(0, str(zt.SOURCE / "tools" / "regression"))
        import ranks
        for code, text, told in (
            (143, CRASHED, "rank 1 on n4 crashed (Segmentation fault): nothing was printed (LOG)"),
            (143, ENDED, "rank 0 on n3 ended with status 1: ztrain: process 20553: no progress for 10 s (watchdog.timeout); waiting in: "
                         "starting MPI (LOG)"),
            (139, OF_MPIRUN, "rank 1 on vm crashed (Segmentation fault): nothing was printed (LOG)"),
            (1, ENDED.replace("task 0:", "tasks 0-1:").replace("ztrain: ", "one\n", 1).split("srun: error: n4")[0],
             "rank 0-1 on n3 ended with status 1: process 20553: no progress for 10 s (watchdog.timeout); waiting in: starting MPI (LOG)"),
            (-9, "", "crashed by SIGKILL: nothing was printed (LOG)"),
            (3, "one\ntwo\n\n", "ended with status 3: two (LOG)"),
        ):
            self.assertEqual(ranks.Run(code, text, 1, 20, "LOG").why(), told)


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-regression-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out, self.bin = self.folder / "out", self.folder / "bin"

    def start(self, *words, **env):
        environment = zt.environment({"ZTRAIN": zt.EXECUTABLE, "GOLDEN": str(GOLDEN), **env})
        self.done = subprocess.run([SCRIPT, "--out", self.out, *words], capture_output=True, text=True, timeout=200, check=False,
                                   env=environment, stdin=subprocess.DEVNULL)
        self.said = self.done.stdout + self.done.stderr
        return self.done.returncode

    def with_stand_ins(self, *words, ranks=2, **env):
        for name, text in (("ztrain", ZTRAIN), ("mpirun", MPIRUN), ("ctest", CTEST), ("tests", TESTS)):
            put(self.bin / name, text)
        put(self.bin / "CTestTestfile.cmake", "")
        path = f"{self.bin}:{os.environ['PATH']}"
        env = {"PATH": path, "ZTRAIN": str(self.bin / "ztrain"), "TESTS": str(self.bin / "tests"), **env}
        return self.start("--ranks", str(ranks), *words, **env)

    def cases(self):
        """{name: (what became of it, message)} of the JUnit file."""
        found = {}
        for case in ElementTree.parse(self.out / "junit.xml").iter("testcase"):
            inner = list(case)
            found[case.get("name")] = (inner[0].tag, inner[0].get("message")) if inner else ("passed", "")
        return found

    def assert_failed(self, case, pattern):
        """In the JUnit file, in the table and at its end."""
        what, message = self.cases()[f"{case}, 2 ranks"]
        self.assertEqual(what, "failure", self.said)
        self.assertRegex(message, pattern)
        mesh, name = case.split(", ", 1)
        table = (self.out / "table.txt").read_text()
        self.assertIn(table, self.done.stdout)
        self.assertRegex(table, rf"(?m)^meshes +{name} +2 +{mesh} +FAIL ")
        self.assertIn(f"\nFAIL meshes, 2 ranks, {mesh}, {name}: {message}", table)

    def test_two_ranks_train(self):
        self.assertEqual(self.start("--ranks", "2", "--axes", "context,tensor", *FEW), 0, self.said)
        names = {f"{case}{again}, 2 ranks" for case in ("context 2, FULL_SHARD, fp32, gather", "tensor 2, FULL_SHARD, fp32")
                 for again in ("", ", again")}
        self.assertEqual(self.cases(), dict.fromkeys(names, ("passed", "")))
        self.assertIn("2 of 2 meshes of 2 ranks are legal", self.said)
        self.assertRegex(self.said, r"\nmeshes +fp32, 2 runs +2 +tensor 2 +PASS +\d+\.\d +differs by \de-\d\d\n")

    def test_each_fault_is_named_with_its_mesh(self):
        faults = {"tensor": "sum", "context": "bytes", "shard": "crash", "replicate": "other bits"}
        self.assertEqual(self.with_stand_ins(*FEW, FAULTS=json.dumps(faults)), 1, self.said)
        self.assert_failed("tensor 2, FULL_SHARD, fp32", r"^the loss of step 3 is 7\.\d+, and that of one rank is 5\.\d+: 5e-01 apart")
        self.assert_failed("context 2, FULL_SHARD, fp32, gather", r"^a step sent \[8\] bytes, and the plan says 7$")
        self.assert_failed("shard 2, FULL_SHARD, fp32", r"^crashed by SIGSEGV: nothing was printed \(.*\.log\)$")
        self.assert_failed("replicate 2, FULL_SHARD, fp32, again", "other bits than those of FULL_SHARD, fp32 on the same mesh$")
        self.assertEqual(self.cases()["replicate 2, FULL_SHARD, fp32, 2 ranks"][0], "passed")

    def test_a_rank_that_hangs_is_ended(self):
        self.assertEqual(self.with_stand_ins(*FEW, "--timeout", "0.5", ranks=1, FAULTS='{"one rank": "hang"}'), 1, self.said)
        self.assertIn("this allocation has 1 rank, so nothing that ranks exchange is tested", self.said)
        self.assertRegex(self.cases()["one rank, FULL_SHARD, fp32, 1 ranks"][1], "^did not end within 0.5 s and was ended: ")

    def test_ranks_that_are_runs_of_their_own(self):
        faults = dict.fromkeys(("tensor", "shard", "replicate", "context"), "alone")
        self.assertEqual(self.with_stand_ins(*FEW, FAULTS=json.dumps(faults)), 1, self.said)
        self.assertEqual(self.said.count("2 ranks came up as runs of one rank each"), 3, "as it ends, in its row and at the end")
        self.assertIn("1 failed, 7 did not run", self.said)

    def test_no_mesh_that_fits(self):
        faults = {"tensor": "proof", "shard": "refused", "replicate": "refused", "context": "refused"}
        self.assertEqual(self.with_stand_ins(*FEW, FAULTS=json.dumps(faults)), 1, self.said)
        self.assertIn("no mesh of 2 ranks fits tests/regress/cluster/meshes.toml", self.said)
        self.assert_failed("tensor 2, FULL_SHARD, fp32", "^ztrain plan ended with status 1: ztrain: op 3 reads")
        refused = ("skipped", "not legal: mesh.shard = 2 is not legal: because")
        self.assertEqual(self.cases()["shard 2, FULL_SHARD, fp32, 2 ranks"], refused)

    def test_tests_of_the_build(self):
        self.assertEqual(self.with_stand_ins("--only", "mpi"), 1, self.said)
        found = self.cases()
        self.assertEqual(found["mpi/good/np2, 2 ranks"], ("passed", ""))
        self.assertRegex(found["mpi/bad/np2, 2 ranks"][1], r"^ended with status 1: \[  FAILED  \] Sums\.AreRight \(.*\.log\)$")
        self.assertEqual(len(found), 2, "there are no 4 ranks")
        self.assertEqual(self.with_stand_ins("--only", "mpi", TESTS="/nowhere"), 1, self.said)
        self.assertIn("are not built (mpi/good/np2, mpi/bad/np2, mpi/large/np4): build all of its targets", self.said)

    def test_mistakes(self):
        self.assertEqual(self.start("--ranks", "2", ZTRAIN="/nowhere/ztrain"), 1)
        self.assertRegex(self.said, r"^slurm/regression\.sh: /nowhere/ztrain: no such executable; build it .*\n$")
        self.assertEqual(self.start(), 1)
        self.assertIn("not inside a SLURM job: submit it with sbatch, or say --ranks N", self.said)
        self.assertEqual(self.start("--ranks", "2", "--only", "mpj"), 2)
        self.assertIn("'mpj' is none of meshes, mpi, regress", self.said)
        installed = self.folder / "slurm"
        shutil.copytree(zt.SOURCE / "slurm", installed)
        done = subprocess.run([installed / "regression.sh", "--ranks", "2"], capture_output=True, text=True, timeout=60, check=False)
        self.assertRegex(done.stderr, r"^slurm/regression\.sh: \S+ is no checkout of ztrain \(tools/regression/regression\.py is missing\)")


if __name__ == "__main__":
    zt.main()
