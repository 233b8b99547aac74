#!/usr/bin/env python3
"""Trains the same model with PyTorch's FSDP2 and with ztrain on this machine's CPUs, in turns, and prints the ratio.

Both sides: a Llama-shaped model, fully sharded, AdamW, gradient clipping at 1.0, the same token file, micro-batches and
ranks; fp32, and bf16 parameters with gradients reduced in fp32. PyTorch runs with the settings that a short calibration
finds fastest. Speed is tokens per second of the median step after the warm-up; the sides alternate, so that a drift of
the machine meets both. Memory is each process's peak resident set (VmHWM, or ru_maxrss as seen by the parent).

    tools/bench/against_torch.py --python /path/to/python-with-torch
    tools/bench/against_torch.py --only torch            no ztrain needed
"""
import argparse
import array
import json
import math
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = pathlib.Path(__file__).with_name("torch_peer.py")
# Runs a command and writes its ru_maxrss, in bytes, to the file named with the rank that Open MPI sets.
PEAK_OF = ("import os,resource,subprocess,sys;"
           "code=subprocess.call(sys.argv[2:]);"
           "peak=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024;"
           "open(sys.argv[1]+os.environ.get('OMPI_COMM_WORLD_RANK','0'),'w').write(str(peak));"
           "sys.exit(code if code>=0 else 1)")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--python", default=sys.executable, help="interpreter that has PyTorch (default: this one)")
    add("--ztrain", type=pathlib.Path, default=ROOT / "build/cpu/ztrain")
    add("--only", choices=["torch", "ztrain"], help="run one side")
    add("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    add("--ranks", type=int, default=2)
    add("--warmup", type=int, default=2, help="steps before the measured ones, in every round")
    add("--steps", type=int, default=5, help="measured steps in every round")
    add("--rounds", type=int, default=2, help="how often the sides take turns")
    add("--settings", metavar="THREADS:ADAMW",
        help="PyTorch's settings, for example 1:fused, instead of the calibration; 0 threads: its default")
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="a key of ztrain's deck; may be repeated")
    add("--compile", action="store_true", help="let the calibration try torch.compile as well")
    add("--timeout", type=float, default=1800, help="seconds for one run of one side")
    add("--json", type=pathlib.Path, help="also write the results to this file")
    for name, value in (("hidden", 768), ("layers", 12), ("heads", 12), ("intermediate", 2048), ("vocab", 10240),
                        ("sequence", 512), ("micro", 4)):
        add("--" + name, type=int, default=value)
    return parser.parse_args()


def shape_of(arguments):
    return {name: getattr(arguments, name)
            for name in ("hidden", "layers", "heads", "intermediate", "vocab", "sequence", "micro")}


def parameters_of(s):
    block = 4 * s["hidden"] ** 2 + 3 * s["hidden"] * s["intermediate"] + 2 * s["hidden"]
    return 2 * s["vocab"] * s["hidden"] + s["layers"] * block + s["hidden"]


def write_tokens(path, arguments):
    """Random tokens, enough that no sequence is seen twice."""
    count = (arguments.warmup + arguments.steps + 1) * arguments.ranks * arguments.micro * arguments.sequence + 1
    generator = random.Random(1)
    array.array("H", generator.choices(range(arguments.vocab), k=count)).tofile(open(path, "wb"))


