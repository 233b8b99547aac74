"""Checkpoints that are damaged, and a disk that is full."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import xxhash
import ztrain_run as zt


def reseal(folder):
    """As if the index.h5 of a checkpoint had been saved with what a test has put there."""
    block, seed = 1 << 20, 0
    index = (folder / "index.h5").read_bytes()
    for begin in range(0, len(index), block):
        seed = xxhash.xxh3_64_intdigest(index[begin : begin + block], seed)
    metadata = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps({**metadata, "index_checksum": f"{seed:016x}"}))


class Damage(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sound = cls.train(2, "sound", {"checkpoint.interval": 3})

    def copy(self, name):
        output = self.folder / name
        shutil.copytree(self.sound, output)
        return output, output / "checkpoints" / "step_6"

    def refuse(self, output, *patterns):
        result = zt.run(
            2,
            [self.deck, *zt.words_of({"run.output": output, "run.steps": 9, "checkpoint.resume": "auto"})],
            timeout=20,
        )
        self.assert_refused(result, *patterns)
        self.assertEqual(zt.losses(output), zt.losses(self.sound), "a refused resume changed the metrics")
        self.assertTrue((output / "checkpoints" / "step_3" / "index.h5").exists())
        return result

    def test_truncated_shard(self):
        output, checkpoint = self.copy("truncated")
        os.truncate(checkpoint / "shard_0000.h5", (checkpoint / "shard_0000.h5").stat().st_size - 1000)
        self.refuse(
            output,
            r"\S+/step_6/shard_0000\.h5: is truncated or was changed",
            r"its path as checkpoint\.resume",
        )
        older = self.train(2, "older", {"run.steps": 9, "checkpoint.resume": checkpoint.parent / "step_3"})
        self.assertEqual(list(zt.losses(older)), list(range(4, 10)))

    def test_changed_bytes(self):
        output, checkpoint = self.copy("changed")
        shard = checkpoint / "shard_0000.h5"
        data = bytearray(shard.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 4] = bytes(255 - b for b in data[middle : middle + 4])
        shard.write_bytes(data)
        self.refuse(
            output,
            r"step_6/shard_0000\.h5: \d+ bytes at offset \d+ do not have their checksum",
            r"while reading \S+ of \S+\.weight",
        )

    def test_missing_shard(self):
        output, checkpoint = self.copy("missing")
        (checkpoint / "shard_0000.h5").unlink()
        self.refuse(output, r"cannot read '\S+step_6/shard_0000\.h5': No such file")

    def test_truncated_index(self):
        output, checkpoint = self.copy("index")
        os.truncate(checkpoint / "index.h5", 1000)
        self.refuse(output, r"step_6/index\.h5: is damaged: its bytes do not have the checksum that metadata\.json has of them")

    def test_edited_metadata(self):
        """They are told of as what they are: index.h5 has nothing to do with it."""
        changes = {
            "step": ({"step": 99}, r"step_6/metadata\.json: was changed: it is not what index\.h5 has of it"),
            "null": ({"index_checksum": None}, r"step_6/metadata\.json: was changed: it has no index_checksum"),
            "empty": (None, r"step_6/metadata\.json: (is damaged: its 0 bytes are no JSON|is not valid JSON)"),
        }
        for name, (change, told) in changes.items():
            output, checkpoint = self.copy(f"edited_{name}")
            file = checkpoint / "metadata.json"
            before = json.loads(file.read_text())
            file.write_text("" if change is None else json.dumps({**before, **change}))
            self.assertNotIn("index.h5: is damaged", self.refuse(output, told).output)

    def test_numbers_of_steps_that_cannot_be(self):
        for number, told in ((b"7", "7"), (b"-", r".*"), (b".", r".*")):
            output, checkpoint = self.copy(f"count_{told[0]}{number[0]}")
            index = checkpoint / "index.h5"
            before = index.read_bytes()
            self.assertEqual(before.count(b'"optimizer_steps":6'), 1)
            index.write_bytes(before.replace(b'"optimizer_steps":6', b'"optimizer_steps":' + number))
            metadata = checkpoint / "metadata.json"
            metadata.write_bytes(metadata.read_bytes().replace(b'"optimizer_steps": 6', b'"optimizer_steps": 7'))
            reseal(checkpoint)
            self.refuse(output, rf"step_6.*(optimizer_steps = {told} is no integer from 0 to 6|damaged)")

    def test_empty_folder_that_calls_itself_a_checkpoint(self):
        output, checkpoint = self.copy("empty")
        (checkpoint.parent / "step_8").mkdir()
        self.refuse(output, r"step_8/index\.h5: there is no such file")

    def test_unfinished_checkpoint_is_passed_over(self):
        output, checkpoint = self.copy("unfinished")
        (checkpoint.parent / "step_8.tmp").mkdir()
        self.train(2, "unfinished", {"run.steps": 9, "checkpoint.resume": "auto"})
        self.assertIn("training starts at step 7 of 9", self.last.out)
        self.assertFalse(
            (checkpoint.parent / "step_8.tmp").exists(), "the remains of a save that died stay for ever"
        )


def mount_small_disk(case, options="size=1m"):
    """A file system of 1 MiB for the tests of a class; skips them where none can be had."""
    disk = pathlib.Path(tempfile.mkdtemp(prefix="ztrain-disk-"))
    case.addClassCleanup(shutil.rmtree, disk, ignore_errors=True)
    if os.geteuid() != 0:
        raise zt.unittest.SkipTest("only root mounts")
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True)
    if mount.returncode != 0:
        raise zt.unittest.SkipTest(f"cannot mount: {mount.stderr.decode()}")
    case.addClassCleanup(subprocess.run, ["umount", str(disk)], check=True)
    return disk


class FullDisk(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disk = mount_small_disk(cls)

    def test_full_disk_during_a_save(self):
        output = self.folder / "out"
        words = [
            self.deck,
            *zt.words_of(
                {
                    "run.output": output,
                    "run.steps": 8,
                    "checkpoint.folder": self.disk,
                    "checkpoint.interval": 2,
                    "checkpoint.keep": 0,
                }
            ),
        ]
        result = zt.run(2, words, timeout=20)
        self.assert_refused(
            result,
            rf"{self.disk}/step_4\.tmp/\S+: cannot write at byte \d+: No space left on device",
            r"make room, or set checkpoint\.folder",
        )
        self.assertEqual(zt.names_in(self.disk), ["step_2"])
        self.assertEqual(list(zt.losses(output)), [1, 2, 3, 4])
        resumed = self.train(2, "resumed", {"run.steps": 8, "checkpoint.resume": self.disk / "step_2"})
        straight = zt.losses(self.train(2, "straight", {"run.steps": 8}))
        self.assert_same({s: v for s, v in straight.items() if s > 2}, zt.losses(resumed))


class FullOutput(FullDisk):
    def test_full_disk_during_a_save(self):
        """Here metrics.jsonl has no room either."""
        (self.disk / "ballast").write_bytes(bytes(900 * 1024))
        words = [
            self.deck,
            *zt.words_of(
                {
                    "run.output": self.disk / "out",
                    "run.steps": 400,
                    "checkpoint.folder": self.folder / "checkpoints",
                }
            ),
        ]
        result = zt.run(2, words, timeout=40)
        self.assert_refused(result, r"cannot write \S+/out/metrics\.jsonl: No space left on device")


class NoMoreFiles(zt.Case):
    """A file system that has room, and takes no further names: HDF5 creates the file that is one too many, or the system a folder."""

    def test_the_system_is_quoted_and_not_hdf5(self):
        for names in (5, 6, 7):
            disk = mount_small_disk(self, f"size=30m,nr_inodes={names}")
            words = {"checkpoint.folder": disk, "checkpoint.interval": 1, "run.steps": 3, "run.output": self.folder / f"o{names}"}
            result = zt.run(2, [self.deck, *zt.words_of(words)], timeout=40)
            self.assert_refused(result, r"No space left on device")
            self.assertNotRegex(result.err, r"HDF5 says|errno =|filesystem error")


if __name__ == "__main__":
    zt.main()
