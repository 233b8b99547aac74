"""A picture of the documents' lengths, and of how full their rows are: by matplotlib, or in characters."""

import math

import numpy as np

from packages import lacks

COLOURS = ["#4c78a8", "#e15759"]
BARS, WIDTH = 12, 40  # of the picture in characters


def edges_of(lengths, bars):
    """Bounds of bars, which grow by a factor where lengths differ much."""
    low, high = int(lengths.min()), int(lengths.max()) + 1
    grown = np.geomspace(low, high, bars + 1) if high > 8 * low else np.linspace(low, high, bars + 1)
    return np.unique(np.round(grown).astype(np.int64))


def in_characters(title, edges, counts):
    """Lines of a histogram; the last bound is not part of its bar."""
    most, names = max(counts), [f"{a:,} to {b - 1:,}" if b - 1 > a else f"{a:,}" for a, b in zip(edges, edges[1:])]
    width = max(map(len, names))
    bars = [f"  {name:>{width}} {'#' * math.ceil(WIDTH * n / most)} {n:,}" for name, n in zip(names, counts.tolist())]
    return "\n".join([title, *bars])


def texts(name, lengths, spaces, sequence):
    parts = []
    if len(lengths):
        edges = edges_of(lengths, BARS)
        parts.append(in_characters(f"lengths of {name} (tokens: documents)", edges, np.histogram(lengths, edges - 0.5)[0]))
    if spaces:
        edges = np.unique(np.round(np.linspace(0, sequence + 1, BARS + 1)).astype(np.int64))
        fills = np.array([sequence - space for space in spaces])
        counts = np.histogram(fills, edges - 0.5, weights=list(spaces.values()))[0].astype(np.int64)
        parts.append(in_characters(f"rows of {name} (tokens in a row: rows)", edges, counts))
    return "\n".join(parts)


def drawn(path, sets, sequence):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = 1 + any(spaces for _, _, spaces in sets)
    figure, axes = pyplot.subplots(1, panels, figsize=(6.5 * panels, 4), constrained_layout=True, squeeze=False)
    every = np.concatenate([lengths for _, lengths, _ in sets])
    edges = edges_of(every, 50)
    for (name, lengths, spaces), colour in zip(sets, COLOURS):
        axes[0][0].hist(lengths, edges, color=colour, alpha=0.7, label=f"{name}: {len(lengths):,} documents")
        if spaces:
            fills, rows = [sequence - space for space in spaces], list(spaces.values())
            axes[0][1].hist(fills, 50, (0, sequence), weights=rows, color=colour, alpha=0.7, label=f"{name}: {sum(rows):,} rows")
    if edges[-1] > 8 * edges[0]:
        axes[0][0].set_xscale("log")
    if sequence:
        axes[0][0].axvline(sequence, color="#444444", linewidth=1, linestyle="--", label=f"--sequence {sequence:,}")
    for panel, title in zip(axes[0], ("Lengths of documents (tokens)", f"Tokens in rows of {sequence:,}")):
        panel.set_title(title, loc="left", fontsize=10, fontweight="bold")
        panel.legend(frameon=False, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def picture(path, sets, sequence):
    """Writes the picture, and returns what is to be printed. sets: (name, lengths, {space: rows}) of each file. path "-":
    in characters, as also where matplotlib is missing."""
    if path != "-":
        try:
            drawn(path, sets, sequence)
            return f"picture {path}"
        except ModuleNotFoundError as missing:
            note = f"no picture {path}: {lacks(missing.name)}\n"
        except (OSError, ValueError) as error:  # ValueError: a format that the library does not know
            note = f"no picture {path}: {error}\n"
    else:
        note = ""
    return note + "\n".join(texts(*one, sequence) for one in sets)
