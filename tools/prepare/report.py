"""What the user sees: progress, examples with their trained part marked, and the table at the end."""

import array
import sys
import time

import numpy as np

from .packing import Packing


class Counts:
    """Counts of the documents of one file."""

    def __init__(self, sequence=0):
        self.tokens, self.trained = 0, 0
        self.lengths = array.array("l")
        self.packing = Packing(sequence) if sequence else None

    def add(self, ids, mask):
        self.tokens += len(ids)
        self.trained += int(mask[1:].sum())
        self.lengths.append(len(ids))
        if self.packing:
            self.packing.add(ids, mask)

    def row(self):
        lengths = np.frombuffer(self.lengths, np.dtype("l"))
        share = f" ({100 * self.trained / self.tokens:.1f}%)" if self.tokens else ""
        spread = np.percentile(lengths, (0, 50, 95, 100)) if len(lengths) else (0, 0, 0, 0)
        return [f"{len(lengths):,}", f"{self.tokens:,}", f"{self.trained:,}{share}", *(f"{length:,.0f}" for length in spread)]


HEADER = ["documents", "tokens", "trained", "shortest", "median", "p95", "longest"]


def table(named_counts):
    """[(file, Counts)] as aligned lines."""
    rows = [["", *HEADER]] + [[name, *counts.row()] for name, counts in named_counts]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def left_text(seconds):
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


class Progress:
    """A line that is written anew each second on a terminal; else one each half minute."""

    def __init__(self, stream=sys.stderr):
        self.stream, self.terminal = stream, stream.isatty()
        self.begin = self.last = time.monotonic()
        self.written = False

    def show(self, documents, tokens, share):
        """share: of the input, from 0 to 1; None if it is not known."""
        now = time.monotonic()
        if now - self.last < (1 if self.terminal else 30):
            return
        self.last, self.written = now, True
        seconds = now - self.begin
        line = f"{documents:,} documents, {tokens:,} tokens, {tokens / seconds:,.0f} tokens/s"
        if share:
            line += f", {100 * share:.1f}% of the input, {left_text(seconds * (1 - share) / share)} left"
        self.stream.write(f"\r\x1b[K{line}" if self.terminal else line + "\n")
        self.stream.flush()

    def close(self):
        if self.written and self.terminal:
            self.stream.write("\r\x1b[K")


def runs(mask):
    """(value, begin, end) of stretches of equal values."""
    begin = 0
    for i in range(1, len(mask) + 1):
        if i == len(mask) or mask[i] != mask[begin]:
            yield int(mask[begin]), begin, i
            begin = i


def example(tokenizer, ids, mask, number, color):
    """A document as text, its trained part in green, or between >>> and <<<."""
    trained = int(mask[1:].sum())
    text = f"--- document {number}: {len(ids)} tokens, {trained} trained\n"
    before, after = ("\x1b[32m", "\x1b[0m") if color else (">>>", "<<<")
    for value, begin, end in runs(mask):
        part = tokenizer.decode(ids[begin:end].tolist())
        text += before + part + after if value else part
    return text
