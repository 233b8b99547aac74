"""Files of a run that somebody changes or removes while it trains."""

import os
import shutil

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
        for key in ("data.train", "data.validation"):
            data = self.folder / f"{key}.txt"
            shutil.copy(self.text, data)
            overrides = {**ENDLESS, key: data, "evaluation.interval": 1, "checkpoint.interval": 0}
            process, _, output, log = self.begin(2, key, overrides, 3)
            os.truncate(data, 100)
            text = self.ended(process, log)
            step = max(zt.losses(output))
            self.assertNotEqual(process.returncode, 0, text)
            self.assertRegex(text, rf"'\S+/{key}\.txt' was changed while it was in use: it had 20000 bytes and ends")
            self.assertIn(f"the run ends after step {step}, which is saved", text)
            self.assertEqual(zt.saved_steps(output / "checkpoints"), [step])
            shutil.copy(self.text, data)
            self.train(2, key, {**overrides, "run.steps": step + 1})
            self.assertIn(f"training starts at step {step + 1} of", self.last.out)
            self.assertEqual(list(zt.losses(output)), list(range(1, step + 2)))


if __name__ == "__main__":
    zt.main()
