#!/usr/bin/env python3
"""Plans small jobs on the machine at hand, then runs them, and prints how far the plans are from the runs.

    mpirun -np 4 build/cpu/ztrain bench --calibrate > machine.toml
    tools/plan_against_runs.py --machine machine.toml [--ztrain build/cpu/ztrain] [--only TEXT] [--markdown]

The jobs are in tools/plan/runs.toml. All are planned before the first one runs. An error is planned / measured - 1 of
the step's time; a run is the median of its steps, and a measurement the median of --repeat runs. The machine should
have nothing else to do, or --fastest takes the steps that others disturbed least: each line shows how far the runs of one job are apart. Arenas are compared byte by byte.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib

ROWS = pathlib.Path(__file__).resolve().parent / "plan" / "runs.toml"
DECK = '[data]\ntrain = ["none"]\n[run]\nsteps = 1\n'


def settings_of(row, sizes):
    """Returns the row's overrides; the batch is as large as its mesh and micro-batches ask."""
    chosen = sizes[row["size"]]["set"] + row.get("set", [])
    degree = {key: int(value) for key, value in (setting.split("=", 1) for setting in chosen) if key.startswith("mesh.")}
    split = math.prod(degree.get(f"mesh.{axis}", 1) for axis in ("pipeline", "tensor", "context"))
    micro = next(int(setting.split("=")[1]) for setting in chosen if setting.startswith("batch.micro="))
    batch = micro * row.get("times", 1) * row.get("ranks", 1) // split
    return [f"--{setting}" for setting in [*chosen, f"batch.global={batch}"]]


def plan(options, deck, row, settings):
    command = [options.ztrain, "plan", deck, "--ranks", str(row.get("ranks", 1)), "--json", "--alone",
               "--machine", options.machine, *settings]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{row['name']}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def bench(options, deck, row, settings, report):
    launcher = [*options.mpirun.split(), "-n", str(row.get("ranks", 1))]
    command = [*launcher, options.ztrain, "bench", deck, "--steps", str(options.steps), "--warmup", "2", "--json", report,
               *settings]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{row['name']}: {run.stderr.strip()}")
    return json.loads(report.read_text())


def compare(row, planned, runs, fastest):
    """Returns one line of the table. The runs tell of rank 0's memory."""
    steps = [run["step_seconds"]["fastest" if fastest else "median"] for run in runs]
    measured = min(steps) if fastest else statistics.median(steps)
    seconds = planned["time"]["step_seconds"]
    held = next(sum(entry["total"].values()) for entry in planned["memory"] if entry["rank"] == 0)
    return {"name": row["name"], "ranks": row.get("ranks", 1), "measured": measured, "planned": seconds,
            "error": seconds / measured - 1, "apart": max(steps) / min(steps) - 1,
            "memory": held - runs[0]["memory"]["planned"]}


def show(results, markdown):
    if markdown:
        print("| job | ranks | measured ms | planned ms | error |\n| --- | --- | --- | --- | --- |")
    for r in sorted(results, key=lambda r: -abs(r["error"])):
        cells = [r["name"], str(r["ranks"]), f"{1e3 * r['measured']:.1f}", f"{1e3 * r['planned']:.1f}", f"{r['error']:+.1%}"]
        if markdown:
            print("| " + " | ".join(cells) + " |")
        else:
            print(f"{cells[0]:<50}{cells[1]:>3}{cells[2]:>10}{cells[3]:>10}{cells[4]:>9}   runs {r['apart']:.0%} apart"
                  + (f", memory off by {r['memory']} bytes" if r["memory"] else ""))
    errors = [abs(r["error"]) for r in results]
    signed = statistics.fmean(r["error"] for r in results)
    wrong = sum(r["memory"] != 0 for r in results)
    print(f"\n{len(results)} jobs: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}, mean signed "
          f"{signed:+.1%}; memory differs in {wrong}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="machine file of `ztrain bench --calibrate`")
    parser.add_argument("--ztrain", default=os.environ.get("ZTRAIN", "build/cpu/ztrain"))
    parser.add_argument("--mpirun", default=os.environ.get("ZTRAIN_MPIRUN", "mpirun --oversubscribe --bind-to none"),
                        help="launcher with its options")
    parser.add_argument("--steps", type=int, default=9, help="timed steps of a run")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each job")
    parser.add_argument("--fastest", action="store_true",
                        help="compare with the fastest step of all runs: for a machine that others use as well")
    parser.add_argument("--only", default="", help="jobs whose name has this regular expression")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/plan.md")
    parser.add_argument("--json", help="file for all results")
    options = parser.parse_args()
    table = tomllib.loads(ROWS.read_text())
    rows = [row for row in table["row"] if re.search(options.only, row["name"])]
    if not rows:
        raise SystemExit(f"--only {options.only}: no job of {ROWS} has such a name")
    with tempfile.TemporaryDirectory() as folder:
        deck, report = pathlib.Path(folder) / "row.toml", pathlib.Path(folder) / "bench.json"
        deck.write_text(DECK)
        settings = [settings_of(row, table["size"]) for row in rows]
        plans = [plan(options, deck, row, chosen) for row, chosen in zip(rows, settings)]
        runs = [[] for _ in rows]
        for _ in range(options.repeat):
            for row, chosen, of_row in zip(rows, settings, runs):
                of_row.append(bench(options, deck, row, chosen, report))
    results = [compare(*of_row, options.fastest) for of_row in zip(rows, plans, runs)]
    show(results, options.markdown)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
