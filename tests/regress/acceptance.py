"""The acceptance for GPUs: how verdicts are collected and judged, with phases that are made up, and on a build for CPUs."""

import argparse
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import ztrain_run as zt

SOURCE = pathlib.Path(os.environ["ZTRAIN_SOURCE"])
TOOLS = SOURCE / "tools" / "acceptance"
sys.path.insert(0, str(TOOLS))
import attention  # noqa: E402
import checks  # noqa: E402
import nccl  # noqa: E402
import phases  # noqa: E402
import runs  # noqa: E402
import speed  # noqa: E402


def phase(code, name="one", required=("a",), until=60):
    return phases.Phase(name, until, [sys.executable, "-c", code], required)


class Collecting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-acceptance-")
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def run_phases(self, *plan, only=None, without=None):
        arguments = argparse.Namespace(out=self.out, gpus=1, plain=True, only=only, without=without)
        with contextlib.redirect_stdout(io.StringIO()):
            return phases.run(plan, arguments)

    def assert_fails(self, verdicts, *parts):
        self.assertFalse(phases.succeeded(verdicts), phases.table(verdicts))
        failed = "\n".join(f"{v.name}: {v.detail}" for v in verdicts if v.verdict == "FAIL")
        for part in parts:
            self.assertIn(part, failed)

    def test_a_required_check_that_passed_is_enough(self):
        found = self.run_phases(phase("print('== \\nPASS a: well\\nSKIP b: no time\\nother')"))
        self.assertTrue(phases.succeeded(found), phases.table(found))
        self.assertEqual([(v.verdict, v.name, v.detail) for v in found], [("PASS", "a", "well"), ("SKIP", "b", "no time")])
        self.assertIn("1 passed, 0 failed, 1 did not run", phases.summary(found))

    def test_on_gpus_the_phases_are_asked_for_their_checks(self):
        arguments = argparse.Namespace(build=self.out, out=self.out, gpus=1, plain=False, only=None, without=None)
        with contextlib.redirect_stdout(io.StringIO()):
            found = phases.run([phase("print('PASS b: well')")], arguments)
        self.assert_fails(found, "required: a")

    def test_a_name_is_the_whole_of_it(self):
        self.assert_fails(self.run_phases(phase("print('PASS ab: well')")), "required: a")
        self.assertEqual([v.name for v in self.run_phases(phase("print('PASS a: 1: 2')"))], ["a"])

    def test_the_exit_status_is_the_verdict(self):
        plan, words = phases.PHASES, sys.argv
        sys.argv = ["phases.py", "--build", str(self.out), "--out", str(self.out / "made"), "--gpus", "1"]
        try:
            for code, status in (("print('PASS a: well')", 0), ("print('PASS a: well'); print('FAIL b: ill')", 1)):
                phases.PHASES = [phase(code)]
                with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(SystemExit) as end:
                    phases.main()
                self.assertEqual(end.exception.code, status, code)
        finally:
            phases.PHASES, sys.argv = plan, words

    def test_the_phases_that_a_gpu_needs(self):
        """Written out once more: what is not asked for may never have run."""
        required = {p.name: p.required for p in phases.PHASES}
        for name, checks in (("sanitizer", {"memcheck", "racecheck"}), ("steps", {"mpi_gradients", "mpi_strategies"}),
                             ("graphs", {"cuda_graphs = step", "cuda_graphs = compute"}), ("generate", {"generate"}),
                             ("nccl", {"groups of one rank", "a graph of the step", "ranks on one GPU"}),
                             ("determinism", {"twice, 1 rank", "resume, 1 rank"}), ("fp8", {"bench_7b fp8"})):
            self.assertLessEqual(checks, set(required[name]), name)

    def test_a_phase_of_which_nothing_ran_has_failed(self):
        self.assert_fails(self.run_phases(phase("")), "required: a: did not run: nothing was said of it")

    def test_what_there_was_no_time_for_is_no_success(self):
        found = self.run_phases(phase("print('PASS b: well\\nSKIP a: no time is left for it')"))
        self.assert_fails(found, "required: a: did not run: no time is left for it")
        found = self.run_phases(phase("print('PASS a: well')"), phase("print('PASS a: well')", "two", until=0))
        self.assert_fails(found, "required: a: did not run: no time is left for it")
        self.assertEqual([v.verdict for v in found if v.phase == "one"], ["PASS"])

    def test_each_required_check_is_asked_for(self):
        found = self.run_phases(phase("print('PASS a: well')", required=("a", "b [0-9]+ ranks")))
        self.assert_fails(found, "required: b [0-9]+ ranks")
        self.assertTrue(phases.succeeded(self.run_phases(phase("print('PASS a: 1\\nPASS b 12 ranks: 2')",
                                                               required=("a", "b [0-9]+ ranks")))))

    def test_a_phase_that_does_not_end_is_cut_off_with_all_that_it_started(self):
        code = ("import subprocess, sys, time; c = subprocess.Popen(['sleep', '1000']); print('PASS b:', c.pid, flush=True); "
                "time.sleep(1000)")
        least, phases.LEAST = phases.LEAST, 0.1
        try:
            found = self.run_phases(phase(code, until=10), phase("print('PASS a: well')", "two"))
        finally:
            phases.LEAST = least
        self.assert_fails(found, "required: a: did not run: cut off after")
        self.assertIn(("two", "PASS"), [(v.phase, v.verdict) for v in found])
        started = next(v.detail for v in found if v.name == "b")
        state = pathlib.Path(f"/proc/{started}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z", "it is still there")

    def test_the_table_is_there_before_the_end(self):
        table = self.out / "table.txt"
        found = self.run_phases(phase("print('PASS a: well')"), phase(f"print('PASS a:', len(open({str(table)!r}).readlines()))", "two"))
        self.assertEqual(found[-1].detail, "3", "a heading, a verdict, how many there are")
        self.assertIn("2 passed, 0 failed", table.read_text())

    def test_a_script_that_breaks_has_failed(self):
        self.assert_fails(self.run_phases(phase("print('PASS a: well'); raise SystemExit(3)")), "phase: exit status 3")
        found = self.run_phases(phase("print('PASS a: well\\nFAIL b: bad'); raise SystemExit(1)"))
        self.assert_fails(found, "b: bad")
        self.assertEqual(sum(v.verdict == "FAIL" for v in found), 1, "said once")

    def test_what_a_machine_lacks_is_named_and_no_failure(self):
        lacking = phase("print('LACK a: none here')")
        found = self.run_phases(phase("print('PASS a: well')"), lacking)
        self.assertTrue(phases.succeeded(found))
        self.assertIn("LACK     a: none here", phases.table(found))
        self.assertFalse(phases.succeeded(self.run_phases(lacking)), "nothing passed")

    def test_what_is_left_out_is_named(self):
        plan = [phase("print('PASS a: well')"), phase("", "two")]
        for options in ({"only": "one"}, {"without": "two"}):
            found = self.run_phases(*plan, **options)
            self.assertTrue(phases.succeeded(found))
            self.assertIn("no whole acceptance: without two", phases.summary(found))
            self.assertIn(f"left out by --{next(iter(options))}", phases.table(found))
        with self.assertRaises(SystemExit):
            self.run_phases(*plan, only="three")


