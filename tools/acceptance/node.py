#!/usr/bin/env python3
"""What only a node of several GPUs shows, each GPU with a rank:

    tools/acceptance/node.py WHAT --build build/cuda --out FOLDER --gpus N

    pipelines   mesh.pipeline = 2 and 4, with receives that begin two turns early: losses of CPU ranks
    nvls        FULL_SHARD with and without NVLink SHARP (NCCL_NVLS_ENABLE), and without registered arenas: the same run,
                and its speed
    connected   device memory beside the plan: what connections and first use of libraries take
    published   speed of 7B and 8B under FULL_SHARD beside figures that others have published
"""
import re

import checks as single_gpu_checks
import parity
import runs
import speed

DECKS = runs.ROOT / "inputs"
LEAST_GPUS = 4
FULL_SHARD = ("--sharding.strategy=FULL_SHARD", "--mesh.replicate=1", "--mesh.shard=-1")
ONE_BENCH = 150  # seconds
# Name, words for inputs/bench_7b.toml, who has published it for eight H100, tokens/s of all GPUs, MFU.
PUBLISHED = (("7B", ("--batch.micro=4", "--batch.global=256"), "llmq's, sequence 1024", 112000, 0.61),
             ("8B", ("--model.preset=llama3.1-8b", "--precision.preset=bf16", "--data.sequence=8192", "--batch.micro=1",
                     "--batch.global=64", "--recompute.mode=full", "--recompute.pieces=[]"),
              "torchtitan's, Llama 3.1 8B, sequence 8192, compiled", 8 * 6667, 0.39))


def enough(arguments, checks, names):
    """Batches and meshes are of 4 or 8 GPUs."""
    good = arguments.gpus >= LEAST_GPUS and 8 % arguments.gpus == 0
    for name in () if good else names:
        checks.lack(name, f"{arguments.gpus} GPUs; it needs 4 or 8")
    return good


def pipelines(arguments, runner, checks):
    comparison = parity.Parity(arguments, runner, checks)
    for stages in (2, 4):
        for schedule in ("1f1b", "gpipe", "zb-h1"):
            name = f"{schedule}, {stages} stages"
            if 0 < arguments.gpus < stages:
                checks.lack(name, f"{arguments.gpus} GPUs")
                continue
            more = {"mesh.pipeline": stages, "mesh.shard": 1, "mesh.replicate": 1, "pipeline.schedule": schedule,
                    "pipeline.max_outstanding": 2, "batch.micro": 1}
            if arguments.gpus > 0:
                more["device.communicator"] = "nccl"
            comparison.check("zero0", stages, "four layers", more, name=name)


def measured(arguments, runner, checks, name, deck, words, environment=None):
    """The report of a benchmark on all GPUs, or None."""
    run, report = runner.bench(re.sub(r"[ ,]+", "_", name), deck, ["--steps=4", "--warmup=2", *FULL_SHARD, *words],
                               ONE_BENCH, arguments.gpus, environment)
    return report if checks.ended(name, run) else None


def nvls(arguments, runner, checks):
    ways = {"NVLS as NCCL chooses": {}, "NVLS off": {"NCCL_NVLS_ENABLE": "0"}, "arenas not registered": {"NCCL_LOCAL_REGISTER": "0"}}
    if not enough(arguments, checks, ways):
        return
    deck, words = DECKS / "bench_1.5b.toml", ("--batch.micro=4", f"--batch.global={16 * arguments.gpus}")
    for name, environment in ways.items():
        report = measured(arguments, runner, checks, name, deck, words, environment)
        if report:
            arenas = [note["text"] for note in report["notes"] if note["what"] == "arenas"]
            checks.judge(report["tokens_per_s"] > 0, name, f"{speed.speed_text(report)}; {'; '.join(arenas) or 'not said'}")


def connected(arguments, runner, checks):
    """single_gpu_checks.OUTSIDE is what decks take for what is outside of the plan."""
    ways = {"outside, FULL_SHARD": (), "outside, pipeline of 4": ("--mesh.pipeline=4", "--batch.micro=1")}
    if not enough(arguments, checks, ways):
        return
    for name, words in ways.items():
        report = measured(arguments, runner, checks, name, DECKS / "bench_1.5b.toml",
                          (*words, f"--batch.global={16 * arguments.gpus}"))
        if report:
            outside = report["memory"]["outside"]
            checks.judge(outside <= single_gpu_checks.OUTSIDE, name, f"{outside / 1e9:.2f} GB (the decks' {single_gpu_checks.OUTSIDE / 1e9:.0f})")


def published(arguments, runner, checks):
    if not enough(arguments, checks, [f"{row[0]} on {arguments.gpus} GPUs" for row in PUBLISHED]):
        return
    for model, words, source, tokens, mfu in PUBLISHED:
        name = f"{model} on {arguments.gpus} GPUs"
        report = measured(arguments, runner, checks, name, DECKS / "bench_7b.toml", words)
        if report:
            share = report["tokens_per_s"] / (tokens * arguments.gpus / 8)
            checks.judge(report["tokens_per_s"] > 0, name,
                         f"{speed.speed_text(report)}; {share:.2f} of {source}: {tokens} tokens/s on 8, MFU {100 * mfu:.0f}%")


if __name__ == "__main__":
    runs.main_of(__doc__, {"pipelines": pipelines, "nvls": nvls, "connected": connected, "published": published})
