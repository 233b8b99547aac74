#!/usr/bin/env python3
"""Plots a run from its metrics.jsonl: loss, speed, where the time of a step goes, gradient norm and learning rate.

    tools/plot_run.py RUN_FOLDER [MORE_RUN_FOLDERS ...] [-o PICTURE.png]
    tools/plot_run.py RUN_FOLDER --last-validation       prints the last held-out loss and draws nothing

Of several runs the loss curves are overlaid; the other panels show the first. Needs numpy and matplotlib.
"""
import argparse
import json
import pathlib
import sys

from packages import lacks

try:
    import numpy
    MISSING = None
except ModuleNotFoundError as error:  # told where it is needed: --help and --last-validation do without
    MISSING = error.name

# The parts of a step in the order in which they are stacked, with their colours; what they leave of the total is
# "other". Gathers and reductions overlap with compute: only what is waited for adds to the step. Saving comes on top:
# the total is without it.
PARTS = [("data", "#8c8c8c"), ("forward", "#4c78a8"), ("backward", "#1f4e79"), ("optimizer", "#59a14f"),
         ("exposed_communication", "#e15759")]
OTHER, SAVE = "#d9d9d9", "#edc948"
COLOURS = ["#4c78a8", "#e15759", "#59a14f", "#b07aa1", "#f28e2b", "#76b7b2"]


class Run:
    """steps: the per-step records in order; validation: (step, loss) pairs. A step that was run again after a resume
    counts once, as it was run last."""

    def __init__(self, folder):
        path = pathlib.Path(folder)
        if path.is_dir():
            path = path / "metrics.jsonl"
        self.name = path.parent.name or str(path)
        steps, validation = {}, {}
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                record = self.parse(line, path, number)
                if record is None or "step" not in record:
                    continue
                if "validation_loss" in record:
                    validation[record["step"]] = record["validation_loss"]
                if "loss" in record:
                    steps[record["step"]] = record
        self.steps = [steps[key] for key in sorted(steps)]
        self.validation = sorted(validation.items())

    @staticmethod
    def parse(line, path, number):
        try:
            record = json.loads(line)
            return record if isinstance(record, dict) else None
        except json.JSONDecodeError:
            # A run that is going on, or that was killed, leaves its last line unfinished.
            if line.endswith("\n"):
                print(f"{path}:{number}: not JSON, left out", file=sys.stderr)
            return None

    def column(self, key):
        values = (step.get(key) for step in self.steps)
        return numpy.array([numpy.nan if value is None else value for value in values], dtype=float)

    def seconds(self, part):
        values = (step.get("seconds", {}).get(part) for step in self.steps)
        return numpy.array([0.0 if value is None else value for value in values], dtype=float)


def smooth(values, window):
    """Centred moving mean; the window shrinks at the ends, NaN is skipped."""
    half = window // 2
    finite = numpy.isfinite(values)
    total = numpy.concatenate(([0.0], numpy.cumsum(numpy.where(finite, values, 0.0))))
    count = numpy.concatenate(([0], numpy.cumsum(finite)))
    index = numpy.arange(len(values))
    low, high = numpy.maximum(index - half, 0), numpy.minimum(index + half + 1, len(values))
    with numpy.errstate(invalid="ignore", divide="ignore"):
        return (total[high] - total[low]) / (count[high] - count[low])