class Judging(unittest.TestCase):
    def said(self, judge):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            judge(runs.Checks())
        return out.getvalue().strip()

    def test_slow_ways_in_a_benchmark_are_failures(self):
        note = {"what": "attention", "text": "cuDNN, sequences: 4 of 4 entries", "warning": False}
        slow = {"what": "products", "text": "a loop without tensor cores: why", "warning": True}
        self.assertEqual(self.said(lambda c: c.judge_notes("deck", {"notes": [note]})), "PASS deck, slow ways: none")
        self.assertEqual(self.said(lambda c: c.judge_notes("deck", {"notes": [note, slow]})),
                         "FAIL deck, slow ways: products: a loop without tensor cores: why")

    def test_slow_training_is_a_failure_on_every_hopper(self):
        """Far below what is wanted of a GPU of this kind, by the names that drivers give."""
        for device, mfu, verdict in (("NVIDIA H200", 0.2, "FAIL"), ("NVIDIA H100 80GB HBM3", 0.2, "FAIL"), ("NVIDIA H200", 0.6, "PASS"),
                                     ("NVIDIA A100-SXM4-80GB", 0.2, "PASS")):
            report = {"device": device, "sequence": 1024, "mfu": mfu, "fp8_mfu": None, "tokens_per_s": 1, "tflops": {"model": 1},
                      "ceiling": {"tflops": None, "share": None}}
            said = self.said(lambda c, r=report: speed.judge_speed(c, "bench_7b", r))
            self.assertTrue(said.startswith(verdict), said)

    def test_attention_must_be_the_librarys_in_both_directions(self):
        line = "attention  {}\n"
        forward, backward = "cuDNN, documents: 8 of 8", "backward: cuDNN, masked: 2 of 2; not documents (why)"
        slow = "warning: streaming kernels without tensor cores; not cuDNN: documents (why)"
        hint = "the number of documents in a sequence is not known"
        for told, good in (((forward, backward), True), ((forward,), False), ((forward, slow), False), ((), False),
                           ((forward, backward, slow), False), ((forward, backward, hint), False)):
            text = "ztrain\ndevice     GPU\n" + "".join(map(line.format, told)) + "mesh       1\n"
            verdict = self.said(lambda c: attention.judge_way(c, "name", text))
            self.assertTrue(verdict.startswith("PASS name, the way: " if good else "FAIL name, the way: "), verdict)


    def test_memory_is_what_the_driver_shows(self):
        """In MiB: arenas of 40,000 that the driver rounds up by 30, what is outside of them, and what comes later."""
        def judged(arenas, peak, outside=900, over_nccl=False):
            m = {"planned": 40000, "arenas": arenas, "outside": outside, "peak": peak}
            said = self.said(lambda c: checks.judge_memory(c, "deck", {k: v * checks.MIB for k, v in m.items()}, 0, over_nccl))
            return said.split(" ")[0]
        self.assertEqual(judged(40030, 40930), "PASS")
        self.assertEqual(judged(40030, 40950), "FAIL", "20 more after the first step")
        self.assertEqual(judged(40030, 43030, outside=3000), "FAIL")
        self.assertEqual(judged(40800, 41700), "FAIL")
        self.assertEqual(judged(40800, 41700, over_nccl=True), "PASS", "NCCL rounds up")
        self.assertEqual(judged(41200, 42100, over_nccl=True), "FAIL")

    def test_without_mpirun_what_needs_several_ranks_has_failed(self):
        for mpirun in (None, "/usr/bin/mpirun"):
            runner = types.SimpleNamespace(mpirun=mpirun)
            said = self.said(lambda c, r=runner: self.assertEqual(checks.rank_counts(r, c, "memory"), (1, 2) if r.mpirun else (1,)))
            self.assertRegex(said, "^$" if mpirun else r"^FAIL memory, 2 ranks: there is no mpirun in PATH.*: load the MPI library")
        runner = types.SimpleNamespace(mpirun=None)
        self.assertRegex(self.said(lambda c: nccl.sharing(None, runner, c)), "^FAIL ranks on one GPU: there is no mpirun")


