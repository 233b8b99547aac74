#!/usr/bin/env python3
"""Plots a run from its metrics.jsonl: loss, speed, where the time of a step goes, gradient norm and learning rate.

    tools/plot_run.py RUN_FOLDER [MORE_RUN_FOLDERS ...] [-o PICTURE.png]
    tools/plot_run.py FOLDER_OF_RUNS                     all runs in it
    tools/plot_run.py RUN_FOLDER --last-validation       prints the last held-out loss and draws nothing

Of several runs loss, speed and gradient norm are overlaid; the time of a step is the first one's. Lines are moving means, all over as
many steps, of the values that are drawn faintly. Needs numpy and matplotlib, of this Python or of another on this machine.
"""
import argparse
import json
import math
import os
import pathlib
import re
import sys

from packages import run_with

try:
    import numpy
except ModuleNotFoundError:  # looked for elsewhere where it is needed: --help and --last-validation do without
    pass

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
        self.folder = path.absolute().parent
        self.name = self.folder.name
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
        self.of_answers = any("rewards_margins" in record for record in self.steps)  # such losses have no perplexity

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


def window_of(runs):
    return max(1, max(len(run.steps) for run in runs) // 40) | 1


def styles(runs):
    """(run, colour, width of its line): the first is widest, so that it shows under one that is the same."""
    widths = [1.8 + 1.2 * min(left, 2) for left in range(len(runs) - 1, -1, -1)] if len(runs) < 4 else [1.5] * len(runs)
    colours = COLOURS
    if len(runs) > len(COLOURS):
        from matplotlib import colormaps
        colours = [colormaps["turbo"](place) for place in numpy.linspace(0.05, 0.95, len(runs))]
    return zip(runs, colours, widths)


def curve(axes, runs, run, key, colour, width, label):
    """The values, faint, and their moving mean."""
    step, values = run.column("step"), run.column(key)
    axes.plot(step, values, color=colour, alpha=0.25, linewidth=0.8)
    return axes.plot(step, smooth(values, window_of(runs)), color=colour, linewidth=width, label=label)


def perplexity(loss):
    """For a legend; "" of a loss that is none, or too large."""
    return f" (perplexity {math.exp(loss):.4g})" if loss is not None and loss < 100 else ""


def plot_loss(axes, runs):
    alone = len(runs) == 1
    for run, colour, width in styles(runs):
        curve(axes, runs, run, "loss", colour, width, "train")
        if run.validation:
            x, y = zip(*run.validation)
            axes.plot(x, y, "o-", color=COLOURS[1] if alone else colour, markersize=4.5, linewidth=0.8,
                      markeredgecolor="white", label=f"held out, last {y[-1]:.4f}{'' if run.of_answers else perplexity(y[-1])}")
    unit = "" if any(run.of_answers for run in runs) else " (nats per token)"
    axes.set(title=f"Loss{unit}" + ("" if alone else "; circles: held out"))
    lines, labels = axes.get_legend_handles_labels()
    if alone:
        load = plot_load(axes, runs[0])
        axes.legend(lines + load, labels + [line.get_label() for line in load], frameon=False)


def plot_load(axes, run):
    """The load of the fullest expert over the mean, on an axis of its own, if the model has experts."""
    load = run.column("expert_load_max")
    if not numpy.isfinite(load).any():
        return []
    right = axes.twinx()
    right.set_ylim(0, 1.25 * numpy.nanmax(load))
    right.grid(False)
    right.spines["top"].set_visible(False)
    return right.plot(run.column("step"), smooth(load, window_of([run])), color=COLOURS[4], linewidth=1.2,
                      label="fullest expert's load over the mean (right)")


def median_speed(run):
    """For a title or a legend; "" where no speed is known."""
    speed, mfu = run.column("tokens_per_s"), run.column("mfu")
    if not numpy.isfinite(speed).any():
        return ""
    used = f", MFU {100 * numpy.nanmedian(mfu):.1f} %" if numpy.nansum(mfu) > 0 else ""
    return f"median {numpy.nanmedian(speed):,.0f}{used}"


def plot_speed(axes, runs):
    alone = len(runs) == 1
    for run, colour, width in styles(runs):
        curve(axes, runs, run, "tokens_per_s", COLOURS[2] if alone else colour, width, run.name)
    known = [speed for speed in (run.column("tokens_per_s") for run in runs) if numpy.isfinite(speed).any()]
    if known:
        axes.set_ylim(0, 1.25 * max(numpy.nanpercentile(speed, 99) for speed in known))
    median = median_speed(runs[0]) if alone else ""
    axes.set(title="Tokens per second" + (f" ({median})" if median else ""))


def plot_time(axes, runs):
    run = runs[0]
    step, total = run.column("step"), run.seconds("total")
    width = window_of([run])
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
        lines += curve(axes, runs, run, "grad_norm", COLOURS[3] if alone else colour, width, "gradient norm")
        norm = run.column("grad_norm")
        positive = norm[norm > 0]
        if len(positive) and positive.max() > 20 * numpy.median(positive):
            axes.set_yscale("log")
        rate = right.plot(run.column("step"), run.column("lr"), color=COLOURS[4] if alone else colour, linewidth=1.4,
                          linestyle="-" if alone else "--", label="learning rate")
        lines += rate
    right.set_ylim(bottom=0)
    right.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    right.spines["top"].set_visible(False)
    if alone:
        axes.legend(lines, [line.get_label() for line in lines], frameon=False, loc="upper right")
    axes.set(title="Gradient norm before clipping, and learning rate" + ("" if alone else " (dashed)"))


def plot_names(axes, runs):
    """Which run has which colour, with what it came to."""
    from matplotlib.lines import Line2D
    lines = []
    for run, colour, width in styles(runs):
        held_out = f", held out {run.validation[-1][1]:.4f}" if run.validation else ""
        median = median_speed(run)
        lines.append(Line2D([], [], color=colour, linewidth=width, label=run.name + held_out + (f", {median} tokens/s" if median else "")))
    axes.legend(handles=lines, ncol=columns_of(runs), frameon=False, loc="upper left", borderaxespad=0)
    axes.axis("off")


def epochs_text(runs):
    """For the axis of steps: how many epochs they are, where the lines of a single run say so."""
    last = runs[0].steps[-1].get("epoch") if len(runs) == 1 else None
    return f" (the last is at {last:.3g} epochs)" if last else ""


def columns_of(runs):
    return max(1, min(3, 200 // (max(len(run.name) for run in runs) + 50)))


def plot(runs, output):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
    pyplot.rcParams.update({"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.grid": True,
                            "grid.alpha": 0.25, "axes.spines.top": False, "axes.titlelocation": "left"})
    below = 0 if len(runs) == 1 else 0.25 * -(-len(runs) // columns_of(runs))  # inches
    figure = pyplot.figure(figsize=(12, 7.2 + below), constrained_layout=True)
    grid = figure.add_gridspec(2 if below == 0 else 3, 2, height_ratios=[1, 1] if below == 0 else [3.4, 3.4, below])
    axes = [figure.add_subplot(grid[place // 2, place % 2]) for place in range(4)]
    for draw, panel in zip((plot_loss, plot_speed, plot_time, plot_norm), axes):
        draw(panel, runs)
        panel.set_xlabel("step" + epochs_text(runs))
        panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        panel.margins(x=0.01)
    if below:
        plot_names(figure.add_subplot(grid[2, :]), runs)
    means = f", moving means over {window_of(runs)} steps" if window_of(runs) > 1 else ""
    figure.suptitle(runs[0].name if len(runs) == 1 else f"{len(runs)} runs{means}", fontsize=12)
    figure.savefig(output, dpi=130)


def folders_of(given):
    """Of a folder that is no run's: those of the runs in it, in the order of the numbers in their names."""
    folder = pathlib.Path(given)
    if not folder.is_dir() or (folder / "metrics.jsonl").exists():
        return [given]
    number = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
    order = lambda path: [float(part) if odd % 2 else part for odd, part in enumerate(re.split(f"({number})", str(path)))]
    return sorted((path.parent for path in folder.glob("*/metrics.jsonl")), key=order) or [given]


def name_by_difference(runs):
    """Gives the runs the names of the folders below the one that has them all, which it returns."""
    if len({run.folder for run in runs}) == 1:
        return runs[0].folder
    common = pathlib.Path(os.path.commonpath([run.folder for run in runs]))
    for run in runs:
        run.name = str(run.folder.relative_to(common))
    return common


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    parser.add_argument("-o", "--output", help="picture to write (default: plot.png in the run's folder, of several in the one that has them all)")
    parser.add_argument("--last-validation", action="store_true", help="only print the last held-out loss")
    arguments = parser.parse_args()
    try:
        runs = [Run(folder) for given in arguments.runs for folder in folders_of(given)]
    except OSError as error:
        sys.exit(f"plot_run.py: {error.filename}: {error.strerror}")
    common = name_by_difference(runs)
    if arguments.last_validation:
        for run in runs:
            last = f"{run.validation[-1][1]:.4f}" if run.validation else "none: the run came to no evaluation (evaluation.interval)"
            print(last if len(runs) == 1 else f"{run.name}: {last}")
        return
    begun = [run for run in runs if run.steps]
    if not begun:
        sys.exit(f"plot_run.py: no step in {arguments.runs[0]} yet")
    output = arguments.output or os.path.relpath(common / "plot.png")
    run_with("numpy", "matplotlib")
    try:
        plot(begun, output)
    except OSError as error:
        sys.exit(f"plot_run.py: {output}: {error.strerror}")
    except ValueError as error:  # a format that the library does not know
        sys.exit(f"plot_run.py: {output}: {error}")
    print(output)


if __name__ == "__main__":
    main()
