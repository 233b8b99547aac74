"""Tools of Python where a package is missing: one sentence that names it, and no traceback."""

import json
import os
import subprocess
import sys
from unittest import mock

import ztrain_run as zt

PACKAGES = ["h5py", "huggingface_hub", "jinja2", "matplotlib", "numpy", "peft", "tokenizers", "torch", "transformers", "xxhash"]
CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
REPORT = {"seconds": {"forward": 1}, "exposed_communication": 0, "other_seconds": 0, "kernels": []}
METRICS = {"step": 1, "loss": 2.0, "seconds": {"total": 1}}


class Packages(zt.Case):
    def without(self, packages, *words):
        """How the tool ends in a Python that lacks the packages."""
        hidden = self.folder / "-".join(packages)
        for name in packages:
            (hidden / name).mkdir(parents=True, exist_ok=True)
            (hidden / name / "__init__.py").write_text(f'raise ModuleNotFoundError("No module named {name}", name="{name}")\n')
        env = zt.environment({"PYTHONPATH": str(hidden)})
        return subprocess.run(
            [sys.executable, "-B", *map(str, words)], capture_output=True, text=True, timeout=60, env=env, check=False
        )

    def assert_sentence(self, done, tool, package):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, rf"^(tools/)?{tool}: .*\b{package}\b.*{sys.executable} -m (pip|venv .*/pip) install {package}")

    def test_each_tool_names_what_it_lacks(self):
        chats, report, run = self.folder / "chats.jsonl", self.folder / "bench.json", self.folder / "run"
        chats.write_text(json.dumps(CHAT) + "\n")
        report.write_text(json.dumps(REPORT))
        run.mkdir()
        (run / "metrics.jsonl").write_text(json.dumps(METRICS) + "\n")
        checkpoint = self.train(0, "model", {"run.steps": 1}) / "checkpoints" / "step_1"
        prepare = ["prepare_data.py", chats, "--tokenizer", "bytes", "--output", self.folder / "chats.h5"]
        for package, words in (
            ("numpy", ["plot_run.py", run]),
            ("matplotlib", ["plot_run.py", run]),
            ("matplotlib", ["plot_bench.py", report]),
            ("numpy", prepare),
            ("h5py", prepare),
            ("xxhash", prepare),
            ("jinja2", prepare),
            ("h5py", ["generate.py", checkpoint, "--prompt", "a", "--ztrain", zt.EXECUTABLE]),
            ("torch", ["bench/torch_peer.py"]),
            ("torch", ["bench/torch_gpu_peer.py", report]),
            ("bitsandbytes", ["parity/against_transformers.py"]),
            ("peft", ["parity/adapter_against_peft.py", "a", "b"]),
        ):
            with self.subTest(package=package, tool=words[0]):
                done = self.without([package], zt.SOURCE / "tools" / words[0], *words[1:])
                self.assert_sentence(done, os.path.basename(words[0]), package)

    def test_all_that_is_missing_is_named_at_once(self):
        run = self.folder / "all_missing"
        run.mkdir()
        (run / "metrics.jsonl").write_text(json.dumps(METRICS) + "\n")
        done = self.without(["numpy", "matplotlib"], zt.SOURCE / "tools/plot_run.py", run)
        self.assertRegex(done.stderr, r"^plot_run\.py: .* has no Python packages numpy and matplotlib: .* install numpy matplotlib`.*\n$")
        self.assertIn("`apt install python3-numpy python3-matplotlib` and run this with /usr/bin/python3", done.stderr)

    def test_an_interpreter_with_the_packages_is_found(self):
        """The first Python has its packages hidden; that of the virtual environment does not see what hides them."""
        run, python = self.folder / "found", self.folder / "environment" / "bin" / "python"
        run.mkdir()
        python.parent.mkdir(parents=True)
        (run / "metrics.jsonl").write_text(json.dumps(METRICS) + "\n")
        python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        with mock.patch.dict(os.environ, {"VIRTUAL_ENV": str(python.parents[1])}):
            done = self.without(["matplotlib"], zt.SOURCE / "tools/plot_run.py", run)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, f"plot_run.py: {sys.executable} has no matplotlib: goes on with {python}\n")
        self.assertTrue((run / "plot.png").stat().st_size > 0)

    def test_what_needs_no_package_does_without(self):
        done = self.without(PACKAGES, zt.SOURCE / "tools/plot_run.py", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("RUN_FOLDER", done.stdout)

    def test_a_package_that_is_there_and_broken_says_so_itself(self):
        broken = self.folder / "broken"
        broken.mkdir()
        for package, tool in (("numpy", "plot_run.py"), ("torch", "bench/torch_peer.py")):
            (broken / f"{package}.py").write_text('raise ImportError("libgone.so: cannot open shared object file")\n')
            done = subprocess.run(
                [sys.executable, "-B", zt.SOURCE / "tools" / tool, "--help"],
                capture_output=True,
                text=True,
                env=zt.environment({"PYTHONPATH": str(broken)}),
                check=False,
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("libgone.so: cannot open", done.stderr)
            self.assertNotIn("pip install", done.stderr)

    def test_every_tool_starts_without_any_of_them(self):
        """--help is one thing or the other: help, or a sentence."""
        for tool in sorted((zt.SOURCE / "tools").rglob("*.py")):
            text = tool.read_text()
            if "__main__" not in text or tool.parent.name == "acceptance":
                continue
            with self.subTest(tool=tool.name):
                done = self.without(PACKAGES, tool, "--help")
                self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    zt.main()
