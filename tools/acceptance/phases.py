#!/usr/bin/env python3
"""Runs the phases of the acceptance one after the other, and says what became of each.

    tools/acceptance/phases.py --build build/cuda --out FOLDER --gpus N [--only PHASES] [--without PHASES]

A phase is a script that prints a line for each of its checks: PASS, FAIL, SKIP (it did not run) or LACK (this machine, or
the build, has nothing to run it on), then "name: detail". Each phase has checks that it must not end without: unless
they pass, or lack what they need, the phase has failed, whatever else it did. So what there was no time for is no success.
What --without names is left out, and named in the table; with --only the rest is.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
LEAST = 10  # seconds: what has less is not started
GRACE = 10  # seconds that a script has to end what it started
LINE = re.compile(r"^(PASS|FAIL|SKIP|LACK) (.+?): (.*)$")


@dataclass
class Phase:
    """until: the second of the whole by which it ends: what earlier ones left over is the later ones'. required:
    regular expressions, of whole names of checks."""
    name: str
    until: int
    command: list
    required: tuple


@dataclass
class Verdict:
    phase: str
    verdict: str
    name: str
    detail: str


def script(name, *what):
    return [sys.executable, "-B", str(HERE / f"{name}.py"), *what]


# The most important phase is first. A phase ends at its second of MINUTES; --minutes scales the ends behind FIRST.
MINUTES = 28
FIRST = 135  # seconds that are not scaled
FACTS = Phase("facts", 15, script("facts"), ("executable", "nvidia-smi"))
LIBRARIES = Phase("libraries", 45, script("libraries"), ("linked", "cuDNN's parts", "NVRTC", "two ranks"))
PHASES = [
    FACTS,
    LIBRARIES,
    Phase("first", 135, script("first"), ("a kernel", "a product", "attention", "three steps", r"bench_0\.5b, first")),
    Phase("unit", 350, script("tests", "unit"),
          ("unit_kernels_heavy", "unit_kernels_attention", "unit_kernels_attention_plain", "unit_kernels_head_loss",
           "unit_kernels_light", "unit_kernels_optimizer")),
    Phase("steps", 470, script("tests", "steps"), ("mpi_gradients", "mpi_asynchronous", "mpi_strategies")),
    Phase("parity", 700, script("parity"),
          ("fp32 zero0 1 rank", "bf16 FULL_SHARD 1 rank", "documents FULL_SHARD 1 rank",
           "(bf16( short)? FULL_SHARD 2 ranks.*|2 and more ranks)")),
    Phase("attention", 750, script("attention"),
          ("packed documents", "packed documents of 1000", "length 1000", "length 2048", "packed documents, the way",
           "packed documents of 1000, the way", "length 1000, the way", "length 2048, the way")),
    Phase("nccl", 850, script("nccl"),
          ("tests, 1 rank", "groups of one rank", "a graph of the step", "ranks on one GPU")),
    Phase("graphs", 890, script("checks", "graphs"), ("cuda_graphs = compute", "cuda_graphs = step")),
    Phase("determinism", 940, script("checks", "determinism"), ("twice, 1 rank", "resume, 1 rank")),
    Phase("memory", 1000, script("checks", "memory"), (r"parity 1 rank", r"bench_0\.5b 1 rank")),
    Phase("bench", 1180, script("speed", "bench"), (r"bench_0\.5b", r"bench_0\.5b, slow ways", "bench_7b")),
    Phase("late", 1300, script("tests", "late"), ("unit_kernels_heavy, late", "unit_kernels_attention_plain, late")),
    Phase("sanitizer", 1470, script("checks", "sanitizer"), ("memcheck", "racecheck")),
    Phase("fp8", 1590, script("speed", "fp8"), ("bench_7b fp8",)),
    Phase("generate", 60 * MINUTES, script("checks", "generate"), ("generate",)),
]
# Phases of --node, which run instead of PHASES.
NODE = [
    FACTS,
    LIBRARIES,
    Phase("pipelines", 300, script("node", "pipelines"), (".*, 2 stages", ".*, 4 stages")),
    Phase("published", 660, script("node", "published"), ("7B on .*", "8B on .*")),
    Phase("nvls", 1120, script("node", "nvls"), ("NVLS as NCCL chooses", "NVLS off", "arenas not registered")),
    Phase("connected", 60 * MINUTES, script("node", "connected"), ("outside, FULL_SHARD", "outside, pipeline of 4")),
]


class Log:
    """What a script prints: seen at once, and kept."""

    def __init__(self, path):
        self.path, self.lines = path, []

    def read(self, stream):
        with open(self.path, "w") as file:
            for line in stream:
                self.lines.append(line.rstrip("\n"))
                file.write(line)
                print(line, end="", flush=True)


def end(process):
    """All that it started too. A launcher that is asked to end takes its ranks with it, on all nodes; one that is killed may
    leave them."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(GRACE)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue


