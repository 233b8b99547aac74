#!/usr/bin/env python3
"""Draws what the stages of a pipeline do when, as planned and as a run measured it.

    ztrain plan DECK --ranks N --json > plan.json
    tools/plot_schedule.py plan.json [RUN_FOLDER/timeline.json ...] [-o PICTURE.png]

A run writes timeline.json of the step that metrics.timeline_step names. Each file is a panel: a line for each rank of
the pipeline, with the number of the micro-batch where there is room, in the colours of the legend. Times of a run are
those of rank 0's clock. Needs matplotlib.
"""
import argparse
import json
import pathlib
import sys

from packages import lacks

# What is drawn, in the order of the legend: its name there and its colour.
KINDS = {
    "forward": ("forward", "#4c78a8"),
    "recompute": ("forward again", "#a0cbe8"),
    "backward": ("backward", "#59a14f"),
    "backward_inputs": ("backward for inputs", "#e8903a"),
    "backward_weights": ("backward for weights", "#8a6d9e"),
}


def timeline_of(path):
    """The ranks of a plan's or a run's file: [(name, [(does, micro-batch, begin, end)])]."""
    try:
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"plot_schedule.py: {path}: {error}")
    data = data.get("time", {}).get("pipeline") if "time" in data else data
    if not data or "ranks" not in data:
        sys.exit(f"plot_schedule.py: {path}: no timeline: the plan's mesh.pipeline is 1, or this is another file")
    ranks = [
        (f"rank {r['rank']}", [(w["does"], w["micro_batch"], w["begin"], w["end"]) for w in r["work"]])
        for r in data["ranks"]
    ]
    return data["schedule"], ranks


def idle_share(ranks):
    """Of the time from the first begin to the last end, what ranks do not work, on average."""
    first = min(begin for _, work in ranks for _, _, begin, _ in work)
    last = max(end for _, work in ranks for _, _, _, end in work)
    busy = sum(end - begin for _, work in ranks for _, _, begin, end in work)
    return 1 - busy / (len(ranks) * (last - first))


def turn_of(does):
    """A backward in parts, with what is computed again for it, is one turn."""
    return does if does in ("forward", "backward_weights") else "backward"


def turns(work, gap):
    """(micro-batch, begin, end) of what is done of one micro-batch without a gap."""
    found = []
    for does, micro, begin, end in work:
        turn = (micro, turn_of(does))
        if found and found[-1][0] == turn and begin - found[-1][2] < gap:
            found[-1][2] = end
        else:
            found.append([turn, begin, end])
    return [(micro, begin, end) for (micro, _), begin, end in found]


def draw(axes, title, ranks):
    from matplotlib import patheffects

    last = max(end for _, work in ranks for _, _, _, end in work)
    unit, name = (1e3, "ms") if last < 1 else (1, "s")
    for row, (_, work) in enumerate(ranks):
        # Edges are those of turns: around each part of a backward they would hide it.
        for does, _, begin, end in work:
            axes.barh(row, (end - begin) * unit, left=begin * unit, height=0.85, color=KINDS[does][1], linewidth=0)
        for micro, begin, end in turns(work, gap=0.002 * last):
            if end - begin > 0.004 * last:
                axes.barh(row, (end - begin) * unit, left=begin * unit, height=0.85, color="none", edgecolor="white", linewidth=0.6)
            if end - begin > 0.012 * last:
                text = axes.text((begin + end) / 2 * unit, row, str(micro), ha="center", va="center", fontsize=7, color="white")
                text.set_path_effects([patheffects.withStroke(linewidth=1.5, foreground="#333333")])
    axes.set_yticks(range(len(ranks)), [name for name, _ in ranks])
    axes.invert_yaxis()
    axes.set_xlim(0, last * unit)
    axes.set_xlabel(f"{name} from the start of the step")
    axes.set_title(title, fontsize=10, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def legend(axes, kinds, known=None, **place):
    """Names the kinds of `known` (or KINDS) that are drawn, above the axes on the right or where `place` says."""
    from matplotlib import patches

    handles = [patches.Patch(color=colour, label=name) for kind, (name, colour) in (known or KINDS).items() if kind in kinds]
    place = place or {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncol": len(handles)}
    axes.legend(handles=handles, fontsize=8, frameon=False, **place)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="of ztrain plan --json, or timeline.json of a run")
    parser.add_argument("-o", "--output", default="schedule.png")
    options = parser.parse_args()
    try:
        import matplotlib
    except ModuleNotFoundError as missing:
        sys.exit(f"plot_schedule.py: {lacks(missing.name)}")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [(path, *timeline_of(path)) for path in options.files]
    rows = sum(len(ranks) for _, _, ranks in panels)
    figure, all_axes = pyplot.subplots(
        len(panels), 1, figsize=(12, 1.1 * len(panels) + 0.34 * rows), squeeze=False, constrained_layout=True,
        height_ratios=[len(ranks) + 1 for _, _, ranks in panels],
    )
    for axes, (path, schedule, ranks) in zip(all_axes[:, 0], panels):
        share = idle_share(ranks)
        draw(axes, f"{schedule}: ranks idle {100 * share:.1f}% ({path})", ranks)
        print(f"{path}: {schedule}, {len(ranks)} ranks, idle {100 * share:.1f}%")
    legend(all_axes[0, 0], {does for _, _, ranks in panels for _, work in ranks for does, _, _, _ in work})
    figure.savefig(options.output, dpi=130)
    print(options.output)


if __name__ == "__main__":
    main()
