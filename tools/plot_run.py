#!/usr/bin/env python3
"""Plots a run from its metrics.jsonl: loss, speed, where the time of a step goes, gradient norm and learning rate.

    tools/plot_run.py RUN_FOLDER [MORE_RUN_FOLDERS ...] [-o PICTURE.png]
    tools/plot_run.py RUN_FOLDER --last-validation       prints the last held-out loss and draws nothing

Of several runs loss, speed and gradient norm are overlaid; the time of a step is the first one's. Needs numpy and matplotlib.
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
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                record = self.parse(line, path, number)
                if record is None or not isinstance(record.get("step"), int):
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


def styles(runs):
    """(run, colour, width of its line): the first is widest, so that it shows under one that is the same."""
    widths = [1.8 + 1.2 * min(left, 2) for left in range(len(runs) - 1, -1, -1)]
    return zip(runs, COLOURS * len(runs), widths)


def curve(axes, run, key, colour, width, label):
    """The values, faint, and their moving mean."""
    step, values = run.column("step"), run.column(key)
    axes.plot(step, values, color=colour, alpha=0.25, linewidth=0.8)
    return axes.plot(step, smooth(values, window_of(len(values))), color=colour, linewidth=width, label=label)


def plot_loss(axes, runs):
    for run, colour, width in styles(runs):
        curve(axes, run, "loss", colour, width, "train" if len(runs) == 1 else run.name)
        if run.validation:
            x, y = zip(*run.validation)
            name = "held out" if len(runs) == 1 else f"{run.name}, held out"
            axes.plot(x, y, "o-", color=COLOURS[1] if len(runs) == 1 else colour, markersize=4.5, linewidth=0.8,
                      markeredgecolor="white", label=f"{name}, last {y[-1]:.4f}")
    axes.set(title="Loss (nats per token)")
    axes.legend(frameon=False)


def median_speed(run):
    """For a title or a legend; "" where no speed is known."""
    speed, mfu = run.column("tokens_per_s"), run.column("mfu")
    if not numpy.isfinite(speed).any():
        return ""
    used = f", MFU {100 * numpy.nanmedian(mfu):.1f} %" if numpy.nansum(mfu) > 0 else ""
    return f" (median {numpy.nanmedian(speed):,.0f}{used})"


def plot_speed(axes, runs):
    alone = len(runs) == 1
    for run, colour, width in styles(runs):
        curve(axes, run, "tokens_per_s", COLOURS[2] if alone else colour, width, run.name + median_speed(run))
    known = [speed for speed in (run.column("tokens_per_s") for run in runs) if numpy.isfinite(speed).any()]
    if known:
        axes.set_ylim(0, 1.25 * max(numpy.nanpercentile(speed, 99) for speed in known))
    axes.set(title="Tokens per second" + (median_speed(runs[0]) if alone else ""))
    if not alone:
        axes.legend(frameon=False, loc="lower right")


def plot_time(axes, runs):
    run = runs[0]
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
    axes.set(title="Seconds per step" + (f" of {run.name}" if len(runs) > 1 else ""))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], ncol=3, fontsize=8, loc="upper right",
                edgecolor="none", framealpha=0.9)


def plot_norm(axes, runs):
    alone, lines = len(runs) == 1, []
    right = axes.twinx()
    for run, colour, width in styles(runs):
        lines += curve(axes, run, "grad_norm", COLOURS[3] if alone else colour, width, "gradient norm" if alone else run.name)
        norm = run.column("grad_norm")
        positive = norm[norm > 0]
        if len(positive) and positive.max() > 20 * numpy.median(positive):
            axes.set_yscale("log")
        rate = right.plot(run.column("step"), run.column("lr"), color=COLOURS[4] if alone else colour, linewidth=1.4,
                          linestyle="-" if alone else "--", label="learning rate" if alone else f"{run.name}, learning rate")
        lines += rate
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
    plot_loss(axes[0, 0], runs)
    plot_speed(axes[0, 1], runs)
    plot_time(axes[1, 0], runs)
    plot_norm(axes[1, 1], runs)
    for panel in axes.flat:
        panel.set_xlabel("step")
        panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        panel.margins(x=0.01)
    named = ", ".join(run.name for run in runs[:4])
    figure.suptitle(named + (f" and {len(runs) - 4} more" if len(runs) > 4 else ""), fontsize=12)
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
    except OSError as error:
        sys.exit(f"plot_run.py: {output}: {error.strerror}")
    except ValueError as error:  # a format that the library does not know
        sys.exit(f"plot_run.py: {output}: {error}")
    print(output)


if __name__ == "__main__":
    main()
