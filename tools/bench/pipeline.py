#!/usr/bin/env python3
"""Speed of pipelines beside what their waiting leaves of one rank's.

    tools/bench/pipeline.py [--ztrain build/cpu/ztrain] [--ranks 2] [--micro-batches 8] [--steps 3]

Times a 100M model (12 layers of 768, a vocabulary of 4,096) with `ztrain bench` on one rank and on a pipeline of --ranks
for each schedule, with equal stages and the same batch. Expected: as many times one rank's tokens/s as there are ranks,
less the share that the schedule's own formula waits (docs/pipeline.md; F = B = W). Each rank needs a core.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = {
    "model.preset": "custom", "model.family": "llama", "model.hidden_size": 768, "model.intermediate_size": 2048,
    "model.num_hidden_layers": 12, "model.num_attention_heads": 12, "model.num_key_value_heads": 12,
    "model.vocab_size": 4096, "data.sequence": 512,
}


def waiting(schedule, p):
    """In units of a forward of a whole rank's layers."""
    return {"gpipe": 3 * (p - 1), "1f1b": 3 * (p - 1), "interleaved": 1.5 * (p - 1), "zb-h1": p - 1, "zb-h2": p - 1,
            "zb-v": 0.5 * (p - 1), "v-half": max(0.5, 1.5 * p - (2 if p % 2 else 3.5)),
            "v-min": 2 * p - 3.5 + (0, 1, 0.5)[p % 3], "dualpipe-v": 0.5 * (p - 1)}[schedule]


def tokens_per_second(options, ranks, schedule):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "bench.json"
        words = [f"--{k}={v}" for k, v in {**MODEL, "batch.global": options.micro_batches, "mesh.pipeline": ranks,
                                           "pipeline.schedule": schedule}.items()]
        command = [*options.mpirun.split(), "-n", str(ranks), options.ztrain, "bench", str(ROOT / "inputs/smoke.toml"),
                   "--json", str(out), "--steps", str(options.steps), "--warmup", "1", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"pipeline.py: {' '.join(command)}\n{done.stderr}")
        return json.loads(out.read_text(encoding="utf-8"))["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", default=str(ROOT / "build/cpu/ztrain"))
    parser.add_argument("--mpirun", default="mpirun --bind-to none")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    alone = tokens_per_second(options, 1, "1f1b")
    print(f"{'schedule':>12} {'tokens/s':>9} {'expected':>9} {'ratio':>6}\n{'one rank':>12} {alone:9.1f}")
    for schedule in ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"):
        work = 3 * options.micro_batches
        expected = alone * options.ranks * work / (work + waiting(schedule, options.ranks))
        found = tokens_per_second(options, options.ranks, schedule)
        print(f"{schedule:>12} {found:9.1f} {expected:9.1f} {found / expected:6.3f}", flush=True)


if __name__ == "__main__":
    main()