def window_of(count):
    return max(1, count // 40) | 1


def plot_loss(axes, runs):
    for run, colour in zip(runs, COLOURS * len(runs)):
        step, loss = run.column("step"), run.column("loss")
        label = "train" if len(runs) == 1 else run.name
        axes.plot(step, loss, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(step, smooth(loss, window_of(len(loss))), color=colour, linewidth=1.8, label=label)
        if run.validation:
            x, y = zip(*run.validation)
            mark = COLOURS[1] if len(runs) == 1 else colour
            axes.plot(x, y, "o-", color=mark, markersize=4.5, linewidth=0.8, markeredgecolor="white",
                      label="held out" if len(runs) == 1 else f"{run.name}, held out")
            if len(runs) == 1:
                axes.annotate(f"{y[-1]:.4f}", (x[-1], y[-1]), textcoords="offset points", xytext=(-4, 8),
                              ha="right", color=mark)
    axes.set(title="Loss (nats per token)")
    axes.legend(frameon=False)


def plot_speed(axes, run):
    step, speed = run.column("step"), run.column("tokens_per_s")
    axes.plot(step, speed, color=COLOURS[2], alpha=0.3, linewidth=0.8)
    axes.plot(step, smooth(speed, window_of(len(speed))), color=COLOURS[2], linewidth=1.8)
    title = "Tokens per second"
    if numpy.isfinite(speed).any():
        axes.set_ylim(0, 1.25 * numpy.nanpercentile(speed, 99))
        title += f" (median {numpy.nanmedian(speed):,.0f}"
        mfu = run.column("mfu")
        title += f", MFU {100 * numpy.nanmedian(mfu):.1f} %)" if numpy.nansum(mfu) > 0 else ")"
    axes.set(title=title)


def plot_time(axes, run):
    step, total = run.column("step"), run.seconds("total")
    width = window_of(len(step))
    parts = [(part.replace("_", " "), run.seconds(part), colour) for part, colour in PARTS]
    rest = total - sum(values for _, values, _ in parts)
    parts += [("other", numpy.maximum(rest, 0.0), OTHER), ("save", run.seconds("save"), SAVE)]
    parts = [(name, values, colour) for name, values, colour in parts if values.max(initial=0) > 1e-3 * total.max()]
    if parts:
        axes.stackplot(step, [smooth(values, width) for _, values, _ in parts], linewidth=0,
                       colors=[colour for _, _, colour in parts], labels=[name for name, _, _ in parts])
        # Room for the legend; a slow first step may leave the picture.
        high = smooth(sum(values for _, values, _ in parts), width)
        axes.set_ylim(0, 1.4 * min(high.max(), 2 * numpy.percentile(high, 90)))
    axes.set(title="Seconds per step")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], ncol=3, fontsize=8, loc="upper right",
                edgecolor="none", framealpha=0.9)


def plot_norm(axes, run):
    step, norm, rate = run.column("step"), run.column("grad_norm"), run.column("lr")
    axes.plot(step, norm, color=COLOURS[3], alpha=0.3, linewidth=0.8)
    lines = axes.plot(step, smooth(norm, window_of(len(norm))), color=COLOURS[3], linewidth=1.8,
                      label="gradient norm")
    positive = norm[norm > 0]
    if len(positive) and positive.max() > 20 * numpy.median(positive):
        axes.set_yscale("log")
    right = axes.twinx()
    lines += right.plot(step, rate, color=COLOURS[4], linewidth=1.4, label="learning rate")
    right.set_ylim(bottom=0)
    right.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    right.spines["top"].set_visible(False)
    axes.legend(lines, [line.get_label() for line in lines], frameon=False, loc="upper right")
    axes.set(title="Gradient norm before clipping, and learning rate")


def plot(runs, output):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    pyplot.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.grid": True,
                            "grid.alpha": 0.25, "axes.spines.top": False, "axes.titlelocation": "left"})
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 7.2), constrained_layout=True)
    first = runs[0]
    plot_loss(axes[0, 0], runs)
    plot_speed(axes[0, 1], first)
    plot_time(axes[1, 0], first)
    plot_norm(axes[1, 1], first)
    for panel in axes.flat:
        panel.set_xlabel("step")
        panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        panel.margins(x=0.01)
    figure.suptitle(first.name if len(runs) == 1 else f"{first.name} and {len(runs) - 1} more", fontsize=12)
    figure.savefig(output, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    parser.add_argument("-o", "--output", help="picture to write (default: plot.png in the first folder)")
    parser.add_argument("--last-validation", action="store_true", help="only print the last held-out loss")
    arguments = parser.parse_args()
    try:
        runs = [Run(folder) for folder in arguments.runs]
    except OSError as error:
        sys.exit(f"plot_run.py: {error.filename}: {error.strerror}")
    if arguments.last_validation:
        print(f"{runs[0].validation[-1][1]:.4f}" if runs[0].validation else "none: the run came to no evaluation (evaluation.interval)")
        return
    if not runs[0].steps:
        sys.exit(f"plot_run.py: no step in {arguments.runs[0]} yet")
    folder = pathlib.Path(arguments.runs[0])
    output = arguments.output or str((folder if folder.is_dir() else folder.parent) / "plot.png")
    if MISSING:
        sys.exit(f"plot_run.py: {lacks(MISSING)}")
    try:
        plot(runs, output)
    except ModuleNotFoundError as missing:
        sys.exit(f"plot_run.py: {lacks(missing.name)}")
    print(output)


if __name__ == "__main__":
    main()
