"""An export that fails, at the end of a run or later: one message that names its key, and the checkpoint stays."""

import os
import shutil
import sys

import saved
import ztrain_run as zt

sys.path.insert(0, str(zt.SOURCE / "tests" / "regress"))
import hf_model as hf  # noqa: E402


class FullDisk(hf.Models):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disk = saved.mount_small_disk(cls)

    def fails(self, name, *patterns):
        """A run of which the export fails, which then is complete and exported elsewhere."""
        keys = {"run.output": self.folder / name, "checkpoint.resume": "auto"}
        words = {**keys, "checkpoint.export": self.disk / "model"}
        result = zt.run(2, [self.deck, *zt.words_of(words)], timeout=20)
        checkpoint = self.folder / name / "checkpoints" / "step_2"
        self.assert_refused(
            result, r"checkpoint\.export: ", *patterns, r"its checkpoint stays: `ztrain export \S+/step_2 --to", times=2
        )
        self.assertNotIn("checkpoint.folder", zt.message_of(result))
        self.assertEqual(list(zt.losses(self.folder / name)), [1, 2])
        self.assertEqual([p.name for p in self.disk.iterdir() if p.name.startswith("model")], [])
        self.train(2, name, {**keys, "checkpoint.export": self.folder / f"{name}_model"})
        self.assertIn("nothing to do", self.last.out)
        self.assertEqual(sorted(hf.read_folder(self.folder / f"{name}_model")), sorted(self.tensors))
        return checkpoint

    def test_no_room_for_the_weights(self):
        ballast = self.disk / "ballast"
        ballast.write_bytes(bytes(900 * 1024))
        checkpoint = self.fails("early", r"'\S+' has \d+ bytes left, and the weights take \d+: make room")
        words = ["export", checkpoint, "--to", self.disk / "model"]
        self.assert_refused(zt.run(2, words), r"has \d+ bytes left, .*or give a folder elsewhere with --to")
        ballast.unlink()

    def test_no_room_for_what_stands_beside_them(self):
        """Found late: when the weights are written."""
        (self.folder / "model" / "tokenizer.json").write_bytes(b" " * (1 << 20))
        checkpoint = self.fails(
            "late",
            r"\S+/model\.tmp/tokenizer\.json: cannot write at byte \d+: No space left on device",
            r"make room, or set checkpoint\.export to another file system",
        )
        words = ["export", checkpoint, "--to", self.disk / "model"]
        self.assert_refused(zt.run(2, words), r"No space left on device.*make room, or set --to to another file")
        os.unlink(self.folder / "model" / "tokenizer.json")

    def test_the_folder_appears_during_the_run(self):
        """It was not there before the first step."""
        late = self.folder / "appears"
        process = zt.start(
            2,
            [
                self.deck,
                *zt.words_of({"run.steps": 300, "run.output": self.folder / "slow", "checkpoint.export": late}),
            ],
            self.folder / "slow.log",
        )
        self.addCleanup(process.wait)
        self.addCleanup(zt.end, process)
        zt.wait_for("the first steps", lambda: len(zt.losses(self.folder / "slow")) > 2)
        late.mkdir()
        process.wait(60)
        text = (self.folder / "slow.log").read_text()
        self.assertNotEqual(process.returncode, 0, text)
        self.assertRegex(text, r"checkpoint\.export: rank 0: '\S+appears' exists: give another folder with")
        self.assertTrue((self.folder / "slow" / "checkpoints" / "step_300" / "index.h5").exists())
        shutil.rmtree(late)


if __name__ == "__main__":
    zt.main()