class Options(unittest.TestCase):
    """Of tools/gpu_acceptance.sh, with a build that has nothing to test."""

    def start(self, *words, cwd, path=None):
        command = [SOURCE / "tools" / "gpu_acceptance.sh", *words]
        environment = {**os.environ, **({"PATH": path} if path else {})}
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False, env=environment)

    def test_both_spellings_and_paths_of_the_folder_it_is_started_in(self):
        with tempfile.TemporaryDirectory(prefix="ztrain-acceptance-") as folder:
            (pathlib.Path(folder) / "mine").symlink_to(pathlib.Path(os.environ["ZTRAIN"]).parent)
            for words in (("--build", "mine", "--out", "here", "--only", "none"), ("--build=mine", "--out=here", "--only=none")):
                done = self.start(*words, cwd=folder)
                self.assertIn("there is no phase none: the phases are facts,", done.stderr)
                self.assertTrue((pathlib.Path(folder) / "here").is_dir())

    def test_a_build_for_gpus_is_known_by_its_libraries(self):
        """Where its folder has no CMakeCache.txt, and however long the list is behind the one that tells."""
        with tempfile.TemporaryDirectory(prefix="ztrain-acceptance-") as folder:
            programs = {"ztrain": "exit 3", "ldd": "echo libcublasLt.so.13; seq 100000", "nvidia-smi": "exit 9"}
            for name, does in programs.items():
                path = pathlib.Path(folder, name)
                path.write_text(f"#!/bin/sh\n{does}\n")
                path.chmod(0o755)
            done = self.start("--build", ".", cwd=folder, path=f"{folder}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("is a build for GPUs, and nvidia-smi shows none", done.stderr)
        self.assertRegex(done.stdout, r"(?m)^FAIL two ranks: .*exit status 3")

    def test_mistakes(self):
        for words, told in ((("--build", ""), "--build needs a value"), (("--out=",), "--out needs a value"),
                            (("--only",), "--only needs a value"), (("--without", "--only", "facts"), "--without needs a value"),
                            (("",), "'' is no option"), (("--biuld=x",), "'--biuld=x' is no option"),
                            (("--build", "nowhere"), "there is no /nowhere/ztrain")):
            done = self.start(*words, cwd="/")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertTrue(done.stderr.startswith("gpu_acceptance.sh: " + told), done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("generate     tokens from a checkpoint", self.start("--help", cwd="/").stdout)


class Plan(unittest.TestCase):
    def test_each_phase_has_time_and_checks_of_its_own(self):
        ends = [p.until for p in phases.PHASES]
        self.assertEqual(ends, sorted(set(ends)))
        self.assertEqual(ends[-1], 28 * 60)
        self.assertLessEqual(next(p.until for p in phases.PHASES if p.name == "first"), 135)
        for minutes in (10, 28, 100):
            ends = [phases.end_of(p, 60 * minutes) for p in phases.PHASES]
            self.assertTrue(all(b - a >= phases.LEAST for a, b in zip([0, *ends], ends)), ends)
            self.assertAlmostEqual(ends[-1], 60 * minutes)
        self.assertEqual([p.until for p in phases.NODE], sorted({p.until for p in phases.NODE}))
        for p in [*phases.PHASES, *phases.NODE]:
            self.assertTrue(p.required and pathlib.Path(p.command[2]).is_file(), p.name)

    def test_tests_that_are_required_are_there(self):
        names = {f"{folder.name}_{path.stem}" for folder in (SOURCE / "tests" / "unit", SOURCE / "tests" / "mpi")
                 for path in folder.rglob("*.cpp")}
        import tests
        required = [name.split(",")[0] for p in phases.PHASES for name in p.required if name.startswith(("unit_", "mpi_"))]
        self.assertGreater(len(required), 8)
        for name in [*required, *tests.STEPS, *tests.LATE_FIRST, "mpi_comm_nccl"]:
            self.assertIn(name, names)

    def test_on_a_build_for_cpus_what_needs_a_gpu_is_lacking(self):
        with tempfile.TemporaryDirectory(prefix="ztrain-acceptance-") as out:
            build = pathlib.Path(os.environ["ZTRAIN"]).parent
            named = "facts,libraries,first,steps,nccl,graphs,late,sanitizer,fp8"
            done = subprocess.run([SOURCE / "tools" / "gpu_acceptance.sh", "--build", build, "--out", out, "--only", named],
                                  capture_output=True, text=True, timeout=220)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            table = (pathlib.Path(out) / "table.txt").read_text()
        for name in named.split(","):
            self.assertRegex(table, f"(?m)^{name} +{'PASS' if name in ('facts', 'libraries', 'first') else 'LACK'} ")
        self.assertIn("without attention, bench", done.stdout)


if __name__ == "__main__":
    zt.main()
