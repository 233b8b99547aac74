"""The rows of metrics.jsonl, as they are written; and what trackers get of them."""

import json
import os
import pathlib
import time
import tomllib


def flat(value, name=""):
    """{"seconds/total": 0.5, ...} of nested objects; numbers alone, and true and false as 1 and 0."""
    if isinstance(value, dict):
        return {key: number for part, item in value.items() for key, number in flat(item, f"{name}/{part}" if name else part).items()}
    return {name: value} if isinstance(value, (int, float)) else {}


class Row:
    """step; time: seconds since 1970; numbers: by their names, with / between the parts."""

    def __init__(self, record, now):
        self.step = record["step"]
        self.time = record["time"] if isinstance(record.get("time"), (int, float)) else now
        numbers = flat({key: value for key, value in record.items() if key not in ("step", "time")})
        self.numbers = {key: float(value) for key, value in numbers.items()}
        self.of_step = "loss" in record  # else of an evaluation, or of something else that happened


def row_of(line, now):
    """The Row of a line, or None for one that is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return Row(record, now) if isinstance(record, dict) and type(record.get("step")) is int else None


class Metrics:
    """Follows metrics.jsonl of a run."""

    def __init__(self, folder):
        given = pathlib.Path(folder).absolute()  # a folder that need not be there yet, or the file
        self.path = given if given.suffix == ".jsonl" else given / "metrics.jsonl"
        self.folder, self.file = self.path.parent, None

    def deck(self):
        """{"optimizer.lr": 0.1, ...} of the resolved deck; {} if there is none."""
        path, found = self.folder / "deck.resolved.toml", {}
        if path.is_file():
            for section, keys in tomllib.loads(path.read_text(encoding="utf-8")).items():
                found |= {f"{section}.{key}": value for key, value in keys.items()} if isinstance(keys, dict) else {section: keys}
        return found

    def begin(self):
        """All rows that are there, each step once, as it was run last. Throws OSError."""
        self.close()
        self.file = open(self.path, "rb")
        self.rest, self.last, rows = b"", 0, {}
        when = os.fstat(self.file.fileno()).st_mtime  # of rows that do not say it
        for row in self.lines(when):
            if row.of_step:  # what was behind it was taken back
                rows = {key: other for key, other in rows.items() if key[0] < row.step} if row.step <= self.last else rows
                self.last = row.step
            rows[row.step, not row.of_step, len(rows)] = row
        return [rows[key] for key in sorted(rows)]

    def lines(self, when):
        """Rows of the whole lines that have come."""
        text = self.rest + self.file.read()
        whole, _, self.rest = text.rpartition(b"\n")
        return [row for row in (row_of(line, when) for line in whole.splitlines()) if row]

    def more(self):
        """Rows that have come since; None if those before do not hold any more: the run was resumed at an earlier step."""
        if self.is_another():
            return None
        rows = self.lines(time.time())
        for row in rows:
            if row.of_step:
                if row.step <= self.last:
                    return None
                self.last = row.step
        return rows

    def is_another(self):
        try:
            named, own = os.stat(self.path), os.fstat(self.file.fileno())
        except FileNotFoundError:
            return False  # it may be replaced at this moment
        return (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino) or own.st_size < self.file.tell()

    def close(self):
        if self.file:
            self.file.close()
