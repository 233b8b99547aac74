#!/usr/bin/env python3
"""Smaller checks on this build's device:

    tools/acceptance/checks.py WHAT --build build/cuda --out FOLDER --gpus N

    determinism   the same run twice, and a run that is resumed: every bit of every loss and gradient norm
    memory        the peak that the device shows against what was planned, and what is outside of the plan
    graphs        the same losses with device.cuda_graphs = none, compute and step
    generate      20 tokens from a checkpoint, twice the same
    sanitizer     compute-sanitizer's memcheck and racecheck over two steps
"""
import math
import os
import pathlib
import re
import shutil

import runs

MIB = 2**20
GROWTH = 16 * MIB  # after the first step: what later ones load or let go
OUTSIDE = 3e9  # bytes of a rank: cluster.outside_memory of the decks for GPUs
ARENA_SLACK, ARENA_SHARE = 16 * MIB, 1e-3  # the larger one: pages of the driver
NCCL_SLACK = 2 * 512 * MIB  # what NCCL may round its two arenas up by, for NVLink's switches
SHORT = {"run.steps": 12, "schedule.warmup": 2}
TOKENS = 20
ONE_CHECK = 90  # seconds of compute-sanitizer
OURS = "ztrain"  # part of the mangled name of each kernel of ours; Kokkos' launches name our functors


def short(more=None):
    return {**SHORT, **(more or {})}


def same(checks, name, one, other):
    """Both runs ended well, and every bit of their steps is equal."""
    if not (checks.ended(name, one) and checks.ended(name, other)):
        return
    a, b = one.steps(), other.steps()
    different = [step for step in sorted(set(a) | set(b)) if a.get(step) != b.get(step)]
    checks.judge(bool(a) and not different, name,
                 f"{len(a)} steps" if not different else f"other bits first in step {different[0]}: "
                 f"{a.get(different[0])} and {b.get(different[0])}")


def rank_counts(runner, checks, name):
    return (1, 2) if checks.have_mpirun(f"{name}, 2 ranks", runner) else (1,)


def determinism(arguments, runner, checks):
    for ranks in rank_counts(runner, checks, "determinism"):
        more = {"sharding.strategy": "FULL_SHARD"}
        if ranks > 1 and arguments.gpus > 0:
            more["device.communicator"] = "mpi"
        first, again = (runner.train(f"{name}_{ranks}", ranks, short(more)) for name in ("first", "again"))
        same(checks, f"twice, {ranks} rank{'s' if ranks > 1 else ''}", first, again)
        resume(runner, checks, ranks, more, first)


def resume(runner, checks, ranks, more, straight):
    """Saves twice, loses the later checkpoint, and goes on from the earlier one."""
    name = f"resumed_{ranks}"
    shutil.rmtree(runner.out / name, ignore_errors=True)
    keys = short({**more, "checkpoint.interval": 6, "checkpoint.resume": "auto"})
    run = runner.train(name, ranks, keys)
    last = runner.out / name / "checkpoints" / "step_12"
    if run.code == 0 and last.is_dir():
        shutil.rmtree(last)
        run = runner.train(name, ranks, keys)
        if run.code == 0 and "step_6 (step 6," not in run.text:
            return checks.judge(False, name, "the run did not go on from step 6")
    same(checks, f"resume, {ranks} rank{'s' if ranks > 1 else ''}", straight, run)


def memory(arguments, runner, checks):
    decks = [(runs.DECK, ())]
    if arguments.gpus > 0:
        decks.append((runs.ROOT / "inputs" / "bench_0.5b.toml", ("--batch.micro=4", "--batch.global=16")))
    for ranks in rank_counts(runner, checks, "memory"):
        sharing = math.ceil(ranks / max(1, arguments.gpus))  # ranks of a GPU
        for deck, words in decks:
            name = f"{deck.stem} {ranks} rank{'s' if ranks > 1 else ''}"
            before = max(runs.smi("memory.used"), default=0) * MIB / sharing if arguments.gpus > 0 else 0
            run, report = runner.bench(f"memory_{deck.stem}_{ranks}", deck, ["--steps=4", "--warmup=1", *words], ranks=ranks)
            if checks.ended(name, run):
                judge_memory(checks, name, report["memory"], before, over_nccl=1 < ranks <= arguments.gpus)


