"""What the user sees: progress, examples with their trained part marked, and the table at the end."""

import array
import sys
import time


class Counts:
    """Of the documents of one file."""

    def __init__(self):
        self.tokens, self.trained = 0, 0
        self.lengths = array.array("l")

    def add(self, ids, mask):
        self.tokens += len(ids)
        self.trained += int(mask[1:].sum())
        self.lengths.append(len(ids))

    def row(self):
        lengths = sorted(self.lengths)
        middle = len(lengths) // 2
        median = (lengths[middle] + lengths[-1 - middle]) / 2 if lengths else 0
        share = f" ({100 * self.trained / self.tokens:.1f}%)" if self.tokens else ""
        return [
            f"{len(lengths):,}",
            f"{self.tokens:,}",
            f"{self.trained:,}{share}",
            f"{lengths[-1] if lengths else 0:,}",
            f"{median:,.0f}",
        ]


HEADER = ["documents", "tokens", "trained", "longest", "median"]


def table(named_counts):
    """[(file, Counts)] as aligned lines."""
    rows = [["", *HEADER]] + [[name, *counts.row()] for name, counts in named_counts]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


class Progress:
    """A line that is written anew each second on a terminal; else one each half minute."""

    def __init__(self, stream=sys.stderr):
        self.stream, self.terminal = stream, stream.isatty()
        self.begin = self.last = time.monotonic()
        self.written = False

    def show(self, documents, tokens, size):
        now = time.monotonic()
        if now - self.last < (1 if self.terminal else 30):
            return
        self.last, self.written = now, True
        seconds = now - self.begin
        line = f"{documents:,} documents, {tokens:,} tokens, {size / seconds / 1e6:.1f} M characters/s"
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
