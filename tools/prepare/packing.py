"""How documents will fill rows of --sequence tokens: what `ztrain` makes of them by default, from their lengths alone."""

import bisect

import numpy as np


class Packing:
    """Counts documents by their length, cut to a row; those without a token to predict there are left out, as a run does."""

    def __init__(self, sequence):
        self.sequence, self.longer = sequence, 0
        self.lengths = np.zeros(sequence + 1, np.int64)

    def add(self, ids, mask):
        self.longer += len(ids) > self.sequence
        if mask[1 : self.sequence + 1].any():
            self.lengths[min(len(ids), self.sequence)] += 1

    def tokens(self):
        return int(self.lengths @ np.arange(self.sequence + 1))

    def spaces(self):
        """{tokens left in a row: number of such rows} after best-fit decreasing. All documents of one length are placed at
        once: the row with the least space that holds one is, with what is left of it, also the best for the next."""
        rows, sizes = {}, []  # sizes: the spaces of rows, in rising order

        def change(space, count):
            if space not in rows:
                bisect.insort(sizes, space)
            rows[space] = rows.get(space, 0) + count
            if rows[space] == 0:
                del rows[space], sizes[bisect.bisect_left(sizes, space)]

        for length in np.flatnonzero(self.lengths)[::-1].tolist():
            left = int(self.lengths[length])
            while left:
                at = bisect.bisect_left(sizes, length)
                space = sizes[at] if at < len(sizes) else self.sequence
                each = min(space // length, left)
                many = left // each if at == len(sizes) else min(rows[space], left // each)
                if at < len(sizes):
                    change(space, -many)
                change(space - each * length, many)
                left -= many * each
        return rows

    def line(self, spaces):
        rows = sum(spaces.values())
        share = 100 * self.tokens() / (rows * self.sequence) if rows else 0
        longer = f"; {self.longer:,} documents are longer" + (" (data.long_documents)" if self.longer else "")
        return f"{rows:,} rows of {self.sequence:,}, {share:.1f}% of them used{longer}"