def start(command, limit, log, environment):
    """The exit status; None where it was cut off."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", env={**os.environ, **environment}, start_new_session=True)
    reader = threading.Thread(target=log.read, args=(process.stdout,), daemon=True)
    reader.start()
    code = None
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        end(process)
    except BaseException:  # Ctrl-C, or the job's end: the phase is in a session of its own
        end(process)
        raise
    reader.join(GRACE)
    if not reader.is_alive():
        process.stdout.close()
    return code


def verdicts_of(phase, lines):
    found = map(LINE.match, lines)
    return [Verdict(phase.name, *match.groups()) for match in found if match]


def missing(phase, found):
    """A failure for each check that the phase must not end without."""
    failures = []
    for wanted in phase.required:
        told = [v for v in found if re.fullmatch(wanted, v.name)]
        if any(v.verdict in ("PASS", "LACK", "FAIL") for v in told):
            continue
        why = next((v.detail for v in told), None) or next((v.detail for v in found if v.name == "phase"), "nothing was said of it")
        failures.append(Verdict(phase.name, "FAIL", f"required: {wanted}", f"did not run: {why}"))
    return failures


def run_phase(phase, left, arguments, environment):
    """Its verdicts. left: seconds."""
    if left < LEAST:
        none = [Verdict(phase.name, "SKIP", "phase", "no time is left for it")]
        return none + missing(phase, none)
    print(f"== {phase.name} (at most {left:.0f} s)", flush=True)
    log = Log(arguments.out / f"{phase.name}.log")
    words = [] if arguments.plain else ["--build", str(arguments.build), "--out", str(arguments.out / "runs"),
                                        "--gpus", str(arguments.gpus)]
    begin = time.monotonic()
    code = start([*phase.command, *words], left, log, {**environment, "ZTRAIN_ACCEPTANCE_SECONDS": str(left - LEAST / 2)})
    found = verdicts_of(phase, log.lines)
    if code is None:
        found.append(Verdict(phase.name, "SKIP", "phase", f"cut off after {left:.0f} s"))
    elif code != 0 and not any(v.verdict == "FAIL" for v in found):
        found.append(Verdict(phase.name, "FAIL", "phase", f"exit status {code}; see {log.path}"))
    print(f"   {time.monotonic() - begin:.0f} s", flush=True)
    return found + missing(phase, found)


def named(text):
    return [word for word in (text or "").split(",") if word]


def of_cpus(phase):
    """A build for CPUs has few of the checks: it must have said something."""
    return Phase(phase.name, phase.until, phase.command, (".*",))


def end_of(phase, total):
    """The second by which a phase ends: what comes first takes as long however long the whole may."""
    if phase.until <= FIRST:
        return phase.until
    return FIRST + (phase.until - FIRST) * (total - FIRST) / (60 * MINUTES - FIRST)


def run(phases, arguments, environment=None):
    """All verdicts, in order."""
    total = 60 * getattr(arguments, "minutes", MINUTES)
    only, without = named(arguments.only), named(arguments.without)
    unknown = set(only + without) - {p.name for p in phases}
    if unknown:
        sys.exit(f"gpu_acceptance.sh: there is no phase {', '.join(sorted(unknown))}: the phases are "
                 f"{', '.join(p.name for p in phases)}")
    begin, found = time.monotonic(), []
    for phase in phases if arguments.gpus > 0 or arguments.plain else map(of_cpus, phases):
        if phase.name in without or (only and phase.name not in only):
            how = "--without" if phase.name in without else "--only"
            found.append(Verdict(phase.name, "OUT", "phase", f"left out by {how}"))
        else:
            found += run_phase(phase, end_of(phase, total) - (time.monotonic() - begin), arguments, environment or {})
        # At once: whoever ends this from outside loses no verdict.
        (arguments.out / "table.txt").write_text(f"{table(found)}\n{summary(found)}\n")
    return found


def table(verdicts):
    rows = [f"{v.phase:<12} {v.verdict:<8} {v.name}: {v.detail}"[:200] for v in verdicts]
    return "\n".join([f"{'phase':<12} {'verdict':<8} check", *rows])


def summary(verdicts):
    def count(verdict):
        return sum(v.verdict == verdict for v in verdicts)
    out = sorted({v.phase for v in verdicts if v.verdict == "OUT"})
    text = (f"{count('PASS')} passed, {count('FAIL')} failed, {count('SKIP')} did not run, "
            f"{count('LACK')} have nothing here to run on")
    return text + (f"; this is no whole acceptance: without {', '.join(out)}" if out else "")


def succeeded(verdicts):
    return any(v.verdict == "PASS" for v in verdicts) and not any(v.verdict == "FAIL" for v in verdicts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--gpus", type=int, required=True, help="0: a build for CPUs")
    parser.add_argument("--only", help="these phases alone")
    parser.add_argument("--without", help="all phases but these")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"that the whole takes at most; default: {MINUTES}")
    parser.add_argument("--node", action="store_true", help="what a node of several GPUs shows")
    parser.set_defaults(plain=False)
    arguments = parser.parse_args()
    if not FIRST / 60 < arguments.minutes < float("inf"):
        sys.exit(f"gpu_acceptance.sh: --minutes needs a number above {FIRST / 60}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that start() ends what it began
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"gpu_acceptance.sh: --out {arguments.out} cannot be made: {error.strerror}")
    # Algorithms of products are measured anew, and kept for the runs to come.
    cache = arguments.out.resolve() / "cache"
    cache.mkdir(exist_ok=True)
    begin = time.monotonic()
    verdicts = run(NODE if arguments.node else PHASES, arguments, {"XDG_CACHE_HOME": str(cache)})
    print(f"\n{table(verdicts)}\n{summary(verdicts)}; {time.monotonic() - begin:.0f} s; logs in {arguments.out}")
    sys.exit(0 if succeeded(verdicts) else 1)


if __name__ == "__main__":
    main()
