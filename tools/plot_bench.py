#!/usr/bin/env python3
"""Plots where the time of a step goes, from the JSON of `ztrain bench --kernels --json`.

    tools/plot_bench.py BENCH.json [MORE.json ...] [-o PICTURE.png]

Above a bar for each report: a step by kind of action, and what computing waited for. Below, for the first report
with kernels, each kernel's time in a step when it is run alone, with its rate and how much of the measured ceiling that is.
Needs matplotlib.
"""
import argparse
import json
import pathlib
import sys

from packages import lacks

COLOURS = {"forward": "#4c78a8", "backward": "#1f4e79", "recompute": "#76b7b2", "norm": "#b07aa1",
           "optimize": "#59a14f", "gather": "#edc948", "reduce": "#f28e2b", "exposed communication": "#e15759",
           "other": "#d9d9d9"}
FAMILIES = [("linear", "#4c78a8", "products"), ("head_loss", "#1f4e79", "head and loss"),
            ("attention", "#e15759", "attention"), ("optimizer_step", "#59a14f", "optimizer"),
            ("", "#b9b9b9", "memory-bound")]
MOST_KERNELS = 18


def parts_of(report):
    """In the order of the colours, which is that of a step."""
    parts = {**report["seconds"], "exposed communication": report["exposed_communication"],
             "other": report["other_seconds"]}
    names = list(COLOURS)
    return sorted(parts.items(), key=lambda part: names.index(part[0]) if part[0] in names else len(names) - 2.5)


def title_of(report):
    speed = f"{report['tokens_per_s']:,.0f} tokens/s"
    mfu = f", MFU {100 * report['mfu']:.1f} %" if report["mfu"] else ""
    return f"{pathlib.Path(report['deck']).stem}\n{speed}{mfu}"


def plot_actions(axes, reports):
    seen = set()
    for row, report in enumerate(reports):
        left = 0.0
        for name, seconds in parts_of(report):
            share = 100 * seconds / report["timed_step_seconds"]
            if share < 0.05:
                continue
            axes.barh(row, share, left=left, color=COLOURS.get(name, "#8c8c8c"), label=None if name in seen else name,
                      edgecolor="white", linewidth=0.6)
            if share > 6:
                axes.text(left + share / 2, row, f"{share:.0f} %", ha="center", va="center", color="white", fontsize=8)
            seen.add(name)
            left += share
    axes.set_yticks(range(len(reports)), [title_of(report) for report in reports])
    axes.invert_yaxis()
    axes.set(title="A step by kind of action (%)")
    axes.grid(axis="y", visible=False)
    axes.legend(ncol=5, frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12 - 0.1 / len(reports)))


def family_of(kernel):
    if kernel["communicates"]:
        return "#f28e2b", "communication"
    return next((colour, name) for prefix, colour, name in FAMILIES if kernel["type"].startswith(prefix))


def text_of(kernel):
    rate = f"{kernel['gb_per_s']:,.0f} GB/s" if kernel["tflops"] is None else f"{kernel['tflops']:.3g} TFLOP/s"
    share = f", {100 * kernel['share_of_ceiling']:.0f} % of ceiling" if kernel["share_of_ceiling"] else ""
    return f" {kernel['count']} x {1e6 * kernel['seconds']:,.0f} us, {rate}{share}"


def plot_kernels(axes, report):
    kernels = report["kernels"][:MOST_KERNELS]
    rest = report["kernels"][MOST_KERNELS:]
    seen = set()
    for row, kernel in enumerate(kernels):
        colour, family = family_of(kernel)
        axes.barh(row, 1e3 * kernel["total_seconds"], color=colour, label=None if family in seen else family)
        axes.text(1e3 * kernel["total_seconds"], row, text_of(kernel), va="center", fontsize=7.5)
        seen.add(family)
    names = [f"{k['type']}  {k['operands']}" for k in kernels]
    if rest:
        total = 1e3 * sum(k["total_seconds"] for k in rest)
        axes.barh(len(kernels), total, color="#d9d9d9")
        axes.text(total, len(kernels), f" {len(rest)} more kernels", va="center", fontsize=7.5)
        names.append("the rest")
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.invert_yaxis()
    axes.margins(x=0.45)
    axes.grid(axis="y", visible=False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    total, step = (1e3 * s for s in (sum(k["total_seconds"] for k in report["kernels"]),
                                     report["step_seconds"]["median"]))
    axes.set(title=f"Kernels run alone, ms a step (all {total:,.1f} of the step's {step:,.1f})")


def plot(reports, output):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.grid": True,
                            "grid.alpha": 0.25, "axes.spines.top": False, "axes.spines.right": False,
                            "axes.titlelocation": "left"})
    detailed = next((report for report in reports if report["kernels"]), None)
    heights = [0.9 + 0.6 * len(reports)] + ([0.26 * (MOST_KERNELS + 3)] if detailed else [])
    figure, axes = pyplot.subplots(len(heights), 1, figsize=(12, sum(heights) + 1), squeeze=False,
                                   constrained_layout=True, height_ratios=heights)
    plot_actions(axes[0, 0], reports)
    if detailed:
        plot_kernels(axes[1, 0], detailed)
    first = reports[0]
    figure.suptitle(f"{first['device']}, {first['ranks']} rank{'s' if first['ranks'] > 1 else ''}", fontsize=11)
    figure.savefig(output, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=pathlib.Path, metavar="BENCH.json")
    parser.add_argument("-o", "--output", help="picture to write (default: beside the first report)")
    arguments = parser.parse_args()
    reports = []
    for path in arguments.reports:
        try:
            reports.append(json.loads(path.read_text()))
            parts_of(reports[-1])
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"plot_bench.py: {path} is no report of ztrain bench: {error!r}")
    output = arguments.output or str(arguments.reports[0].with_suffix(".png"))
    try:
        plot(reports, output)
    except ModuleNotFoundError as missing:
        sys.exit(f"plot_bench.py: {lacks(missing.name)}")
    print(output)


if __name__ == "__main__":
    main()
