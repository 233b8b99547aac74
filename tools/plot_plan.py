#!/usr/bin/env python3
"""Draws a trace: a rank's memory over the step by category, with what fills the peak, and the time lines of its streams.

    ztrain plan DECK --ranks N --trace plan.json
    tools/plot_plan.py plan.json -o plan.png
    tools/plot_plan.py RUN_FOLDER/trace/rank*_trace.json [--rank N] -o run.png

Memory, and all streams, are those of the rank with the largest peak, or of --rank. Other ranks have the stream that computes.
GB are 1e9 bytes. Needs numpy and matplotlib, of this Python or of another on this machine.
"""
import argparse
import collections
import sys

from merge_traces import DRIVING, WAITING, Trace
from packages import run_with
from plot_schedule import KINDS, legend

# What a stream does, in the order of the legend: its name there and its colour. plot_schedule.py has those that compute.
DOES = KINDS | {
    "gather": ("gather", "#e15759"),
    "reduce": ("reduce", "#b8383b"),
    "send": ("send", "#d4a017"),
    "recv": ("receive", "#f0d58c"),
    "fetch": ("fetch", "#76b7b2"),
    "evict": ("evict", "#4f8f8a"),
    "norm": ("norm", "#7f7f7f"),
    "optimize": ("optimizer", "#9c755f"),
    "together": ("many micro-batches", "#c7c7c7"),
    DRIVING: ("host drives communication", "#f4c2c2"),
    "run": ("step, data, saves", "#dddddd"),
    WAITING: ("waits", "#f7dfe0"),
}
CATEGORIES = {
    "parameters": "#4c78a8", "master weights": "#1f4e79", "optimizer": "#9ecae9", "gradients": "#59a14f", "gathered": "#e15759",
    "activations": "#f2a65a", "inputs": "#bab0ac", "scalars": "#79706e", "workspace": "#b07aa1", "cache": "#edc948", "snapshot": "#76b7b2",
}
SPARE = ["#8c564b", "#17becf", "#bcbd22", "#7f7f7f"]  # for categories that are not listed above
MOST_RANKS = 16  # whose stream that computes is drawn


def unit_of(largest, units):
    """The first of units that leaves the number 1 or more: (factor, name)."""
    return next(((factor, name) for factor, name in units if largest >= factor), units[-1])


def bytes_unit(largest):
    return unit_of(largest, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")])


def seconds_unit(last):
    factor, name = unit_of(last, [(1e6, "s"), (1e3, "ms"), (1, "µs")])
    return 1 / factor, name


def peaks_of(trace):
    """The mark of the largest peak of each process, on the tier that its device computes in."""
    peaks = {}
    for event in trace.events:
        if event["ph"] == "i" and event["args"].get("tier") == "device":
            if event["pid"] not in peaks or event["args"]["bytes"] > peaks[event["pid"]]["args"]["bytes"]:
                peaks[event["pid"]] = event
    return peaks


def memory_of(trace, rank):
    """Times and, by category, bytes from then on; the categories that are always there first."""
    points = [event for event in trace.events if event["ph"] == "C" and event["pid"] == rank and event["name"] == "memory (device)"]
    categories = {category for point in points for category in point["args"]}
    values = {category: [point["args"].get(category, 0) for point in points] for category in categories}
    order = sorted(categories, key=lambda category: (max(values[category]) - min(values[category]), category))
    return [point["ts"] for point in points], {category: values[category] for category in order}


def draw_memory(axes, trace, rank, last):
    import numpy

    when, values = memory_of(trace, rank)
    peak, facts = peaks_of(trace)[rank], trace.facts[0]
    size, name = bytes_unit(peak["args"]["bytes"])
    scale, _ = seconds_unit(last)
    spare = iter(SPARE * 3)
    times = numpy.append(when, max(last, when[-1])) * scale
    rows = numpy.array([[*row, row[-1]] for row in values.values()]) / size
    colours = [CATEGORIES.get(category) or next(spare) for category in values]
    axes.stackplot(times, rows, colors=colours, step="post", linewidth=0)
    at, top = peak["ts"] * scale, peak["args"]["bytes"] / size
    axes.plot([at], [top], marker="v", color="black", markersize=6, clip_on=False, zorder=5)
    highest = top
    for bytes_, text in ((facts["planned_bytes"], "planned"), (facts["device_limit"], "limit")):
        if 0 < bytes_ < 3 * peak["args"]["bytes"]:
            axes.axhline(bytes_ / size, color="#333333", linewidth=0.9, linestyle="--" if text == "planned" else "-")
            axes.annotate(f"{text} {bytes_ / size:.3g} {name}", (1, bytes_ / size), xycoords=("axes fraction", "data"), xytext=(-3, 2),
                          textcoords="offset points", ha="right", va="bottom", fontsize=7.5)
            highest = max(highest, bytes_ / size)
    axes.set_ylim(0, 1.12 * highest)
    axes.set_ylabel(f"memory in use, {name}")
    title = shortened(trace.processes[rank], 80)
    axes.set_title(f"{title}: peak {top:.3g} {name} at {at:.3g} {seconds_unit(last)[1]}", fontsize=10, loc="left")
    return dict(zip(values, colours))


def shortened(text, most):
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most - most // 2):]}"


def draw_peak(axes, peak, colours):
    """The legend of the memory, with what each category and the largest tensors have at the peak."""
    args = peak["args"]
    size, unit = bytes_unit(args["bytes"])
    lines = [("in use at the peak", unit, None)]
    used = {name: value for name, value in args["categories"].items() if name in colours}
    lines += [(name, f"{value / size:.3g}", colours[name]) for name, value in sorted(used.items(), key=lambda entry: -entry[1])]
    lines += [("", "", None), ("its largest tensors", unit, None)]
    lines += [(shortened(name, 28), f"{value / size:.3g}", "none") for name, value in args["largest"].items()]
    axes.axis("off")
    for row, (name, value, colour) in enumerate(lines):
        style = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 7.5, "va": "top", "weight": "normal" if colour else "bold"}
        axes.annotate(name, (0, 1), xytext=(12 if colour else 0, -12.5 * row), **style)
        axes.annotate(value, (1, 1), xytext=(0, -12.5 * row), ha="right", **style)
        if colour not in (None, "none"):
            axes.annotate("■", (0, 1), xytext=(0, -12.5 * row), color=colour, **style)


