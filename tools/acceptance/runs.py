"""Starts ztrain for the acceptance checks and reads what it leaves. Standard library alone.

Every check is one line on stdout, "PASS name: detail", "FAIL ..." or "SKIP ...": tools/gpu_acceptance.sh collects them.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DECK = ROOT / "tests" / "regress" / "acceptance" / "parity.toml"


class Checks:
    """What was found, said as it is found."""

    def __init__(self):
        self.failed = False

    def say(self, verdict, name, detail):
        self.failed |= verdict == "FAIL"
        print(f"{verdict} {name}: {detail}", flush=True)

    def judge(self, good, name, detail):
        self.say("PASS" if good else "FAIL", name, detail)

    def skip(self, name, why):
        self.say("SKIP", name, why)

    def exit(self):
        sys.exit(1 if self.failed else 0)


def arguments_of(text, more=()):
    """--build, --out and --gpus, which all checks have; more: (name, keywords of add_argument)."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda", help="folder of the build")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the runs")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of this node; 0: a build for CPUs")
    for name, keywords in more:
        parser.add_argument(name, **keywords)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def write_text(path, size=40000):
    """Words from a small vocabulary, the same on every machine."""
    syllables = ["ka", "lo", "mi", "ne", "ru", "sto", "ta", "vi", "we", "zu"]
    state, text = 1, ""
    while len(text) < size:
        state = (state * 1103515245 + 12345) % 2**31
        first, second = state >> 16 & 7, state >> 20 & 7
        text += syllables[first] + syllables[second + first % 3] + (". " if state >> 24 & 7 == 0 else " ")
    path.write_text(text[:size])
    return path


class Run:
    def __init__(self, code, text, folder):
        self.code, self.text, self.folder = code, text, folder

    def why(self):
        """The line that says most about a failure."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith("ztrain: ")]
        return (own or lines[-1:] or ["no output"])[0][:300] + f" (exit status {self.code})"

    def steps(self):
        """{step: (loss, gradient norm)}, with every bit."""
        found = {}
        for line in (self.folder / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            if "grad_norm" in record:
                found[record["step"]] = (record["loss"], record["grad_norm"])
        return found


def end(process):
    """Ends it, and gives what it had said. A launcher that is asked to end takes its ranks with it."""
    process.terminate()
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


class Runner:
    """ztrain on the parity deck, each run in a folder of its own."""

    def __init__(self, arguments):
        self.executable = arguments.build / "ztrain"
        self.out = arguments.out
        self.text = write_text(arguments.out / "parity.txt")
        self.mpirun = shutil.which("mpirun")

    def command(self, ranks, wrapper=()):
        """One rank needs no launcher."""
        if ranks == 1:
            return [*wrapper, str(self.executable)]
        launcher = [self.mpirun, "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        if os.geteuid() == 0:
            launcher.insert(1, "--allow-run-as-root")
        return [*launcher, *wrapper, str(self.executable)]

    def start(self, name, command, words, timeout, env=None):
        folder = self.out / name
        process = subprocess.Popen([*command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env={"OMP_NUM_THREADS": "1", **os.environ, **(env or {})})
        try:
            text, _ = process.communicate(timeout=timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            code, text = 124, end(process) + f"\nlonger than {timeout:.0f} s"
        (self.out / f"{name}.log").write_text(text)
        return Run(code, text, folder)

    def train(self, name, ranks=1, overrides=None, timeout=60, env=None, wrapper=()):
        """overrides: {"run.steps": 3}"""
        keys = {"data.train": json.dumps([str(self.text)]), "run.output": self.out / name, **(overrides or {})}
        words = [str(DECK), *(f"--{key}={value}" for key, value in keys.items())]
        return self.start(name, self.command(ranks, wrapper), words, timeout, env)

    def bench(self, name, deck, words, timeout=60):
        """The report too, where there is one."""
        report = self.out / f"{name}.json"
        run = self.start(name, self.command(1), ["bench", str(deck), "--json", str(report), *words], timeout)
        return run, json.loads(report.read_text()) if run.code == 0 else None


def largest_difference(expected, found):
    """Of the losses, relative; infinite where steps are missing."""
    if sorted(expected) != sorted(found) or not expected:
        return float("inf")
    return max(abs(found[s][0] - expected[s][0]) / abs(expected[s][0]) for s in expected)


def library(executable, pattern):
    """Path of a library that the executable is linked with, or ""."""
    listed = subprocess.run(["ldd", str(executable)], capture_output=True, text=True).stdout
    found = re.search(rf"{pattern}\S* => (\S+)", listed)
    return found.group(1) if found else ""
