"""The newest numbers of a run as a text file for the textfile collector of Prometheus' node exporter."""

import math
import os
import pathlib
import re

# Names whose last part is a label: validation_losses/law is ztrain_validation_losses{set="law"}.
LABELS = {"seconds": "part", "bytes_sent": "axes", "validation_losses": "set"}


def quoted(text):
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'


class Prometheus:
    """Writes FILE.prom whole each time, beside it and then in its place: a reader never sees half of it."""

    def __init__(self, output, name, deck):
        path = pathlib.Path(output)
        self.path = path if path.suffix == ".prom" else path / "ztrain.prom"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.name, self.numbers = name, {}

    def add(self, row):
        self.numbers |= {"step": row.step, "time": row.time, **row.numbers}

    def line(self, name, value):
        first, _, last = name.partition("/")
        labels = {"run": self.name} | ({LABELS[first]: last} if last and first in LABELS else {})
        metric = "ztrain_" + re.sub(r"\W", "_", first if first in LABELS else name)
        text = ",".join(f"{key}={quoted(text)}" for key, text in labels.items())
        return metric, f"{metric}{{{text}}} {value!r}\n"

    def flush(self):
        found = {}
        for name, value in self.numbers.items():
            if math.isfinite(value):
                metric, line = self.line(name, value)
                found.setdefault(metric, []).append(line)
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        temporary.write_text("".join(f"# TYPE {metric} gauge\n{''.join(lines)}" for metric, lines in found.items()))
        os.replace(temporary, self.path)

    def close(self):
        self.flush()
        return f"node_exporter --collector.textfile.directory={self.path.parent}"
