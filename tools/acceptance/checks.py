#!/usr/bin/env python3
"""Smaller checks on this build's device:

    tools/acceptance/checks.py WHAT --build build/cuda --out FOLDER --gpus N

    determinism   the same run twice, and a run that is resumed: every bit of every loss and gradient norm
    memory        the peak that the device shows against what was planned, and what is outside of the plan
    graphs        the same losses with device.cuda_graphs = none, compute and step
    bench         speed of the decks that fit, and of PyTorch where this python3 has it with CUDA
    sanitizer     compute-sanitizer's memcheck and racecheck over two steps
"""
import os
import pathlib
import shutil
import subprocess
import sys
import time

import runs

DECKS = ("bench_0.5b", "bench_1.5b", "bench_3b", "bench_7b")
PEER = runs.ROOT / "tools" / "bench" / "torch_gpu_peer.py"
PEAK_SLACK = 0.02  # of plan and outside together: what steps after the first load or let go
ARENA_SLACK = 2 * 2 * 2**20  # the driver gives out pages of 2 MiB, and there are two arenas
SHORT = {"run.steps": 12, "schedule.warmup": 2}


def short(more=None):
    return {**SHORT, **(more or {})}


def same(checks, name, one, other):
    """Both runs ended well, and every bit of their steps is equal."""
    for run in (one, other):
        if run.code != 0:
            return checks.judge(False, name, run.why())
    a, b = one.steps(), other.steps()
    different = [step for step in sorted(set(a) | set(b)) if a.get(step) != b.get(step)]
    checks.judge(bool(a) and not different, name,
                 f"{len(a)} steps" if not different else f"other bits first in step {different[0]}: "
                 f"{a.get(different[0])} and {b.get(different[0])}")


def rank_counts(runner, checks, name):
    if runner.mpirun:
        return (1, 2)
    checks.skip(f"{name}, 2 ranks", "there is no mpirun")
    return (1,)


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
        decks.append((runs.ROOT / "inputs" / "bench_0.5b.toml", ("--batch.global=16",)))
    for deck, words in decks:
        run, report = runner.bench(f"memory_{deck.stem}", deck, ["--steps=2", "--warmup=1", *words])
        if run.code != 0:
            checks.judge(False, deck.stem, run.why())
            continue
        judge_memory(checks, deck.stem, report["memory"])


def judge_memory(checks, name, m):
    """m: of a benchmark's report, in bytes. On GPUs planned, arenas, outside and peak are four figures: the plan's, and
    what the driver showed when the arenas were allocated, after the first step and at the most."""
    planned = m["planned"] + m["outside"]
    good = 0 < m["peak"] <= (1 + PEAK_SLACK) * planned
    text = f"peak {m['peak'] / 2**20:.0f} MiB of {planned / 2**20:.0f} MiB: arenas {m['planned'] / 2**20:.0f}"
    if m["arenas"] is not None:
        good &= m["peak"] >= (1 - PEAK_SLACK) * planned and abs(m["arenas"] - m["planned"]) <= ARENA_SLACK
        text += f" (measured {m['arenas'] / 2**20:.0f})"
    checks.judge(good, name, f"{text}, outside {m['outside'] / 2**20:.0f}")


def graphs(arguments, runner, checks):
    if arguments.gpus == 0:
        return checks.skip("graphs", "a build for CPUs has none")
    found = {how: runner.train(f"graphs_{how}", 1, short({"device.cuda_graphs": how}))
             for how in ("none", "compute", "step")}
    for how in ("compute", "step"):
        same(checks, f"cuda_graphs = {how}", found["none"], found[how])


def torch_with_cuda():
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 3)"
    try:
        return subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def speed_text(report):
    mfu = f"MFU {100 * report['mfu']:.1f}%" if report["mfu"] else "MFU not known"
    ceiling = report["ceiling"]
    return (f"{report['tokens_per_s']:.0f} tokens/s, {report['tflops']['model']:.3g} TFLOP/s, {mfu}, "
            f"{100 * (ceiling['share'] or 0):.1f}% of {ceiling['tflops']:.3g} measured")


def bench(arguments, runner, checks):
    """Each deck as long as there is time: a step of the largest takes seconds."""
    end = time.monotonic() + float(os.environ.get("ZTRAIN_ACCEPTANCE_SECONDS", "120"))
    decks = [runs.DECK] if arguments.gpus == 0 else [runs.ROOT / "inputs" / f"{d}.toml" for d in DECKS]
    peer = arguments.gpus > 0 and torch_with_cuda()
    if not peer:
        checks.skip("PyTorch", "this python3 has none that sees a GPU")
    for deck in decks:
        if end - time.monotonic() < 15:
            checks.skip(deck.stem, "no time is left for it")
            continue
        run, report = runner.bench(deck.stem, deck, ["--steps=4", "--warmup=2", "--kernels"],
                                   timeout=end - time.monotonic())
        if run.code != 0:
            checks.judge(False, deck.stem, run.why())
            continue
        print(run.text, flush=True)
        checks.judge(report["tokens_per_s"] > 0, deck.stem, speed_text(report))
        if peer and end - time.monotonic() > 40:
            beside_torch(runner, checks, deck.stem, end - time.monotonic())


def beside_torch(runner, checks, name, timeout):
    command = [sys.executable, str(PEER), str(runner.out / f"{name}.json"), "--steps=4", "--warmup=2"]
    run = runner.start(f"torch_{name}", command, ["--json", str(runner.out / f"torch_{name}.json")], timeout)
    line = [text for text in run.text.splitlines() if text.startswith(("tokens/s", "ztrain over"))]
    # The peer's failures are not ztrain's.
    if run.code == 0:
        checks.say("PASS", f"PyTorch {name}", "; ".join(line))
    else:
        checks.skip(f"PyTorch {name}", run.why())


def sanitizer(arguments, runner, checks):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if arguments.gpus == 0 or not pathlib.Path(tool).exists():
        return checks.skip("compute-sanitizer", "a build for CPUs" if arguments.gpus == 0 else "it is not installed")
    for check in ("memcheck", "racecheck"):
        run = runner.train(check, 1, short({"run.steps": 2, "schedule.warmup": 0, "model.num_hidden_layers": 1,
                                            "batch.global": 2}), timeout=55,
                           wrapper=[tool, f"--tool={check}", "--error-exitcode=99"])
        summary = [line for line in run.text.splitlines() if "SUMMARY" in line]
        if run.code == 124:
            checks.skip(check, "two steps take longer than 55 s under it")
        else:
            checks.judge(run.code == 0, check, summary[-1].strip("= ") if summary else run.why())


WHAT = {"determinism": determinism, "memory": memory, "graphs": graphs, "bench": bench, "sanitizer": sanitizer}


def main():
    arguments = runs.arguments_of(__doc__, [("what", {"choices": sorted(WHAT)})])
    checks = runs.Checks()
    WHAT[arguments.what](arguments, runs.Runner(arguments), checks)
    checks.exit()


if __name__ == "__main__":
    main()
