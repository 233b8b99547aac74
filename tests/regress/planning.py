"""check and plan of large jobs: what they take does not grow with micro-batches and ranks."""

import json
import os
import re
import subprocess

import ztrain_run as zt

MOST_RESIDENT = 500e6
DECKS = zt.SOURCE / "inputs"


class Planning(zt.Case):
    def run_alone(self, *words):
        """What it prints, and the most memory that it had, in bytes."""
        with subprocess.Popen(
            [zt.EXECUTABLE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            text = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, text)
        return text, usage.ru_maxrss * 1024

    def checked(self, deck, ranks, *overrides):
        text, resident = self.run_alone("check", DECKS / deck, "--ranks", ranks, "--without-files", *overrides)
        self.assertIn("proven free of deadlock over all ranks (one is compiled)", text)
        self.assertLess(resident, MOST_RESIDENT, text)
        return text

    def test_a_run_of_epochs_is_told_by_tokens(self):
        words = ["plan", DECKS / "llama3_70b.toml", "--ranks", 64, "--run.steps=0", "--run.tokens=0", "--run.epochs=2.5"]
        text, plan = self.run_alone(*words)[0], json.loads(self.run_alone(*words, "--json")[0])
        said = re.sub(r"\s+", " ", text)
        self.assertIn(" for a billion tokens, without evaluations and saves: how many run.epochs = 2.5 are depends", said)
        hours, minutes = map(int, re.search(r" run (\d+)h (\d+)m for a billion", said).groups())
        self.assertAlmostEqual(60 * hours + minutes, 1e9 / plan["time"]["tokens_per_second"] / 60, delta=1)

    def test_check_of_many_micro_batches(self):
        """512 of them: a million ops and more, of which a few thousand are compiled."""
        text = self.checked("llama3_70b.toml", 1)
        self.assertRegex(text, r"the step program has \d{7} ops")

    def test_check_of_many_ranks(self):
        self.checked("llama3_70b.toml", 1024, "--batch.global=2048")
        self.checked("finetune_llama3_8b.toml", 16384, "--batch.global=16384")

    def test_plan_of_what_does_not_fit(self):
        text, resident = self.run_alone("plan", DECKS / "llama3_70b.toml", "--ranks", 2)
        self.assertIn("does not fit", text)
        self.assertIn("What makes it fit", text)
        self.assertLess(resident, MOST_RESIDENT)


if __name__ == "__main__":
    zt.main()
