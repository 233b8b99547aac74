#!/usr/bin/env python3
"""Measures what offloading rests on beside its peers, in turns, and prints the ratios.

    nvme   the NVMe store, fio (Debian: fio) and DeepSpeed's AIO handle (pip: deepspeed, and libaio-dev) in one folder: the
           same bytes, block size and requests under way, all with direct I/O. Wanted: 0.9 of fio, ahead of DeepSpeed.
    adam   AdamW on the host, STREAM's triad, torch.optim.AdamW (as it comes, foreach, fused) and DeepSpeed's CPUAdam (both pip), on one
           core and on all, of fp32 parameters and of bf16 parameters with fp32 master weights; ztrain's other types too.
           Wanted: 0.9 of the triad's bytes a second on each core, 5 times torch, ahead of DeepSpeed.
    step   whole steps of one CPU rank with the optimizer's states on the host and on NVMe, over the sum of what cannot go on side
           by side: the step without offload, the bytes that are copied at the speed of a copy, and of NVMe's bytes, at the
           store's own speed, what takes longer than the optimizer. Wanted: at most 1.15.

Needs a build with -DZTRAIN_BENCH=ON. A peer that is not there is named and left out.

    tools/bench/offload.py --build build/cpu --folder /nvme --python ENV/bin/python
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PEER = HERE / "offload_peer.py"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    add("--build", type=pathlib.Path, default=HERE.parent.parent / "build/cpu", help="build folder")
    add("--python", default=sys.executable, help="interpreter that has torch and deepspeed")
    add("--rounds", type=int, default=3)
    add("--timeout", type=float, default=600, help="seconds for one measurement")
    add("--json", type=pathlib.Path, help="writes all results there")
    group = parser.add_argument_group("nvme")
    group.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()),
                       help="on the drive that is to be measured")
    group.add_argument("--mib", type=int, default=4096, help="of the file, written and read whole each time")
    group.add_argument("--block-kib", type=int, default=1024)
    group.add_argument("--depth", type=int, default=32)
    group = parser.add_argument_group("step")
    group.add_argument("--layers", type=int, default=12, help="of the model, 7 million parameters each")
    group.add_argument("--steps", type=int, default=5, help="of one measurement")
    group = parser.add_argument_group("adam")
    group.add_argument("--millions", type=int, default=100, help="of parameters")
    return parser.parse_args()


def processor():
    with open("/proc/cpuinfo") as file:
        facts = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return (f"{facts.get('model name', 'unknown')} (family {facts.get('cpu family')}, model {facts.get('model')}), "
            f"{len(os.sched_getaffinity(0))} cores")


def run(command, timeout, environment=None):
    """The output, or None with the end of what was said printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, **(environment or {})})
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"  {command[0]}: {error}")
        return None
    if done.returncode != 0:
        print(f"  {command[0]} failed:\n    " + "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-8:]))
        return None
    return done.stdout


def run_peer(arguments, environment=None, **settings):
    output = run([arguments.python, str(PEER), json.dumps(settings)], arguments.timeout, environment)
    found = [line for line in (output or "").splitlines() if line.startswith("RESULT ")]
    return json.loads(found[-1][len("RESULT "):]) if found else None


def in_turns(sides, rounds):
    """{name: [result, ...]} of functions, the order turned round each time. One that fails is not asked again."""
    results, failed = {name: [] for name in sides}, set()
    for turn in range(rounds):
        for name in list(sides) if turn % 2 == 0 else list(sides)[::-1]:
            result = None if name in failed else sides[name]()
            if result is None:
                failed.add(name)
            else:
                results[name].append(result)
    return {name: found for name, found in results.items() if found}


def median_of(results, key):
    return statistics.median(result[key] for result in results)


# --- nvme ------------------------------------------------------------------------------------------------------------

def store_speed(arguments, threads):
    program = arguments.build / "tools/bench/ztrain_nvme_bench"
    output = run([str(program), str(arguments.folder), str(arguments.mib), str(arguments.block_kib),
                  str(arguments.depth), str(threads)], arguments.timeout)
    return json.loads(output) if output else None


def fio_speed(arguments):
    """A file that is written once before the clock runs, as the store's is."""
    path = arguments.folder / "fio.bin"
    result = {}
    try:
        for way in ("write", "read"):
            output = run(["fio", "--name=offload", f"--filename={path}", f"--size={arguments.mib}M",
                          f"--bs={arguments.block_kib}k", f"--iodepth={arguments.depth}", "--direct=1", "--overwrite=1",
                          "--ioengine=io_uring", "--fixedbufs=1", f"--rw={way}", "--output-format=json"],
                         arguments.timeout)
            if output is None:
                return None
            facts = json.loads(output[output.index("{"):])
            result[way] = facts["jobs"][0][way]["bw_bytes"]
            result["version"] = facts["fio version"]
    finally:
        path.unlink(missing_ok=True)
    return result


def deepspeed_speed(arguments, threads):
    return run_peer(arguments, part="nvme", folder=str(arguments.folder), mib=arguments.mib,
                    block=arguments.block_kib << 10, depth=arguments.depth, threads=threads)


def nvme(arguments):
    print(f"\nnvme: {arguments.mib} MiB in {arguments.folder}, blocks of {arguments.block_kib} KiB, "
          f"{arguments.depth} under way")
    sides = {"ztrain": lambda: store_speed(arguments, 0),
             "ztrain, threads": lambda: store_speed(arguments, arguments.depth)}
    if shutil.which("fio"):
        sides["fio"] = lambda: fio_speed(arguments)
    else:
        print("  fio is not installed (Debian: apt install fio): left out")
    for threads in (1, 4):
        sides[f"DeepSpeed, {threads} thread{'s' * (threads > 1)}"] = lambda t=threads: deepspeed_speed(arguments, t)
    results = in_turns(sides, arguments.rounds)
    if "ztrain" not in results:
        return results
    print(f"  {'':22s}{'write GB/s':>11s}{'ratio':>7s}{'read GB/s':>11s}{'ratio':>7s}   (ratio: ztrain over this)")
    for name, found in results.items():
        figures = [(median_of(found, way), median_of(results["ztrain"], way)) for way in ("write", "read")]
        print(f"  {name:22s}" + "".join(f"{rate / 1e9:11.2f}{own / rate:7.2f}" for rate, own in figures)
              + f"   {found[0].get('how') or found[0].get('version', '')}")
    return results


# --- adam ------------------------------------------------------------------------------------------------------------

# Parameter, master, gradient, moments. The first two are what the peers do as well.
COMBINATIONS = (("fp32", "fp32", "fp32", "fp32"), ("bf16", "fp32", "fp32", "fp32"), ("bf16", "fp32", "bf16", "fp32"),
                ("bf16", "fp32", "bf16", "bf16"), ("bf16", "bf16", "bf16", "fp32"), ("fp16", "fp32", "fp16", "fp32"))

PEERS = {"default": "torch, default", "foreach": "torch, foreach", "fused": "torch, fused",
         "deepspeed": "DeepSpeed CPUAdam"}


def own_adam(arguments, threads, types):
    program = arguments.build / "tools/bench/ztrain_adam_bench"
    output = run([str(program), str(arguments.millions), str(threads), *types], arguments.timeout)
    return json.loads(output) if output else None


def peer_adam(arguments, who, threads, types):
    environment = {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    return run_peer(arguments, environment, part="adam", who=who, millions=arguments.millions,
                    master=types[0] != types[1], threads=threads, repeats=5)


def adam_sides(arguments, threads, types):
    sides = {"ztrain": lambda: own_adam(arguments, threads, types)}
    if types in COMBINATIONS[:2]:
        for who, name in PEERS.items():
            sides[name] = lambda w=who: peer_adam(arguments, w, threads, types)
    return sides


def adam(arguments):
    results = {}
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        print(f"\nadam: {arguments.millions}M parameters, {threads} core{'s' * (threads > 1)}")
        print(f"  {'parameter, master, gradient, moments':38s}{'':20s}{'s a step':>9s}{'ratio':>7s}{'GB/s':>7s}"
              f"{'of triad':>9s}")
        for types in COMBINATIONS:
            found = in_turns(adam_sides(arguments, threads, types), arguments.rounds)
            if "ztrain" not in found:
                return {}
            own = median_of(found["ztrain"], "seconds")
            for name, side in found.items():
                seconds = median_of(side, "seconds")
                line = f"  {', '.join(types):38s}{name:20s}{seconds:9.4f}{seconds / own:7.2f}"
                if name == "ztrain":
                    rate, triad = median_of(side, "rate"), median_of(side, "triad")
                    line += f"{rate / 1e9:7.1f}{rate / triad:9.0%}"
                print(line, flush=True)
            results[f"{threads} {' '.join(types)}"] = found
    print("  (ratio: this over ztrain)")
    return {"ztrain": results}


# --- step ------------------------------------------------------------------------------------------------------------

STEP_DECK = """
[run]
output = "{folder}"
steps = 1
[data]
train = ["{here}/*.py"]
sequence = 256
[model]
family = "llama"
hidden_size = 768
intermediate_size = 2048
num_hidden_layers = {layers}
num_attention_heads = 12
num_key_value_heads = 12
vocab_size = 4096
[batch]
global = 2
micro = 1
[precision]
preset = "bf16"
[evaluation]
interval = 0
"""


def step_json(arguments, command, deck, keys, *words):
    """What `ztrain plan` or `ztrain bench` says of the deck with these keys."""
    program = [str(arguments.build / "ztrain"), command, str(deck), *(f"--{key}={value}" for key, value in keys.items())]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bench.json"
        if command == "plan":
            output = run([*program, "--ranks", "1", "--json"], arguments.timeout)
            return json.loads(output) if output else None
        done = run([*program, "--steps", str(arguments.steps), "--warmup", "2", "--json", str(path), *words],
                   arguments.timeout)
        return json.loads(path.read_text()) if done is not None else None


def carried(plan, drives):
    """Bytes of a step between the device and the host, or from and to the drives."""
    rows = [row for row in plan["tier_traffic"] if ("nvme" in (row["from"], row["to"])) == drives]
    return {way: sum(row["bytes"] for row in rows if (row["from"] == "nvme") == (way == "read")) for way in ("read", "write")}


def step(arguments):
    print(f"\nstep: {arguments.layers} layers, one rank, {arguments.steps} steps; sum: of what cannot go on side by side")
    away = {"nvme_path": json.dumps([str(arguments.folder)]), "queue_depth": arguments.depth,
            "nvme_block_size": arguments.block_kib << 10}
    keys = {"plain": {}}
    for tier in ("cpu", "nvme"):
        keys[tier] = {f"offload.{key}": value for key, value in
                      {"optimizer": tier, "master": tier, **(away if tier == "nvme" else {})}.items()}
    with tempfile.TemporaryDirectory(prefix="ztrain-step-") as folder:
        deck = pathlib.Path(folder) / "step.toml"
        deck.write_text(STEP_DECK.format(folder=folder, here=HERE, layers=arguments.layers))
        plans = {name: step_json(arguments, "plan", deck, of) for name, of in keys.items()}
        sides = {name: lambda k=of, n=name: step_json(arguments, "bench", deck, k, *(["--kernels"] if n == "plain" else []))
                 for name, of in keys.items()}
        store = store_speed(arguments, 0)
        results = in_turns(sides, arguments.rounds)
    if len(results) < len(keys) or store is None or None in plans.values():
        return {}
    seconds = {name: statistics.median(r["step_seconds"]["median"] for r in found) for name, found in results.items()}
    optimize = statistics.median(r["seconds"]["optimize"] for r in results["cpu"])
    copy = statistics.median(r["ceiling"]["copy_gb_per_s"] for r in results["plain"]) * 1e9
    print(f"  {'':8s}{'s a step':>10s}{'sum':>10s}{'ratio':>8s}")
    for name, plan in plans.items():
        copied, drives = carried(plan, False), carried(plan, True)
        io = sum(drives[way] / store[way] for way in drives)
        bound = seconds["plain"] + 2 * sum(copied.values()) / copy + max(0, io - optimize)
        print(f"  {name:8s}{seconds[name]:10.3f}{bound:10.3f}{seconds[name] / bound:8.2f}", flush=True)
    return {"ztrain": results, "seconds": seconds}


PARTS = {"nvme": nvme, "adam": adam, "step": step}


def main():
    arguments = parse_arguments()
    print(f"{processor()}; load average before: {os.getloadavg()[0]:.2f}")
    results = {part: PARTS[part](arguments) for part in arguments.parts}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    return 0 if all("ztrain" in found for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