def has_torch(python):
    probe = subprocess.run([python, "-c", "import numpy, torch; from torch.distributed.fsdp import fully_shard"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        reason = (probe.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"PyTorch is not installed: {python}: {reason}\n"
              "  python3 -m venv ENV && ENV/bin/pip install torch numpy, then --python ENV/bin/python; skipped")
    return probe.returncode == 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_torch(arguments, folder, precision, threads, adamw, compiled, warmup, steps):
    """Starts one process per rank; returns what rank 0 reports, or None when the run failed."""
    settings = {**shape_of(arguments), "data": str(folder / "tokens.bin"), "precision": precision, "adamw": adamw,
                "threads": threads, "compile": compiled, "warmup": warmup, "steps": steps, "lr": 3e-4}
    file = folder / "peer.json"
    file.write_text(json.dumps(settings))
    environment = {**os.environ, "WORLD_SIZE": str(arguments.ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(free_port()), "CUDA_VISIBLE_DEVICES": ""}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.pop(name, None)
    logs = [open(folder / f"peer.{rank}.log", "w+") for rank in range(arguments.ranks)]
    ranks = [subprocess.Popen([arguments.python, str(PEER), str(file)], env={**environment, "RANK": str(rank)},
                              stdout=logs[rank], stderr=subprocess.STDOUT) for rank in range(arguments.ranks)]
    try:
        for process in ranks:
            process.wait(arguments.timeout)
    except subprocess.TimeoutExpired:
        print(f"  PyTorch ran longer than {arguments.timeout:.0f} s")
    for process in ranks:
        process.kill()
        process.wait()
    for log in logs:
        log.seek(0)
    texts = [log.read() for log in logs]
    for log in logs:
        log.close()
    found = [line for line in texts[0].splitlines() if line.startswith("RESULT ")]
    if not found:
        print("  PyTorch failed:\n    " + "\n    ".join(texts[0].strip().splitlines()[-12:]))
        return None
    return json.loads(found[0][len("RESULT "):])


def calibrate(arguments, folder, precision):
    """The fastest of PyTorch's settings (threads, adamw, compiled), each tried for two steps."""
    if arguments.settings:
        threads, adamw = arguments.settings.split(":")
        return int(threads), adamw, arguments.compile
    choices = [(1, "fused", False), (1, "foreach", False), (0, "fused", False)]
    if arguments.compile:
        choices.append((1, "fused", True))
    best, fastest = choices[0], math.inf
    for threads, adamw, compiled in choices:
        result = run_torch(arguments, folder, precision, threads, adamw, compiled, 1, 2)
        if result is None:
            continue
        step = min(result["seconds"])
        print(f"  calibration {precision}: {name_of(threads, adamw, compiled):34s} {step:7.2f} s a step", flush=True)
        if step < fastest:
            best, fastest = (threads, adamw, compiled), step
    return best


def name_of(threads, adamw, compiled):
    count = "default threads" if threads == 0 else f"{threads} thread{'s' if threads > 1 else ''}"
    return f"{count}, {adamw} AdamW{', compiled' if compiled else ''}"


def write_deck(arguments, folder, precision):
    s = shape_of(arguments)
    path = folder / f"ztrain_{precision}.toml"
    path.write_text(f"""
[run]
steps = {arguments.warmup + arguments.steps}
[data]
train = ["tokens.bin"]
validation_fraction = 0
format = "bin-uint16"
sequence = {s["sequence"]}
[model]
hidden_size = {s["hidden"]}
intermediate_size = {s["intermediate"]}
num_hidden_layers = {s["layers"]}
num_attention_heads = {s["heads"]}
vocab_size = {s["vocab"]}
[batch]
global = {s["micro"] * arguments.ranks}
micro = {s["micro"]}
[sharding]
strategy = "FULL_SHARD"
[precision]
preset = "{precision}"
[optimizer]
lr = 3e-4
betas = [0.9, 0.95]
weight_decay = 0.1
max_norm = 1.0
[schedule]
name = "constant"
[checkpoint]
resume = "none"
""")
    return path


def run_ztrain(arguments, folder, precision):
    """The same facts as run_torch, from metrics.jsonl, and the medians of the parts of a step."""
    output = folder / "ztrain"
    shutil.rmtree(output, ignore_errors=True)
    cores = len(os.sched_getaffinity(0))
    command = ["mpirun", "-np", str(arguments.ranks), "--oversubscribe",
               "--bind-to", "core" if cores >= max(2, arguments.ranks) else "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    peaks = folder / "peak."
    command += [sys.executable, "-c", PEAK_OF, str(peaks), str(arguments.ztrain.resolve()),
                str(write_deck(arguments, folder, precision)), f"--run.output={output}"]
    command += [f"--{setting}" for setting in arguments.set]
    log = folder / "ztrain.log"
    with open(log, "w") as file:
        try:
            code = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=file, stderr=file,
                                  stdin=subprocess.DEVNULL, timeout=arguments.timeout).returncode
        except subprocess.TimeoutExpired:
            code = -1
    if code != 0:
        print("  ztrain failed:\n    " + "\n    ".join(log.read_text().strip().splitlines()[-12:]))
        return None
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "seconds" in line][arguments.warmup:]
    parts = {key: statistics.median(step["seconds"].get(key, 0.0) for step in steps) for key in steps[0]["seconds"]}
    seconds = [step["seconds"]["total"] for step in steps]   # without saves, of which there is one, at the end
    shutil.rmtree(output)
    return {"seconds": seconds, "loss": steps[-1]["loss"], "parts": parts,
            "peak_bytes": [int(p.read_text()) for p in sorted(folder.glob("peak.*"))]}


def merge(results):
    """Several rounds of one side as one: all steps, the largest memory."""
    results = [r for r in results if r]
    if not results:
        return None
    return {**results[-1], "seconds": [s for r in results for s in r["seconds"]],
            "peak_bytes": [max(p) for p in zip(*(r["peak_bytes"] for r in results))]}


def print_table(arguments, merged, chosen):
    tokens = arguments.ranks * arguments.micro * arguments.sequence
    print(f"\n{'precision':10s}{'who':9s}{'tokens/s':>10s}{'ratio':>8s}{'step s':>9s}{'fastest':>9s}{'slowest':>9s}"
          f"{'GiB/rank':>10s}{'loss':>9s}")
    for precision in arguments.precision:
        peer = merged.get((precision, "torch"))
        for who in ("torch", "ztrain"):
            result = merged.get((precision, who))
            if result is None:
                continue
            step = statistics.median(result["seconds"])
            ratio = f"{statistics.median(peer['seconds']) / step:.2f}" if peer else ""
            print(f"{precision:10s}{who:9s}{tokens / step:10.1f}{ratio:>8s}{step:9.2f}{min(result['seconds']):9.2f}"
                  f"{max(result['seconds']):9.2f}{max(result['peak_bytes']) / 2**30:10.2f}{result['loss']:9.4f}")
    for precision in arguments.precision:
        if (precision, "torch") in merged:
            result = merged[precision, "torch"]
            print(f"PyTorch {result['torch']} {precision}: {name_of(*chosen[precision])}")
        if (precision, "ztrain") in merged:
            parts = merged[precision, "ztrain"]["parts"]
            print(f"ztrain {precision}, median seconds: " + ", ".join(f"{k} {v:.3f}" for k, v in parts.items()))


def main():
    arguments = parse_arguments()
    if arguments.only != "ztrain" and not has_torch(arguments.python):
        return 0
    if arguments.only != "torch" and not arguments.ztrain.exists():
        print(f"{arguments.ztrain}: not built (cmake --preset cpu && cmake --build --preset cpu), or use --only torch",
              file=sys.stderr)
        return 1
    sides = [arguments.only] if arguments.only else ["torch", "ztrain"]
    print(f"{parameters_of(shape_of(arguments)) / 1e6:.1f}M parameters, {arguments.ranks} ranks x "
          f"{arguments.micro} x {arguments.sequence} tokens a step; load average before: {os.getloadavg()[0]:.2f}")
    merged, chosen = {}, {}
    with tempfile.TemporaryDirectory(prefix="against_torch.") as name:
        folder = pathlib.Path(name)
        write_tokens(folder / "tokens.bin", arguments)
        for precision in arguments.precision:
            if "torch" in sides:
                chosen[precision] = calibrate(arguments, folder, precision)
            results = {side: [] for side in sides}
            for turn in range(arguments.rounds):
                for side in sides if turn % 2 == 0 else sides[::-1]:
                    result = run_torch(arguments, folder, precision, *chosen[precision], arguments.warmup,
                                       arguments.steps) if side == "torch" else run_ztrain(arguments, folder, precision)
                    results[side].append(result)
                    if result:
                        print(f"  {precision} {side:7s} round {turn + 1}: {statistics.median(result['seconds']):.2f}"
                              " s a step", flush=True)
            for side in sides:
                if any(results[side]):
                    merged[precision, side] = merge(results[side])
    print_table(arguments, merged, chosen)
    if arguments.json:
        arguments.json.write_text(json.dumps({f"{p} {s}": r for (p, s), r in merged.items()}, indent=1))
    return 0 if len(merged) == len(sides) * len(arguments.precision) else 1


if __name__ == "__main__":
    sys.exit(main())
