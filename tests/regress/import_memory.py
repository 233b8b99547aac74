"""Models are read and written through blocks: a rank's memory grows by its shard and little besides."""

import re

import numpy as np

import hf_model as hf
import streamed_model
import ztrain_run as zt

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MIB = 2**20
# Beside the shard: one block, the tables of names, and whole pages (of 2 MiB) at the ends of units. The largest
# tensor alone has 16 MiB, the model 100 MiB.
BESIDE = 12 * MIB
SHAPE = {"hidden": 512, "inner": 2400, "layers": 7, "heads": 8, "vocabulary": 16000}
# A step that changes nothing.
KEYS = {
    **zt.STILL,
    "data.sequence": 8,
    "run.steps": 1,
    "precision.preset": "bf16",
    "model.vocab_size": None,
}
LORA = {"lora.rank": 4, "lora.alpha": 8, "lora.targets": ["down_proj", "q_proj"]}


def size(text):
    value, unit = text.split()
    return float(value) * UNITS[unit]


class Memory(zt.Case):
    on_disk = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bytes = streamed_model.write(cls.folder / "model", streamed_model.config_of(**SHAPE), 40_000_000)
        keys = {f"model.{key}": None for key in zt.SMALL_MODEL}
        ids = cls.folder / "ids.bin"
        ids.write_bytes(cls.text.read_text().encode("utf-16-le"))
        files = {"data.train": [str(ids)], "model.from": str(cls.folder / "model")}
        cls.deck = cls.write_deck("large", {**KEYS, **keys, **files})
        cls.tensors = hf.read_folder(cls.folder / "model")

    def check_ranks(self, ranks, shard):
        """What the run says of each rank's memory while it read the weights."""
        pattern = r"rank (\d): ([\d.]+ \w+) of weights; resident memory ([\d.]+ \w+) before, ([\d.]+ \w+) after, ([\d.]+ \w+) at"
        found = re.findall(pattern, self.last.out)
        self.assertEqual([int(row[0]) for row in found], list(range(ranks)), self.last.out)
        for rank, weights, before, after, peak in found:
            weights, before, after, peak = map(size, (weights, before, after, peak))
            self.assertAlmostEqual(weights, shard, delta=0.02 * shard)
            self.assertGreater(after - before, 0.95 * weights, f"rank {rank}: nothing was read, or it was measured late")
            self.assertLessEqual(after - before, weights + BESIDE, self.last.out)
            self.assertLessEqual(peak - before, weights + BESIDE, self.last.out)

    def export(self, ranks, checkpoint, name, *words):
        """Exports, and compares each rank's memory at its peak with that of a command that reads nothing."""
        words = ["export", checkpoint, "--to", self.folder / name, *words]
        log = self.folder / f"{name}.log"
        process, peaks = zt.start(ranks, words, log), {}
        while process.poll() is None:
            for rank, pid in zt.rank_processes(process.pid).items():
                peaks[rank] = max(peaks.get(rank, 0), zt.peak_memory(pid))
        self.assertEqual(process.returncode, 0, log.read_text())
        self.assertEqual(sorted(peaks), list(range(ranks)))
        for rank, peak in peaks.items():
            self.assertGreater(peak, 10 * MIB, "too late to see anything")
            self.assertLessEqual(peak, 70 * MIB, f"rank {rank}: the program alone has some 35 MiB")
        return hf.read_folder(self.folder / name)

    def test_masters_in_fp32(self):
        output = self.train(2, "two", {})
        self.check_ranks(2, self.bytes * 2 / 2)
        found = self.export(2, output / "checkpoints" / "step_1", "exported_two")
        self.assertEqual(sorted(found), sorted(self.tensors))
        differing = [name for name in found if found[name] != self.tensors[name]]
        self.assertEqual(differing, [])

    def test_pure_bf16(self):
        self.train(3, "three", {"precision.preset": "bf16-pure", "batch.global": 3, "checkpoint.interval": -1})
        self.check_ranks(3, self.bytes / 3)

    def test_merged_and_from_a_checkpoint(self):
        """Adapters of tensors of several blocks, which begin within rows; then a start from that checkpoint."""
        keys = {**LORA, "optimizer.lr": 1e-2, "optimizer.eps": 1e-8, "precision.preset": "fp32", "checkpoint.frozen": True}
        checkpoint = self.train(2, "lora", keys) / "checkpoints" / "step_1"
        found = self.export(2, checkpoint, "merged", "--dtype", "fp32")
        weights = {n[6:]: a for n, a in zt.tensors(checkpoint).items() if n.startswith("model/")}
        for name in ("model.layers.6.self_attn.q_proj.weight", "model.layers.3.mlp.down_proj.weight"):
            a, b = (weights[name.replace(".weight", f".lora_{x}.weight")].astype("f8") for x in "AB")
            got = np.frombuffer(found[name][2], "<f4").reshape(weights[name].shape)
            exact = weights[name] + 2 * (b @ a)
            self.assertLessEqual(np.abs(got - exact).max(), 2.0**-24 * np.abs(exact).max(), name)
            self.assertGreater(np.abs(got - weights[name]).max(), 1e-5, name)
        self.train(2, "again", {**keys, "model.from": checkpoint})
        adapters = sum(a.nbytes for n, a in weights.items() if ".lora_" in n)
        self.check_ranks(2, self.bytes + adapters / 2)


if __name__ == "__main__":
    zt.main()
