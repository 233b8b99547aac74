"""tools/track_run.py: what trackers read back is what metrics.jsonl says, also of runs that were resumed."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import ztrain_run as zt

TOOL = zt.SOURCE / "tools" / "track_run.py"
DECK = '[optimizer]\nname = "adamw"\nlr = 0.25\nbetas = [0.9, 0.95]\n[run]\nsteps = 20\n[data]\nshuffle = true\n'
RESTART = "restart"


def crc32c(data):
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def records(data):
    """The payloads of a TFRecord file, whose checksums must hold."""
    while data:
        [length] = struct.unpack("<Q", data[:8])
        payload, rest = data[12 : 12 + length], data[12 + length :]
        for covered, stored in ((data[:8], data[8:12]), (payload, rest[:4])):
            crc = crc32c(covered)
            masked = ((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF
            assert masked == struct.unpack("<I", stored)[0], "a checksum is wrong"
        yield payload
        data = rest[4:]


def fields(message):
    """[(number, value)] of a protobuf message; nested ones as bytes."""
    found, at = [], 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at, number, shift = at + 1, number | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
            continue
        size, layout = {1: (8, "<d"), 5: (4, "<f"), 2: (0, "")}[key & 7]
        size = size or varint()
        value = message[at : at + size]
        found.append((key >> 3, struct.unpack(layout, value)[0] if layout else value))
        at += size
    return found


def events(folder):
    """(kind, step, values) of the one event file: RESTART, or {tag: value}."""
    [path] = folder.iterdir()
    decoded = [fields(payload) for payload in records(path.read_bytes())]
    assert dict(decoded[0])[3] == b"brain.Event:2", decoded[0]
    for message in map(dict, decoded[1:]):
        if 7 in message:
            yield RESTART, message[2], dict(fields(message[7]))
        else:
            values = [dict(fields(value)) for _, value in fields(message[5])]
            yield "values", message[2], {value[1].decode(): value.get(2, value) for value in values}


class TrackRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ztrain-track-")
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name) / "run a"
        self.run_folder.mkdir()
        (self.run_folder / "deck.resolved.toml").write_text(DECK)
        self.metrics = self.run_folder / "metrics.jsonl"

    def row(self, step, loss=None):
        loss = 8 / step if loss is None else loss
        return {"step": step, "loss": loss, "mfu": None, "time": 1000.5 + step, "rerun": step == 2, "seconds": {"total": 0.5}, "tokens": 1 << 40}

    def write(self, rows, mode="w"):
        with open(self.metrics, mode) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))

    def replace(self, rows):
        """As a resumed run does."""
        new = self.metrics.with_suffix(".tmp")
        new.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.replace(new, self.metrics)

    def command(self, *words):
        return [sys.executable, "-B", *map(str, (TOOL, self.run_folder, *words))]

    def track(self, *words, code=0, env=None):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60, env=zt.environment(env), check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def losses(self):
        """{step: loss} as TensorBoard keeps them."""
        found = {}
        for kind, step, values in events(self.run_folder / "tensorboard"):
            if kind == RESTART:
                self.assertEqual(values, {1: 1})
                found = {key: loss for key, loss in found.items() if key < step}
            elif "loss" in values:
                found[step] = values["loss"]
        return found

    def test_event_files(self):
        self.write([self.row(1), self.row(2), {"step": 2, "validation_loss": 3.0, "validation_losses": {"law": 2.5}}, {**self.row(3), "loss": None}, {"step": "x"}, 7])
        with open(self.metrics, "a") as file:
            file.write('{"step": 4, "lo')
        for _ in range(2):  # the second takes the place of the first
            self.assertEqual(self.track("--to", "tensorboard").stdout, f"tensorboard --logdir {self.run_folder}/tensorboard\n")
        seen = list(events(self.run_folder / "tensorboard"))
        self.assertEqual(seen[0][:2], (RESTART, 0))
        first = {"loss": 8, "rerun": 0, "seconds/total": 0.5, "tokens": 2**40}
        self.assertEqual(seen[2], ("values", 1, first))
        self.assertEqual(seen[3], ("values", 2, {**first, "loss": 4, "rerun": 1}))
        self.assertEqual(seen[4], ("values", 2, {"validation_loss": 3, "validation_losses/law": 2.5}))
        self.assertEqual(seen[5:], [("values", 3, {"rerun": 0, "seconds/total": 0.5, "tokens": 2**40})])
        settings = seen[1][2]["_hparams_/session_start_info"]
        metadata = dict(fields(settings[9]))
        self.assertEqual((dict(fields(metadata[1]))[1], metadata[4]), (b"hparams", 2))
        session = dict(fields(dict(fields(metadata[1]))[2]))[3]
        pairs = [dict(fields(value)) for number, value in fields(session) if number == 1]
        found = {pair[1].decode(): fields(pair[2])[0] for pair in pairs}
        self.assertEqual(found["optimizer.lr"], (2, 0.25))
        self.assertEqual(found["optimizer.name"], (3, b"adamw"))
        self.assertEqual(found["optimizer.betas"], (3, b"[0.9, 0.95]"))
        self.assertEqual(found["data.shuffle"], (4, 1))
        [path] = (self.run_folder / "tensorboard").iterdir()
        payloads = [fields(payload) for payload in records(path.read_bytes())]
        self.assertEqual([dict(p)[1] for p in payloads[3:]][:2], [1001.5, 1002.5], "times of the rows")

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "needs tensorboard")
    def test_tensorboard_reads_them(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.plugins.hparams import metadata

        self.write([self.row(step) for step in range(1, 301)])
        self.track("--to", "tensorboard")
        read = EventAccumulator(str(self.run_folder / "tensorboard")).Reload()
        self.assertEqual([(e.step, e.value, e.wall_time) for e in read.Scalars("seconds/total")], [(s, 0.5, 1000.5 + s) for s in range(1, 301)])
        content = read.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        settings = metadata.parse_session_start_info_plugin_data(content)
        self.assertEqual(settings.hparams["optimizer.lr"].number_value, 0.25)
        self.assertEqual(settings.group_name, "run a")

    def test_steps_that_were_run_again_count_once(self):
        """A run goes back within one file, with an evaluation behind the steps that are taken back."""
        taken_back = [self.row(1), self.row(2), self.row(3, 99), {"step": 3, "validation_loss": 99.0}]
        self.write([*taken_back, {"step": 2, "went_back_from": 3}, self.row(3), self.row(4)])
        self.track("--to", "tensorboard")
        self.assertEqual(self.losses(), {1: 8, 2: 4, 3: struct.unpack("<f", struct.pack("<f", 8 / 3))[0], 4: 2})
        self.assertFalse(any("validation_loss" in values for _, _, values in events(self.run_folder / "tensorboard")))

    def test_a_run_that_goes_on_and_is_resumed(self):
        """The folder is made after the tool begins; the file grows, breaks off within a line, and is replaced."""
        shutil.rmtree(self.run_folder)
        process = subprocess.Popen(self.command("--to", "tensorboard", "--follow", "--every", "0.02"), stdout=subprocess.PIPE, text=True)
        with process:
            try:
                time.sleep(0.3)
                self.run_folder.mkdir()
                self.write([self.row(1), self.row(2)])
                zt.wait_for("two steps", lambda: self.seen() == [1, 2])
                with open(self.metrics, "a") as file:
                    half = json.dumps(self.row(4)) + "\n"
                    file.write(json.dumps(self.row(3)) + "\n" + half[:20])
                zt.wait_for("the third", lambda: self.seen() == [1, 2, 3])
                with open(self.metrics, "a") as file:
                    file.write(half[20:])
                zt.wait_for("the fourth", lambda: self.seen() == [1, 2, 3, 4])
                self.replace([self.row(1), self.row(2)])
                zt.wait_for("two steps again", lambda: self.seen() == [1, 2])
                self.write([self.row(3, 7.0)], "a")
                zt.wait_for("another third", lambda: self.seen() == [1, 2, 3])
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(30), 0)
                self.assertIn("tensorboard --logdir", process.stdout.read())
            finally:
                process.kill()
        self.assertEqual(self.losses(), {1: 8, 2: 4, 3: 7})

    def test_what_came_last_is_handed_over(self):
        """The tool hands it over though it looks seldom, and is told to end at once."""
        self.write([self.row(1)])
        with subprocess.Popen(self.command("--to", "tensorboard", "--follow", "--every", "60"), stdout=subprocess.PIPE) as process:
            try:
                zt.wait_for("its file", lambda: self.seen() == [1])
                self.write([self.row(2)], "a")
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(30), 0)
            finally:
                process.kill()
        self.assertEqual(self.seen(), [1, 2])
        self.track("--to", "tensorboard", "--follow", "--every", "0.01", "--idle", "0.001")

    def seen(self):
        """Steps of the event file; [] while it is being replaced."""
        try:
            return sorted(self.losses())
        except (OSError, ValueError, KeyError, IndexError, AssertionError, struct.error):
            return []

    def test_prometheus(self):
        self.write([self.row(1), {"step": 1, "validation_loss": 3.0, "validation_losses": {'a"b': 2.5}, "bytes_sent": {"shard*ring": 7}}, self.row(2)])
        out = self.run_folder / "textfiles" / "my.prom"
        self.track("--to", "prometheus", "--output", out, "--name", "mine")
        lines = out.read_text().splitlines()
        for line in (
            'ztrain_step{run="mine"} 2',
            'ztrain_loss{run="mine"} 4.0',
            'ztrain_seconds{run="mine",part="total"} 0.5',
            'ztrain_validation_losses{run="mine",set="a\\"b"} 2.5',
            'ztrain_bytes_sent{run="mine",axes="shard*ring"} 7.0',
        ):
            self.assertIn(line, lines)
            self.assertIn(f"# TYPE {line[: line.index('{')]} gauge", lines)
        self.assertEqual([path.name for path in out.parent.iterdir()], ["my.prom"])
        self.assertNotIn("mfu", out.read_text())
        other = shutil.copytree(self.run_folder, self.run_folder.with_name("run b"))
        self.track(other, "--to", "prometheus", "--output", out.parent / "all")
        self.assertEqual(sorted(path.name for path in (out.parent / "all").iterdir()), ["run a.prom", "run b.prom"])
        self.assertIn("two of the runs have one name", self.track(self.run_folder, "--to", "prometheus", "--output", out.parent, code=1).stderr)

    def test_packages_get_every_row(self):
        """Stand-ins of wandb and mlflow write down what they are called with; the real ones were tried by hand."""
        stand_ins = self.run_folder / "packages"
        (stand_ins / "mlflow" / "tracking").mkdir(parents=True)
        (stand_ins / "wandb.py").write_text(WANDB)
        (stand_ins / "mlflow" / "__init__.py").write_text("")
        (stand_ins / "mlflow" / "entities.py").write_text("Metric = lambda *words: ('metric', *words)\nParam = lambda *words: ('param', *words)\n")
        (stand_ins / "mlflow" / "tracking" / "__init__.py").write_text(MLFLOW)
        self.write([self.row(1), {"step": 1, "validation_loss": 3.0}, self.row(2)])
        for tracker, expected in (
            ("wandb", ["init offline run a 0.25", "log 1 8.0 None", "log 1 None 3.0", "log 2 4.0 None", "finish"]),
            ("mlflow", ["delete old", "run run a", "params optimizer.lr=0.25", "('loss', 8.0, 1001500, 1)", "('validation_loss', 3.0, ",
                        "('loss', 4.0, 1002500, 2)", "ended"]),
        ):
            said = self.track("--to", tracker, env={"PYTHONPATH": str(stand_ins)}).stdout
            at = -1
            for part in expected:
                at = said.find(part, at + 1)
                self.assertGreaterEqual(at, 0, f"{part} in\n{said}")

    def test_what_is_missing_is_named(self):
        done = self.track("--to", "tensorboard", code=1)
        self.assertEqual(done.stderr, f"track_run.py: {self.metrics}: No such file or directory\n")
        self.write([self.row(1)])
        for tracker in ("wandb", "mlflow"):
            hidden = self.run_folder / "hidden"
            hidden.mkdir(exist_ok=True)
            (hidden / f"{tracker}.py").write_text(f"raise ModuleNotFoundError('no', name='{tracker}')\n")
            done = self.track("--to", tracker, code=1, env={"PYTHONPATH": str(hidden)})
            self.assertRegex(done.stderr, rf"^track_run\.py: .*has no Python package {tracker}: .*pip install {tracker}")


WANDB = """
Settings = lambda **words: None
class Run:
    dir = "folder/files"
    def log(self, numbers, step): print("log", step, numbers.get("loss"), numbers.get("validation_loss"))
    def finish(self): print("finish")
def init(mode, settings, project, name, id, config, dir):
    print("init", mode, name, config["optimizer.lr"])
    return Run()
"""
MLFLOW = """
from types import SimpleNamespace as Of
class MlflowClient:
    def __init__(self, tracking_uri): pass
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name, artifact_location): return "7"
    def search_runs(self, experiments): return [Of(info=Of(run_name=n, run_id=i)) for n, i in (("run a", "old"), ("other", "kept"))]
    def delete_run(self, run): print("delete", run)
    def create_run(self, experiment, run_name): print("run", run_name); return Of(info=Of(run_id="new"))
    def log_batch(self, run, metrics=(), params=()):
        for kind, *words in metrics: print(tuple(words))
        for kind, key, value in params: print(f"params {key}={value}")
    def set_terminated(self, run): print("ended")
"""

if __name__ == "__main__":
    zt.main()
