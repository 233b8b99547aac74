"""Signals that ask a run to save: it ends behind its step with status 75, or goes on. One rank that hears of it is enough."""

import os
import re
import signal

import ztrain_run as zt

SAVED = 75
ENDLESS = {"run.steps": 1000000, "schedule.name": "constant", "checkpoint.resume": "auto"}


class Signals(zt.Case):
    def ends(self, process, log, timeout=20):
        zt.wait_for("the end of the job", lambda: process.poll() is not None, timeout)
        return log.read_text()

    def test_a_run_saves_and_ends(self):
        exported = self.folder / "exported"
        for ranks, told, name in ((2, 1, "SIGUSR1"), (2, 0, "SIGTERM"), (0, 0, "SIGINT"), (0, 0, "SIGTERM")):
            overrides = {**ENDLESS, "checkpoint.export": exported}
            process, pids, output, log = self.begin(ranks, f"{name}_{ranks}", overrides, 3)
            os.kill(pids[told], getattr(signal, name))
            text = self.ends(process, log)
            self.assertEqual(process.returncode, SAVED, text)
            step = max(zt.losses(output))
            self.assertRegex(text, rf"\n{name}: the run stops after step {step} of 1000000")
            self.assertIn("the same command goes on (exit status 75)", text)
            self.assertEqual("a second SIGINT ends it at once" in text, name == "SIGINT")
            self.assertEqual(zt.saved_steps(output / "checkpoints"), [step])
            self.assertFalse(exported.exists(), "the run is not complete")
        self.train(2, "SIGTERM_0", {**overrides, "run.steps": step})
        self.assertTrue((exported / "model.safetensors").exists(), "now it is")

    def test_a_run_saves_and_goes_on(self):
        overrides = {**ENDLESS, "checkpoint.keep": 1, "checkpoint.interval": 0}
        process, pids, output, log = self.begin(2, "usr2", overrides, 3)
        os.kill(pids[1], signal.SIGPIPE)  # as where it writes to another rank that is gone: that one is the news
        os.kill(pids[1], signal.SIGUSR2)
        (step,) = zt.wait_for("a checkpoint", lambda: zt.saved_steps(output / "checkpoints"))
        zt.wait_for("the next steps", lambda: max(zt.losses(output)) > step + 1)
        self.assertIsNone(process.poll(), log.read_text())
        os.kill(pids[0], signal.SIGUSR1)
        text = self.ends(process, log)
        self.assertEqual(process.returncode, SAVED, text)
        self.assertEqual(text.count(": checkpoint "), 2, "a save that was asked for once is made once")
        straight = self.train(2, "straight", {**ENDLESS, "run.steps": step + 2})
        self.assert_same(zt.losses(straight), {s: v for s, v in zt.losses(output).items() if s <= step + 2})

    def test_files_ask_for_the_same(self):
        output = self.folder / "files"
        output.mkdir()
        (output / "stop").touch()
        (output / "save").mkdir()
        process, pids, output, log = self.begin(2, "files", {**ENDLESS, "checkpoint.keep": 0}, 3)
        self.assertRegex(log.read_text(), rf"{output}/stop of .*uid {os.getuid()}.* is older than this run, .* has removed it\n")
        self.assertTrue((output / "save").is_dir())
        (output / "save").rmdir()
        (output / "save").touch()
        (step,) = zt.wait_for("a checkpoint", lambda: zt.saved_steps(output / "checkpoints"))
        zt.wait_for("the next steps", lambda: max(zt.losses(output)) > step + 1)
        (output / "stop").touch()
        text = self.ends(process, log)
        self.assertEqual(process.returncode, SAVED, text)
        for name, does in (("save", "goes on, as on SIGUSR2"), ("stop", "ends, as on SIGUSR1")):
            self.assertEqual(len(re.findall(rf"{output}/{name} of .* is taken: the run saves and {does}\n", text)), 1, text)
            self.assertFalse((output / name).exists())
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [step, max(zt.losses(output))])

    def test_sigint_comes_twice(self):
        """Rank 0 waits for the other in a step, so that it cannot come to the end of it."""
        process, pids, output, log = self.begin(2, "twice", ENDLESS, 3)
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGINT)
        zt.wait_for("the word", lambda: "a second SIGINT ends it at once" in log.read_text())
        self.assertTrue(zt.alive(pids[0]))
        os.kill(pids[0], signal.SIGINT)
        text = self.ends(process, log)
        self.assertNotIn(process.returncode, (0, SAVED), text)
        zt.wait_for("the end of all ranks", lambda: not any(zt.alive(p) for p in pids.values()))
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [])

    def test_a_run_that_saves_nothing_says_so(self):
        overrides = {**ENDLESS, "checkpoint.interval": -1, "checkpoint.resume": "none"}
        process, pids, _, log = self.begin(0, "unsaved", overrides, 3)
        os.kill(pids[0], signal.SIGUSR2)
        zt.wait_for("a word", lambda: "SIGUSR2: nothing is saved: checkpoint.interval = -1" in log.read_text())
        os.kill(pids[0], signal.SIGTERM)
        text = self.ends(process, log)
        self.assertEqual(process.returncode, 1, text)
        self.assertRegex(text, r"SIGTERM ended the run after step \d+, which is not saved: checkpoint\.interval = -1")


if __name__ == "__main__":
    zt.main()
