"""Files of a run that somebody changes or removes while it trains, and limits on its processes."""

import os
import re
import resource
import shutil
import signal
import subprocess
import unittest

import token_files
import ztrain_run as zt

ENDLESS = {"run.steps": 1000000, "schedule.name": "constant", "checkpoint.resume": "auto"}


class Meddling(zt.Case):
    def ended(self, process, log):
        zt.wait_for("the end of the job", lambda: process.poll() is not None, timeout=20)
        text = log.read_text()
        self.assertNotRegex(text, r"(?i)signal|segmentation|bus error|abort\w* the job")
        return text

    def test_data_that_become_shorter(self):
        """The run ends with an error after the last step that had all its data, and goes on from there."""
        tokens = self.folder / "tokens.h5"
        token_files.write_tokens(tokens, token_files.some_documents(200, 90, 110, seed=1)[0], offsets=False)
        for key, whole in ("data.train", tokens), ("data.validation", self.text):
            data = self.folder / f"{key}{whole.suffix}"
            shutil.copy(whole, data)
            overrides = {**ENDLESS, key: data, "evaluation.interval": 1, "checkpoint.interval": 0}
            process, _, output, log = self.begin(2, key, overrides, 3)
            os.truncate(data, 100)
            text = self.ended(process, log)
            step = max(zt.losses(output))
            self.assertNotEqual(process.returncode, 0, text)
            self.assertRegex(text, rf"'\S+/{data.name}' was changed while it was in use: it had {whole.stat().st_size} bytes and ends")
            self.assertIn(f"the run ends after step {step}, which is saved", text)
            self.assertEqual(zt.saved_steps(output / "checkpoints"), [step])
            shutil.copy(whole, data)
            self.train(2, key, {**overrides, "run.steps": step + 1})
            self.assertIn(f"training starts at step {step + 1} of", self.last.out)
            self.assertEqual(list(zt.losses(output)), list(range(1, step + 2)))

    def test_a_limit_on_file_sizes(self):
        """It says so; the signal of it would end the job without a word."""
        process, ranks, output, log = self.begin(1, "limit", ENDLESS, 3)
        written = (output / "metrics.jsonl").stat().st_size
        resource.prlimit(ranks[0], resource.RLIMIT_FSIZE, (written + 2000, written + 2000))
        text = self.ended(process, log)
        self.assertNotEqual(process.returncode, 0, text)
        self.assertRegex(
            text,
            rf"run\.output: cannot write \S+/metrics\.jsonl: File too large; the limit on file sizes is {written + 2000} bytes "
            r"for this process: raise it \(ulimit -f\)",
        )

    @unittest.skipUnless(os.geteuid() == 0, "takes another user")
    def test_a_checkpoint_that_this_user_may_not_read(self):
        """Is no damaged one: an earlier checkpoint in its place would throw steps away."""
        other = ["setpriv", "--reuid=65534", "--clear-groups"]
        self.folder.chmod(0o755)
        for name in ("index.h5", "metadata.json"):
            words = {"checkpoint.interval": 2, "checkpoint.keep": 0, "checkpoint.resume": "auto"}
            output = self.train(1, f"closed_{name}", {**words, "run.steps": 4})
            for path in (output, *output.rglob("*")):
                os.chown(path, 65534, 65534)
            file = output / "checkpoints" / "step_4" / name
            os.chown(file, 0, 0)
            file.chmod(0o600)
            result = zt.run(0, [self.deck, *zt.words_of({"run.output": output, **words, "run.steps": 6})], wrapper=other)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertRegex(result.output, rf"step_4/{name}\b.*Permission denied", str(result))
            self.assertEqual(zt.saved_steps(output / "checkpoints"), [2, 4])

    def test_a_stack_that_is_too_small(self):
        """Without a word such a process dies, MPI's threads among others."""
        small = ["prlimit", "--stack=65536:65536"]
        result = zt.run(0, ["check", self.deck], timeout=20, wrapper=small)
        self.assert_refused(result, r"this process may have 65536 bytes of stack, .* raise that limit \(`ulimit -s 512` or more")
        output = self.folder / "raised"
        result = zt.run(0, [self.deck, f"--run.output={output}"], timeout=60, wrapper=["prlimit", "--stack=65536:"])
        self.assertEqual(result.code, 0, result)

    def test_folders_that_another_run_wants_or_somebody_removes(self):
        folder = self.folder / "shared"
        # Nothing is saved while folders are removed: a save whose folder goes ends the run.
        overrides = {**ENDLESS, "checkpoint.folder": folder, "checkpoint.interval": 0}
        self.train(1, "first", {**overrides, "run.steps": 4})
        process, ranks, output, log = self.begin(1, "first", overrides, 8)
        for key, other in ("checkpoint.folder", {"run.output": self.folder / "second"}), ("run.output", {}):
            words = {"run.output": output, **overrides, "checkpoint.resume": "none", "run.steps": 3, **other}
            result = zt.run(1, [self.deck, *zt.words_of(words)], timeout=20)
            named = folder if other else output
            holder = rf"\(process {ranks[0]} on {re.escape(os.uname().nodename)}\)"
            self.assert_refused(result, rf"{re.escape(key)}: another run is writing to '{named}' {holder}")
            self.assertNotIn("checkpoint is read", result.out, "the folder is held before its checkpoints are looked for")
        for removed in (output, folder):
            removed.rename(self.folder / "removed")  # which the run cannot fill again while its files are deleted
            shutil.rmtree(self.folder / "removed")
        zt.wait_for("metrics", lambda: process.poll() is not None or zt.losses(output))
        self.assertIsNone(process.poll(), log.read_text()[-2000:])
        result = zt.run(1, [self.deck, *zt.words_of({**overrides, "run.output": output, "run.steps": 3})], timeout=20)
        self.assert_refused(result, r"run\.output: another run is writing to")
        os.kill(ranks[0], signal.SIGUSR1)
        text = self.ended(process, log)
        self.assertRegex(text, r"warning: \S+/step_\d+, the checkpoint before, is gone; was its folder removed\?")
        self.assertEqual(process.returncode, 75, text)
        self.assertEqual(text.count("metrics.jsonl was removed; it is written again with all its lines"), 1, text)
        self.assertTrue(list(zt.losses(output)) == list(range(1, max(zt.losses(output)) + 1)), "steps in order")
        self.assertIn(max(zt.losses(output)), zt.saved_steps(folder))
        self.assertTrue((output / "deck.resolved.toml").exists())

    def test_a_disk_that_is_unmounted(self):
        """The run ends; below the disk's place nothing is written, where nobody would look for it."""
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "none", str(disk)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        try:
            process, _, _, log = self.begin(1, "disk", ENDLESS, 3)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
        text = self.ended(process, log)
        self.assertNotEqual(process.returncode, 0, text)
        self.assertRegex(text, rf"run\.output: '{disk}' was on another disk when the run began.*: mount it again")
        self.assertEqual(list(disk.iterdir()), [])


if __name__ == "__main__":
    zt.main()
