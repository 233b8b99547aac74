"""Starts ztrain for the acceptance checks and reads what it leaves. Standard library alone.

Every check is one line on stdout, "PASS name: detail", or FAIL, SKIP (it did not run) or LACK (there is nothing here to
run it on): phases.py collects them. What the time of a phase (ZTRAIN_ACCEPTANCE_SECONDS) cuts off is skipped; what takes
longer than it ever may has failed.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DECK = ROOT / "tests" / "regress" / "acceptance" / "parity.toml"
NO_TIME = "no time is left for it"
NO_MPIRUN = "there is no mpirun in PATH, so nothing runs on several ranks: load the MPI library that ztrain was built with"
LEAST = 5  # seconds: what has less is not started


class Clock:
    """The time that all checks of this phase have together."""

    def __init__(self):
        self.end = time.monotonic() + float(os.environ.get("ZTRAIN_ACCEPTANCE_SECONDS", "1e9"))

    def left(self):
        return self.end - time.monotonic()


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

    def lack(self, name, why):
        self.say("LACK", name, why)

    def have_mpirun(self, name, runner):
        """Whether there is one. What a build is for, several ranks, has failed where there is none."""
        if not runner.mpirun:
            self.judge(False, name, NO_MPIRUN)
        return bool(runner.mpirun)

    def judge_notes(self, name, report):
        """A benchmark's report: slow ways of 16-bit products and attention are warnings in it."""
        slow = [f"{note['what']}: {note['text']}" for note in report["notes"] if note["warning"]]
        self.judge(not slow, f"{name}, slow ways", "; ".join(slow) or "none")

    def ended(self, name, run):
        """Whether the run ended well; says why not."""
        if run.cut:
            self.skip(name, NO_TIME)
        elif run.code != 0:
            self.judge(False, name, run.why())
        return run.code == 0

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
    arguments.build, arguments.out = arguments.build.resolve(), arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def main_of(text, what):
    """A script with one check for each word of what: {word: function(arguments, runner, checks)}."""
    arguments = arguments_of(text, [("what", {"choices": sorted(what)})])
    checks = Checks()
    what[arguments.what](arguments, Runner(arguments), checks)
    checks.exit()


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
    """cut: the phase's time, not the run's own limit, ended it or kept it from starting."""

    def __init__(self, code, text, folder, cut=False):
        self.code, self.text, self.folder, self.cut = code, text, folder, cut

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
        self.clock = Clock()
        self.executable = arguments.build / "ztrain"
        self.out = arguments.out
        self.text = write_text(arguments.out / "parity.txt")
        self.mpirun = shutil.which("mpirun")

    def command(self, ranks, wrapper=(), executable=None):
        """One rank needs no launcher."""
        program = str(executable or self.executable)
        if ranks == 1:
            return [*wrapper, program]
        launcher = [self.mpirun, "-np", str(ranks)]
        if "Open MPI" in subprocess.getoutput(f"{self.mpirun} --version"):
            launcher += ["--oversubscribe", "--bind-to", "none"]
            if os.geteuid() == 0:
                launcher.append("--allow-run-as-root")
        return [*launcher, *wrapper, program]

    def start(self, name, command, words, timeout, env=None):
        folder = self.out / name
        left = self.clock.left()
        if left < LEAST:
            return Run(124, NO_TIME, folder, cut=True)
        limit = min(timeout, left)
        process = subprocess.Popen([*command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env={"OMP_NUM_THREADS": "1", **os.environ, **(env or {})}, cwd=ROOT)
        cut = False
        try:
            text, _ = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            code, text, cut = 124, end(process) + f"\nlonger than {limit:.0f} s", left < timeout
        (self.out / f"{name}.log").write_text(text)
        return Run(code, text, folder, cut)

    def train(self, name, ranks=1, overrides=None, timeout=60, env=None, wrapper=()):
        """overrides: {"run.steps": 3}"""
        keys = {"data.train": json.dumps([str(self.text)]), "run.output": self.out / name, **(overrides or {})}
        words = [str(DECK), *(f"--{key}={value}" for key, value in keys.items())]
        return self.start(name, self.command(ranks, wrapper), words, timeout, env)

    def bench(self, name, deck, words, timeout=60, ranks=1, env=None):
        """The report too, where there is one."""
        report = self.out / f"{name}.json"
        run = self.start(name, self.command(ranks), ["bench", str(deck), "--json", str(report), *words], timeout,
                         env)
        return run, json.loads(report.read_text()) if run.code == 0 else None


def library(executable, pattern):
    """Path of a library that the executable is linked with, or ""."""
    listed = subprocess.run(["ldd", str(executable)], capture_output=True, text=True).stdout
    found = re.search(rf"{pattern}\S* => (/\S+)", listed)
    return found.group(1) if found else ""


def smi(field):
    """A field of nvidia-smi's, of each GPU; empty where that is not known."""
    try:
        text = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"], capture_output=True,
                              text=True, timeout=20).stdout
        return [float(line) for line in text.splitlines()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
