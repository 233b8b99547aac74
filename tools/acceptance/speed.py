#!/usr/bin/env python3
"""Speed on this build's device:

    tools/acceptance/speed.py WHAT --build build/cuda --out FOLDER --gpus N

    bench   the decks of one GPU, the largest first, what device.deterministic costs, and PyTorch beside them where this
            python3 has it with CUDA
    fp8     the largest deck in bf16 and with 8-bit products, at the same batch
"""
import fnmatch
import json
import subprocess
import sys

import runs

INPUTS = runs.ROOT / "inputs"
DECKS = ("bench_7b", "bench_0.5b", "bench_1.5b", "bench_3b")
DECK_MEMORY = 80e9  # bytes of the GPU that these decks are made for: cluster.device_memory
PEER = runs.ROOT / "tools" / "bench" / "torch_gpu_peer.py"
# Device, as ztrain's table of peaks (config/fields/presets.cpp) knows it; deck, sequence, MFU that is wanted.
MFU = [(device, deck, 1024, mfu) for device in ("*H100*HBM3*", "*H200")
       for deck, mfu in (("bench_0.5b", 0.55), ("bench_1.5b", 0.62), ("bench_3b", 0.65), ("bench_7b", 0.65))]
MFU_FAILS = 0.5  # of what is wanted: less is no matter of tuning
# Both fit 80 GB by `ztrain plan`: 67.2 and 74.0 GB, and 3 GB outside.
FP8_WORDS = ("--batch.micro=2", "--batch.global=16")
FP8_GAIN = 1.3
ONE_BENCH, LEAST_PEER = 120, 40  # seconds


def torch_with_cuda():
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 3)"
    try:
        return subprocess.run([sys.executable, "-c", probe], capture_output=True, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def ceiling_text(ceiling):
    if ceiling["tflops"] is None or ceiling["share"] is None:
        return "largest product not measured"
    return f"{100 * ceiling['share']:.1f}% of {ceiling['tflops']:.3g} measured"


def speed_text(report):
    mfu = f"MFU {100 * report['mfu']:.1f}%" if report["mfu"] else "MFU not known"
    if report["fp8_mfu"]:
        mfu += f", {100 * report['fp8_mfu']:.1f}% of the fp8 peak"
    return (f"{report['tokens_per_s']:.0f} tokens/s, {report['tflops']['model']:.3g} TFLOP/s, {mfu}, "
            f"{ceiling_text(report['ceiling'])}")


def wanted_mfu(name, report):
    """None where nothing was set for this device, deck and sequence."""
    for device, deck, sequence, mfu in MFU:
        if fnmatch.fnmatchcase(report["device"], device) and (deck, sequence) == (name, report["sequence"]):
            return mfu
    return None


def judge_speed(checks, name, report):
    wanted, found = wanted_mfu(name, report), report["mfu"] or 0
    good, text = report["tokens_per_s"] > 0, speed_text(report)
    if wanted:
        good &= found >= MFU_FAILS * wanted
        text += f"; MFU of {100 * wanted:.0f}% {'reached' if found >= wanted else 'NOT reached'}"
    checks.judge(good, name, text)


def fits(checks, name):
    """Decks for 80 GB need no excuse on a GPU that has them."""
    memory = runs.smi("memory.total")  # MiB
    if memory and min(memory) * 2**20 < DECK_MEMORY:
        checks.lack(name, f"made for a GPU of {DECK_MEMORY / 1e9:.0f} GB; this one has {min(memory) * 2**20 / 1e9:.0f}")
        return False
    return True


def bench(arguments, runner, checks):
    """Each deck as long as there is time: a step of the largest takes seconds."""
    decks = [runs.DECK] if arguments.gpus == 0 else [INPUTS / f"{d}.toml" for d in DECKS if fits(checks, d)]
    measured = []
    for deck in decks:
        run, report = runner.bench(deck.stem, deck, ["--steps=4", "--warmup=2", "--kernels"], ONE_BENCH)
        if not checks.ended(deck.stem, run):
            continue
        print(run.text, flush=True)
        judge_speed(checks, deck.stem, report)
        checks.judge_notes(deck.stem, report)
        measured.append(deck.stem)
    if arguments.gpus > 0 and DECKS[1] in measured:
        deterministic(runner, checks)
    beside_torch(arguments, runner, checks, measured)


def deterministic(runner, checks):
    """What sums of attention's backward in a fixed order cost; the decks leave the order open, as PyTorch does."""
    name = f"{DECKS[1]}, deterministic"
    words = ["--steps=4", "--warmup=2", "--device.deterministic=true"]
    run, report = runner.bench(f"{DECKS[1]}_deterministic", INPUTS / f"{DECKS[1]}.toml", words, ONE_BENCH)
    if checks.ended(name, run):
        free = json.loads((runner.out / f"{DECKS[1]}.json").read_text())["tokens_per_s"]
        checks.judge(report["tokens_per_s"] > 0, name,
                     f"{speed_text(report)}; {report['tokens_per_s'] / free:.3f} of the speed without")


def beside_torch(arguments, runner, checks, names):
    if arguments.gpus == 0 or not torch_with_cuda():
        return checks.lack("PyTorch", "this python3 has none that sees a GPU")
    for name in names:
        if runner.clock.left() < LEAST_PEER:
            checks.skip(f"PyTorch {name}", runs.NO_TIME)
        else:
            peer(runner, checks, name)


def peer(runner, checks, name):
    command = [sys.executable, str(PEER), str(runner.out / f"{name}.json"), "--steps=4", "--warmup=2"]
    run = runner.start(f"torch_{name}", command, ["--json", str(runner.out / f"torch_{name}.json")], ONE_BENCH)
    line = [text for text in run.text.splitlines() if text.startswith(("tokens/s", "ztrain over"))]
    # The peer's failures are not ztrain's.
    if run.code == 0:
        checks.say("PASS", f"PyTorch {name}", "; ".join(line))
    else:
        checks.skip(f"PyTorch {name}", run.why())


def fp8(arguments, runner, checks):
    name = "bench_7b fp8"
    if arguments.gpus == 0:
        return checks.lack(name, "a build for CPUs")
    if min(runs.smi("compute_cap") or [0]) < 8.9:
        return checks.lack(name, "this GPU has no 8-bit products")
    if not fits(checks, name):
        return
    found = {}
    for how in ("none", "tensorwise"):
        words = ["--steps=3", "--warmup=2", *FP8_WORDS, f"--precision.fp8={how}"]
        run, found[how] = runner.bench(f"bench_7b_fp8_{how}", INPUTS / "bench_7b.toml", words, ONE_BENCH)
        if not checks.ended(f"{name} = {how}", run):
            return
        checks.judge(found[how]["tokens_per_s"] > 0, f"{name} = {how}", speed_text(found[how]))
        checks.judge_notes(f"{name} = {how}", found[how])
    gain = found["tensorwise"]["tokens_per_s"] / found["none"]["tokens_per_s"]
    checks.judge(gain >= FP8_GAIN, name, f"{gain:.2f} times bf16 at the same batch (bound {FP8_GAIN})")


if __name__ == "__main__":
    runs.main_of(__doc__, {"bench": bench, "fp8": fp8})