def rows_of(trace, rank):
    """(label, tracks): all streams of the rank, and of the first others what computes."""
    by_process = collections.defaultdict(list)
    for (process, thread), name in sorted(trace.threads.items()):
        by_process[process].append(((process, thread), name))
    rows = []
    for process in sorted(by_process):
        for track, name in by_process[process]:
            if process == rank:
                rows.append((f"{name}, rank {process}" if len(by_process) > 1 else name, track))
            elif name == "compute":
                rows.append((f"{name}, rank {process}", track))
    if len(rows) > MOST_RANKS + 20:
        rows = [row for row in rows if row[1][0] == rank] + [row for row in rows if row[1][0] != rank][:MOST_RANKS]
    return rows


def bars(slices, least):
    """[(begin, duration)] without gaps that are too short to be seen."""
    found = []
    for begin, duration in slices:
        if found and begin - (found[-1][0] + found[-1][1]) < least:
            found[-1][1] = max(found[-1][1], begin + duration - found[-1][0])
        else:
            found.append([begin, duration])
    return [(begin, max(duration, least)) for begin, duration in found]


def draw_streams(axes, trace, rows, last):
    """Returns the categories that are drawn."""
    scale, name = seconds_unit(last)
    row_of = {track: row for row, (_, track) in enumerate(rows)}
    slices = collections.defaultdict(list)
    for event in trace.slices():
        row = row_of.get((event["pid"], event["tid"]))
        if row is not None and event["dur"] > 0:
            slices[row, event["cat"]].append((event["ts"] * scale, event["dur"] * scale))
            if event["cat"] == "run" and event["dur"] > 0.05 * last:
                axes.text((event["ts"] + 3e-3 * last) * scale, row, event["name"], fontsize=6.5, va="center", clip_on=True)
    for (row, category), pieces in slices.items():
        _, colour = DOES.get(category, (category, "#555555"))
        style = {"facecolors": colour, "linewidth": 0, "zorder": 1 if category == WAITING else 2}
        if category == "run":
            style |= {"linewidth": 0.8, "edgecolor": "white"}
        least = last * scale / 1200
        axes.broken_barh(pieces if category == "run" else bars(pieces, least), (row - 0.4, 0.8), **style)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(f"{name} from the start")
    return {category for _, category in slices}


def draw(figure, trace, rank, last):
    rows = rows_of(trace, rank)
    grid = figure.add_gridspec(3, 2, width_ratios=[3.6, 1], height_ratios=[3.6, 0.5 + 0.24 * len(rows), 0.4])
    memory = figure.add_subplot(grid[0, 0])
    streams = figure.add_subplot(grid[1, 0], sharex=memory)
    colours = draw_memory(memory, trace, rank, last)
    draw_peak(figure.add_subplot(grid[:, 1]), peaks_of(trace)[rank], colours)
    shown = draw_streams(streams, trace, rows, last)
    memory.set_xlim(0, last * seconds_unit(last)[0])
    memory.tick_params(labelbottom=False)
    below = figure.add_subplot(grid[2, 0])
    below.axis("off")
    legend(below, shown, DOES, loc="center", ncol=8)
    for axes in (memory, streams):
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--rank", type=int, help="whose memory and streams are drawn; default: the one with the largest peak")
    parser.add_argument("-o", "--output", default="plan.png")
    options = parser.parse_args()
    run_with("numpy", "matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    trace = Trace(options.traces, "plot_plan.py")
    peaks = peaks_of(trace)
    rank = max(peaks, key=lambda process: peaks[process]["args"]["bytes"]) if options.rank is None else options.rank
    if rank not in peaks:
        sys.exit(f"plot_plan.py: --rank {rank}: the traces have ranks {', '.join(map(str, sorted(peaks)))}")
    last = max(event["ts"] + event["dur"] for event in trace.slices())
    figure = pyplot.figure(figsize=(13, 5.2 + 0.24 * len(rows_of(trace, rank))), constrained_layout=True)
    draw(figure, trace, rank, last)
    figure.savefig(options.output, dpi=130)
    size, unit = bytes_unit(peaks[rank]["args"]["bytes"])
    print(f"{options.output}: rank {rank}, peak {peaks[rank]['args']['bytes'] / size:.4g} {unit}")


if __name__ == "__main__":
    main()
