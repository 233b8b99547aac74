"""tools/plot_run.py on runs of which only metrics.jsonl is there."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ztrain_run as zt

PNG = b"\x89PNG\r\n"


class PlotRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-plot-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_of(self, name, steps=30, end=1.0):
        folder = self.folder / name
        folder.mkdir(parents=True)
        with open(folder / "metrics.jsonl", "w") as out:
            for step in range(1, steps + 1):
                seconds = {"total": 0.2, "forward": 0.05, "backward": 0.1}
                record = {"step": step, "loss": 5 / step, "grad_norm": 1.5, "lr": 1e-3, "tokens_per_s": 1000, "seconds": seconds}
                out.write(json.dumps(record) + "\n")
            for step, loss in ((1, 9.0), (steps, end)):
                out.write(json.dumps({"step": step, "validation_loss": loss}) + "\n")
            out.write('{"step": 31, "lo')
        return folder

    def plot(self, *words):
        command = [sys.executable, "-B", zt.SOURCE / "tools/plot_run.py", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_all_runs_in_a_folder(self):
        """In the order of the numbers in their names, each once, into the folder that has them all."""
        rates = ("1e-4", "3e-4", "10e-4", "2e-3", "0.5", "1", "20", "100")
        for place, rate in enumerate(reversed(rates)):
            self.run_of(f"sweep/lr={rate},batch=8", 20 + place, float(rate))
        (self.folder / "sweep/logs").mkdir()
        said = "".join(f"lr={rate},batch=8: {float(rate):.4f}\n" for rate in rates)
        self.assertEqual(self.plot("sweep", "--last-validation"), said)
        self.assertEqual(self.plot("sweep"), "sweep/plot.png\n")
        self.assertEqual((self.folder / "sweep/plot.png").read_bytes()[: len(PNG)], PNG)

    def test_runs_of_the_same_name(self):
        a, b = self.run_of("a/run", 10, 2.5), self.run_of("b/run", 400)
        self.assertEqual(self.plot(a, b, "--last-validation"), "a/run: 2.5000\nb/run: 1.0000\n")
        self.assertEqual(self.plot(a, b / "metrics.jsonl"), "plot.png\n")
        self.assertEqual(self.plot(a, "--last-validation"), "2.5000\n")
        self.assertEqual(self.plot("a/run"), os.path.join("a/run", "plot.png") + "\n")
        (self.folder / "c").mkdir()
        (self.folder / "c/metrics.jsonl").touch()
        self.assertEqual(self.plot("c", a, "-o", "with_none.png"), "with_none.png\n")
        alone, two = ((self.folder / name).read_bytes() for name in ("a/run/plot.png", "plot.png"))
        self.assertGreater(two[20:24], alone[20:24], "its height: below there are names")
        self.assertEqual(sorted(path.name for path in (self.folder / "b/run").iterdir()), ["metrics.jsonl"])


    def test_each_run_has_a_colour_and_all_the_same_window(self):
        code = "import plot_run as p, types; run = lambda n: types.SimpleNamespace(steps=[0] * n)\n"
        code += "runs = [run(10 * n) for n in range(1, 41)]; drawn = list(p.styles(runs)); print(len({str(c) for _, c, _ in drawn}), p.window_of(runs))"
        env = {**os.environ, "PYTHONPATH": str(zt.SOURCE / "tools")}
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False, env=env)
        self.assertEqual(done.stdout, "40 11\n", done.stderr)


if __name__ == "__main__":
    zt.main()