def judge_memory(checks, name, m, before, over_nccl=False):
    """m: of a benchmark's report, in bytes. On GPUs planned, arenas, outside and peak are four figures: the plan's, and
    what the driver showed when the arenas were allocated, after the first step and at the most. before: bytes that others
    held of the GPU, a rank's share of them."""
    arenas = m["planned"] if m["arenas"] is None else m["arenas"]
    growth, outside = m["peak"] - arenas - m["outside"], m["outside"] - before
    good = m["peak"] > 0 and growth <= GROWTH and outside <= OUTSIDE
    text = f"outside {outside / MIB:.0f} MiB (bound {OUTSIDE / MIB:.0f}), after step 1 {growth / MIB:+.1f} (bound {GROWTH / MIB:.0f})"
    text += f"; arenas {m['planned'] / MIB:.0f}"
    if m["arenas"] is not None:
        slack = max(ARENA_SLACK, ARENA_SHARE * m["planned"]) + (NCCL_SLACK if over_nccl else 0)
        good &= abs(m["arenas"] - m["planned"]) <= slack
        text += f", measured {m['arenas'] / MIB:.0f} (bound {slack / MIB:.0f})"
    checks.judge(good, name, text)


def graphs(arguments, runner, checks):
    if arguments.gpus == 0:
        return checks.lack("graphs", "a build for CPUs has none")
    found = {how: runner.train(f"graphs_{how}", 1, short({"device.cuda_graphs": how}))
             for how in ("none", "compute", "step")}
    for how in ("compute", "step"):
        same(checks, f"cuda_graphs = {how}", found["none"], found[how])


def generate(arguments, runner, checks):
    name = "generate"
    shutil.rmtree(runner.out / name, ignore_errors=True)
    if not checks.ended(f"{name}: train", runner.train(name, 1, short({"checkpoint.interval": 12}))):
        return
    words = ["generate", str(runner.out / name / "checkpoints" / "step_12"), "--prompt", "ka lo", "--tokens", str(TOKENS), "--ids"]
    found = []
    for which in ("once", "again"):
        run = runner.start(f"{name}_{which}", runner.command(1), words, timeout=60)
        if not checks.ended(name, run):
            return
        ids = re.search(rf"^(?:\d+ ){{{TOKENS}}}", run.text, re.MULTILINE)  # the statistics may follow on the same line
        found.append(ids.group(0).split() if ids else [])
    checks.judge(found[0] == found[1] and len(found[0]) == TOKENS, name,
                 f"twice {' '.join(found[0])}" if found[0] == found[1] else f"{found[0]} and then {found[1]}")


def summary_of(run):
    lines = [line.strip("= ") for line in run.text.splitlines() if "SUMMARY" in line]
    return lines[-1] if lines else run.why()


def sanitizer(arguments, runner, checks):
    """Our kernels are judged; what is found in all of them, vendors' too, is only said."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if arguments.gpus == 0:
        return checks.lack("compute-sanitizer", "a build for CPUs")
    if not pathlib.Path(tool).exists():
        for check in ("memcheck", "racecheck"):
            checks.lack(check, f"there is no compute-sanitizer in PATH or in {pathlib.Path(tool).parent}")
        return None
    ours = ["--kernel-name", f"kns={OURS}"]
    # The tool looks at every kernel that is loaded; with one rank none need be loaded ahead.
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    for check, words in (("memcheck", ["--report-api-errors=no", *ours]), ("racecheck", ours), ("memcheck", [])):
        name = check if words else f"{check}, libraries too"
        run = runner.train(name.replace(", ", "_").replace(" ", "_"), 1,
                           {"run.steps": 2, "schedule.warmup": 0, "model.num_hidden_layers": 1, "batch.global": 2,
                            "device.cuda_graphs": "none"}, timeout=ONE_CHECK,
                           wrapper=[tool, f"--tool={check}", "--error-exitcode=99", *words])
        if run.code == 124:
            checks.skip(name, runs.NO_TIME if run.cut else f"two steps take longer than {ONE_CHECK} s under it")
        elif words or run.code == 0:
            checks.judge(run.code == 0 and "SUMMARY" in run.text, name, summary_of(run))
        else:
            checks.skip(name, f"not judged: {summary_of(run)}")


if __name__ == "__main__":
    runs.main_of(__doc__, {"determinism": determinism, "memory": memory, "graphs": graphs, "generate": generate,
                           "sanitizer": sanitizer})
