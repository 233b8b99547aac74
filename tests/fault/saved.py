"""Checkpoints that are damaged, and a disk that is full."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import xxhash
import ztrain_run as zt


def checksum(data):
    block, seed = 1 << 20, 0
    for begin in range(0, len(data), block):
        seed = xxhash.xxh3_64_intdigest(data[begin : begin + block], seed)
    return f"{seed:016x}"


def reseal(folder):
    """As if the index.h5 of a checkpoint had been saved with what a test has put there."""
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata.pop("metadata_checksum")
    metadata["index_checksum"] = checksum((folder / "index.h5").read_bytes())
    text = lambda: json.dumps(metadata, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    metadata["metadata_checksum"] = checksum(text().encode())
    (folder / "metadata.json").write_text(text())


class Damage(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sound = cls.train(2, "sound", {"checkpoint.interval": 3})

    def copy(self, name):
        output = self.folder / name
        shutil.copytree(self.sound, output)
        return output, output / "checkpoints" / "step_6"

    def go_on(self, output, resume="auto"):
        overrides = {"run.output": output, "run.steps": 9, "checkpoint.resume": resume, "checkpoint.keep": 2}
        return zt.run(2, [self.deck, *zt.words_of(overrides)], timeout=20)

    def refuse(self, output, *patterns):
        """What no checkpoint can be the cause of is not passed over."""
        result = self.go_on(output)
        self.assert_refused(result, *patterns)
        self.assertEqual(zt.losses(output), zt.losses(self.sound), "a refused resume changed the metrics")
        self.assertTrue((output / "checkpoints" / "step_3" / "index.h5").exists())
        return result

    def pass_over(self, output, *patterns, name="step_6"):
        """The one before is taken; the damaged one is named, and stays as it is, where it is."""
        checkpoints = output / "checkpoints"
        damaged = checkpoints / name
        before = {path: path.read_bytes() for path in damaged.iterdir()}
        refused = self.go_on(output, damaged)
        self.assert_refused(refused, *(patterns if before else [r"checkpoint\.resume: \S+ is no checkpoint"]))
        result = self.go_on(output)
        self.assertEqual(result.code, 0, str(result))
        self.assert_no_crash(result)
        older = "step_3" if name == "step_6" else "step_6"
        self.assertRegex(result.out, rf"\nwarning: checkpoint \S+/{name} is damaged; it stays as it is, and step_\d+ is taken: ")
        self.assertRegex(result.out, rf"\ngoes on from checkpoint \S+/{older} \(step {older[5:]},")
        for pattern in patterns:
            self.assertRegex(result.out, pattern)
        self.assertNotIn("checkpoint.resume", result.out)
        self.assertEqual({path: path.read_bytes() for path in damaged.iterdir()}, before)
        self.assertEqual(zt.names_in(checkpoints), sorted([older, name, "step_9"]), "a damaged one counts for none")
        self.assertEqual(list(zt.losses(output)), list(range(1, 10)))
        return result

    def test_truncated_shard(self):
        output, checkpoint = self.copy("truncated")
        os.truncate(checkpoint / "shard_0000.h5", (checkpoint / "shard_0000.h5").stat().st_size - 1000)
        self.pass_over(output, r"\S+/step_6/shard_0000\.h5: is truncated or was changed")

    def test_changed_bytes(self):
        output, checkpoint = self.copy("changed")
        shard = checkpoint / "shard_0000.h5"
        data = bytearray(shard.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 4] = bytes(255 - b for b in data[middle : middle + 4])
        shard.write_bytes(data)
        self.pass_over(
            output,
            r"step_6/shard_0000\.h5: \d+ bytes at offset \d+ do not have their checksum",
            r"while reading \S+ of \S+\.weight",
        )

    def test_missing_shard(self):
        output, checkpoint = self.copy("missing")
        (checkpoint / "shard_0000.h5").unlink()
        self.pass_over(output, r"cannot read '\S+step_6/shard_0000\.h5': No such file")

    def test_truncated_index(self):
        output, checkpoint = self.copy("index")
        os.truncate(checkpoint / "index.h5", 1000)
        self.pass_over(output, r"step_6/index\.h5: is damaged: its bytes do not have the checksum that metadata\.json has of them")

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
            self.assertNotIn("index.h5: is damaged", self.pass_over(output, told).output)

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
        self.pass_over(output, r"step_8/index\.h5: there is no such file", name="step_8")

    def test_bytes_that_no_resume_reads(self):
        output, checkpoint = self.copy("frame")
        shard = checkpoint / "shard_0000.h5"
        data = bytearray(shard.read_bytes())
        data[700] ^= 4
        shard.write_bytes(data)
        self.pass_over(output, r"step_6/shard_0000\.h5: is damaged: the bytes around its tensors do not have their checksum")

    def test_none_is_sound(self):
        """A run that began anew would be taken for the one that was."""
        output, checkpoint = self.copy("none")
        for name in ("step_3", "step_6"):
            (checkpoint.parent / name / "metadata.json").unlink()
        result = self.go_on(output)
        self.assert_refused(result, r"step_3/metadata\.json: is missing", r"checkpoint\.resume = \"none\"")
        self.assertIn("/step_6 is damaged", result.out)
        self.assertEqual(zt.losses(output), zt.losses(self.sound))

    def verify(self, checkpoint, ranks=0, words=()):
        return zt.run(ranks, ["verify", checkpoint, *words], timeout=20)

    def test_verify(self):
        output, checkpoint = self.copy("verify")
        sound = self.verify(checkpoint)
        self.assertEqual(sound.code, 0, str(sound))
        self.assertRegex(sound.out, r"^\S+/step_6: sound: \d+ tensors, \S+ KiB, in 3 files\n$")
        shard = checkpoint / "shard_0000.h5"
        data = bytearray(shard.read_bytes())
        for at in (700, len(data) // 2, len(data) - 1):
            data[at] ^= 1
        shard.write_bytes(data)
        for ranks in (0, 2):
            damaged = self.verify(checkpoint, ranks)
            self.assertEqual(damaged.code, 1, str(damaged))
            self.assertEqual(damaged.out.count("shard_0000.h5: "), 3, str(damaged))
            self.assertRegex(damaged.out, r"\S+/step_6: damaged\n$")
        told = json.loads(self.verify(checkpoint, 2, ["--json"]).out)
        self.assertEqual((told["sound"], len(told["faults"]), told["covers_all"]), (False, 3, True))
        self.assert_refused(self.verify(self.folder / "nowhere"), r"is no checkpoint of ztrain")

    def test_what_this_process_cannot_read_is_not_called_damaged(self):
        """It may write no file as large as the copy of index.h5 that it would have in memory."""
        _, checkpoint = self.copy("unread")
        limited = lambda *words: subprocess.run(
            ["bash", "-c", 'ulimit -f 8; exec "$0" verify "$@"', zt.EXECUTABLE, checkpoint, *words],
            capture_output=True, text=True, check=False, timeout=20)  # fmt: skip
        done = limited()
        self.assertEqual(done.returncode, 1, str(done))
        self.assertRegex(done.stdout, r"index\.h5: cannot .* this process may write files of at most")
        self.assertRegex(done.stdout, r"\S+/step_6: not verified: what could not be read may be whole\n$")
        self.assertNotIn("damaged", done.stdout)
        self.assertNotIn("take another checkpoint", done.stdout)
        told = json.loads(limited("--json").stdout)
        self.assertEqual((told["sound"], told["faults"], len(told["unread"])), (None, [], 1))

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

    def words(self, output, **more):
        overrides = {"checkpoint.folder": self.disk, "checkpoint.keep": 0, "schedule.name": "constant", **more}
        return {"run.output": output, **overrides}

    def test_full_disk_during_a_save(self):
        """The run goes on, and ends with an error only where its end is not saved."""
        output = self.folder / "out"
        words = [self.deck, *zt.words_of(self.words(output, **{"run.steps": 8, "checkpoint.interval": 2}))]
        result = zt.run(2, words, timeout=20)
        tried = rf"{self.disk}/step_(\d)\.tmp\S*: (cannot write at byte \d+: )?No space left on device"
        self.assert_refused(result, tried, times=3)
        self.assertIn("make room, or set checkpoint.folder", zt.message_of(result))
        self.assertEqual([found[0] for found in zt.re.findall(tried, result.output)], ["4", "6", "8"])
        for step in (4, 6):
            self.assertRegex(result.out, rf"\nstep {step}: warning: no checkpoint is written: .*; its last one is of step 2\n")
        self.assertEqual(zt.names_in(self.disk), ["step_2"])
        self.assertEqual(list(zt.losses(output)), list(range(1, 9)))
        constant = {"run.steps": 8, "schedule.name": "constant"}
        resumed = self.train(2, "resumed", {**constant, "checkpoint.resume": self.disk / "step_2"})
        straight = zt.losses(self.train(2, "straight", constant))
        self.assert_same({s: v for s, v in straight.items() if s > 2}, zt.losses(resumed))
        shutil.rmtree(self.disk / "step_2")

    def test_a_disk_without_room_for_one_is_found_at_the_start(self):
        self.disk = mount_small_disk(self)
        (self.disk / "ballast").write_bytes(bytes(900 * 1024))
        for interval in (0, 2):
            result = zt.run(2, [self.deck, *zt.words_of(self.words(self.folder / "none", **{"checkpoint.interval": interval}))])
            self.assert_refused(result, rf"{self.disk}: No space left on device: a checkpoint takes \S+ KiB and there is room for \S+ KiB: make room")
            self.assertEqual(zt.losses(self.folder / "none"), {})
        self.train(2, "unsaved", self.words(self.folder / "unsaved", **{"checkpoint.interval": -1}))
        (self.disk / "ballast").unlink()
        ended = self.words(self.folder / "ended", **{"checkpoint.resume": "auto"})
        self.train(2, "ended", ended)
        (self.disk / "ballast").write_bytes(bytes(350 * 1024))
        self.assertEqual(zt.run(2, [self.deck, *zt.words_of(ended)]).code, 0, "there is nothing left to save")
        more = {**ended, "run.steps": 9, "checkpoint.keep": 1, "checkpoint.interval": 3}
        result = zt.run(2, [self.deck, *zt.words_of(more)])
        self.assertIn("training starts at step 7 of 9", result.out, "older ones may make room, so it is tried")
        self.assertIn("step_9.tmp: No space left on device", result.output)

    def fill(self):
        with contextlib.suppress(OSError), open(self.disk / "ballast", "ab", buffering=0) as out:
            while out.write(bytes(4096)):
                pass

    def test_a_disk_that_has_room_again(self):
        self.disk = mount_small_disk(self, "size=2m")
        ballast = self.disk / "ballast"
        overrides = self.words(self.folder / "again", **{"run.steps": 1000000, "checkpoint.interval": 5, "checkpoint.keep": 1})
        process, _, output, log = self.begin(1, "again", overrides, 3)
        zt.wait_for("a checkpoint", lambda: zt.saved_steps(self.disk))
        # A save that is under way may leave room once more.
        zt.wait_for("a word", lambda: self.fill() or "warning: no checkpoint is written" in log.read_text())
        self.assertRegex(log.read_text(), r"; the run goes on, and tries again (in \d+ steps?|now); its last one is of step \d+\n")
        before = max(zt.saved_steps(self.disk))
        ballast.unlink()
        zt.wait_for("another", lambda: process.poll() is not None or max(zt.saved_steps(self.disk), default=0) > before)
        self.assertIsNone(process.poll(), log.read_text())
        zt.end(process)
        process.wait()


class FullOutput(zt.Case):
    def test_full_disk_during_a_step(self):
        """Here metrics.jsonl has no room either."""
        self.disk = mount_small_disk(self)
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
            self.assert_refused(result, r"No space left on device", times=3)
            self.assertNotRegex(result.err, r"HDF5 says|errno =|filesystem error")


if __name__ == "__main__":
    zt.main()
