"""Phases of tools/gpu_acceptance.sh as on one GPU, with the executable on a CUDA that runs everything as late as it may."""

import argparse
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["ZTRAIN_SOURCE"]) / "tools" / "acceptance"))
import checks  # noqa: E402
import nccl  # noqa: E402
import runs  # noqa: E402


class OnLateCuda(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-acceptance-")
        self.addCleanup(folder.cleanup)
        out = pathlib.Path(folder.name)
        (out / "ztrain").symlink_to(os.environ["ZTRAIN"])
        self.arguments = argparse.Namespace(build=out, out=out, gpus=1)
        self.runner = runs.Runner(self.arguments)
        self.checks = runs.Checks()
        self.addCleanup(setattr, checks, "SHORT", checks.SHORT)
        checks.SHORT = {**checks.SHORT, "batch.global": 2}

    def assert_passes(self, names, phase, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            phase(*arguments, self.checks)
        verdicts = [line.split(":")[0] for line in said.getvalue().splitlines()]
        self.assertEqual(verdicts, [f"PASS {name}" for name in names], said.getvalue())

    def test_graphs(self):
        checks.SHORT["run.steps"] = 3
        self.assert_passes(["cuda_graphs = compute", "cuda_graphs = step"], checks.graphs, self.arguments, self.runner)

    def test_nccl_of_one_rank(self):
        checks.SHORT["run.steps"] = 3
        self.assert_passes(["groups of one rank", "a graph of the step"], nccl.of_one, self.runner)

    def test_generate(self):
        self.assert_passes(["generate"], checks.generate, self.arguments, self.runner)

    def test_resume(self):
        straight = self.runner.train("straight", 1, checks.short())
        self.assert_passes(["resume, 1 rank"], lambda c: checks.resume(self.runner, c, 1, {}, straight))

    def test_bench(self):
        run, report = self.runner.bench("bench", runs.DECK, ["--steps=1", "--warmup=1", "--kernels", "--batch.global=2"])
        self.assertEqual(run.code, 0, run.text)
        self.assertGreater(report["tokens_per_s"], 0)
        self.assert_passes(["deck"], lambda c: checks.judge_memory(c, "deck", report["memory"], before=0))


if __name__ == "__main__":
    unittest.main()
