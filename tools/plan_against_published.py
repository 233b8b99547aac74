#!/usr/bin/env python3
"""Plans jobs that others measured and published, and prints how far `ztrain plan` is from their figures.

    tools/plan_against_published.py [--ztrain build/cpu/ztrain] [--only TEXT] [--markdown] [--json FILE]

The rows, their settings and their sources are in src/plan/published.toml, the machine files of peers in tools/plan. An error is predicted / measured - 1
of the step's time: below zero the plan is too hopeful.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent / "plan"
ROWS = HERE.parent.parent / "src" / "plan" / "published.toml"
DECK = '[data]\ntrain = ["tokens.bin"]\nformat = "bin-uint32"\n[run]\nsteps = 1\n'


def plan(ztrain, deck, row, peers):
    """Returns the plan's JSON object; a text where there is none."""
    machine = HERE / f"{row['machine']}.toml"
    command = [ztrain, "plan", deck, "--ranks", str(row["ranks"]), "--json", "--alone",
               "--machine", str(machine) if machine.exists() else row["machine"]]
    command += [f"--{setting}" for setting in peers[row["peer"]]["set"] + row["set"]]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(run.stdout) if run.returncode == 0 else run.stderr.strip()


def measured_seconds(row, answer):
    """Returns the seconds of a step that the source measured."""
    batch, model, ranks = answer["batch"], answer["model"], row["ranks"]
    if "seconds" in row:
        return row["seconds"]
    if "tokens" in row:
        return batch["tokens_per_step"] / ranks / row["tokens"]
    # Where the source counts attention without a mask: the other half of 12 x layers x width x length.
    flops = model["flops_per_token"] + 6 * row.get("whole_attention", 0) * model["sequence"]
    return flops * batch["tokens_per_step"] / ranks / (row["tflops"] * 1e12)


def compare(row, answer):
    if isinstance(answer, str):
        return dict(row=row, fault=answer)
    measured, planned = measured_seconds(row, answer), answer["time"]["step_seconds"]
    result = dict(row=row, measured=measured, planned=planned, error=planned / measured - 1,
                  exposed=answer["time"]["exposed_seconds"] / planned)
    if "gib" in row:
        needed = max(entry["total"]["device"] for entry in answer["memory"])
        result["memory"] = needed / 2**30 / row["gib"] - 1
    return result


def summary(name, results):
    errors = [r["error"] for r in results if "error" in r]
    if not errors:
        return f"{name}: no rows"
    sizes = [abs(e) for e in errors]
    return (f"{name}: {len(errors)} rows, median error {statistics.median(sizes):.1%}, "
            f"worst {max(sizes):.1%}, mean signed {statistics.fmean(errors):+.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", default=os.environ.get("ZTRAIN", "build/cpu/ztrain"))
    parser.add_argument("--only", default="", help="rows whose source has this text")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/plan.md")
    parser.add_argument("--json", "--alone", help="file for all results")
    options = parser.parse_args()
    table = tomllib.loads((ROWS).read_text())
    rows = [row for row in table["row"] if re.search(options.only, row["source"]) and not (os.environ.get("NOPIPE") and any("mesh.pipeline" in x for x in row["set"]))]
    with tempfile.TemporaryDirectory() as folder:
        deck = pathlib.Path(folder) / "row.toml"
        deck.write_text(DECK)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda row: plan(options.ztrain, deck, row, table["peer"]), rows))
    results = [compare(row, answer) for row, answer in zip(rows, answers)]
    faults = [r for r in results if "fault" in r]
    results = sorted((r for r in results if "error" in r), key=lambda r: -abs(r["error"]))
    bar = "|" if options.markdown else ""
    if options.markdown:
        print("| row | measured s | planned s | error | exposed | memory | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for r in results:
        memory = f"{r['memory']:+.1%}" if "memory" in r else ""
        cells = [f"{r['row']['source']:<72.72}", f"{r['measured']:9.4g}", f"{r['planned']:9.4g}", f"{r['error']:+7.1%}",
                 f"{r['exposed']:6.1%}", f"{memory:>7}", "fitted" if r["row"]["fit"] else ""]
        print(f"{bar} " + (f" {bar} " if bar else "  ").join(c.strip() if bar else c for c in cells) + f" {bar}")
    for r in faults:
        print(f"{r['row']['source']}: {r['fault']}", file=sys.stderr)
    print()
    print(summary("fitted", [r for r in results if r["row"]["fit"]]))
    print(summary("predicted", [r for r in results if not r["row"]["fit"]]))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
