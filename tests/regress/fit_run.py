"""tools/fit_run.py: the precision that is fast here, and as many steps as fill a time, whatever the user gave stays."""

import json
import shutil
import subprocess
import sys

import ztrain_run as zt

TOOL = zt.SOURCE / "tools" / "fit_run.py"

# Stands in for ztrain bench: a step takes what the test says; "never" does not end.
BENCH = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
words = sys.argv[1:]
folder = pathlib.Path(__file__).parent
precision = next((w.split("=")[1] for w in words if w.startswith("--precision.preset=")), "none")
with open(folder / "calls", "a") as file:
    file.write(json.dumps({"precision": precision, "words": words, "pid": os.getpid()}) + "\\n")
seconds = json.loads((folder / "seconds").read_text())[precision]
if seconds == "never":
    time.sleep(600)
if seconds == "fails":
    sys.exit("ztrain: no memory for this")
pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps({"step_seconds": {"median": seconds}}))
"""


class Quickstart(zt.Case):
    def test_what_is_no_key_starts_nothing(self):
        """A copy alone, which could not go on."""
        tool = shutil.copy2(zt.SOURCE / "tools" / "quickstart.sh", self.folder)
        for words, code, out, err in (
            (["--help"], 0, "--run.steps=50", ""),
            (["--run.steps=5", "-h"], 0, "PROMPT=TEXT", ""),
            (["-n", "2"], 2, "", "'-n' is no key of the deck"),
        ):
            done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=10, check=False)
            self.assertEqual(done.returncode, code, done)
            self.assertIn(out, done.stdout)
            self.assertIn(err, done.stderr)


class FitRun(zt.Case):
    def fit(self, launch, words=(), options=(), deck=None):
        command = [sys.executable, TOOL, deck or self.deck, "--launch", launch, *options, "--", *words]
        return subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, timeout=60, env=zt.environment(), check=False
        )

    def fit_to(self, seconds, words=(), options=("--patience", 20)):
        """With benchmarks that take so long; the overrides by key, and the tool's end."""
        folder = self.folder / "bench"
        folder.mkdir(exist_ok=True)
        (folder / "ztrain").write_text(BENCH)
        (folder / "ztrain").chmod(0o755)
        (folder / "seconds").write_text(json.dumps(seconds))
        (folder / "calls").write_text("")
        done = self.fit(folder / "ztrain", words, options)
        self.calls = [json.loads(line) for line in (folder / "calls").read_text().splitlines()]
        return dict(line[2:].split("=") for line in done.stdout.splitlines()), done

    def test_the_faster_precision_fills_the_time(self):
        chosen, done = self.fit_to({"fp32": 0.5, "bf16": 0.25})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            chosen,
            {
                "precision.preset": "bf16",
                "run.steps": "400",
                "run.max_minutes": "2.5",
                "evaluation.interval": "60",
                "checkpoint.interval": "200",
            },
        )
        self.assertIn("a step takes 0.5 s in fp32, 0.25 s in bf16\n", done.stderr)
        self.assertIn("chosen: precision.preset = bf16, run.steps = 400", done.stderr)
        chosen, _ = self.fit_to({"fp32": 0.2, "bf16": 0.25})
        self.assertEqual((chosen["precision.preset"], chosen["run.steps"]), ("fp32", "500"))

    def test_steps_are_100_to_1000(self):
        for seconds, steps in ((0.001, "1000"), (0.1001, "990"), (0.9, "110"), (5, "100")):
            chosen, _ = self.fit_to({"fp32": seconds, "bf16": 9})
            self.assertEqual(chosen["run.steps"], steps)

    def test_a_longer_time_has_room_for_more_than_its_steps(self):
        chosen, _ = self.fit_to({"fp32": 0.5, "bf16": 9}, options=("--patience", 20, "--seconds", 400))
        self.assertEqual((chosen["run.steps"], chosen["run.max_minutes"]), ("800", "10.0"))

    def test_a_precision_that_is_a_thousand_times_slower_is_given_up(self):
        chosen, done = self.fit_to({"fp32": 0.5, "bf16": "never"}, options=("--patience", 4))
        self.assertEqual((chosen["precision.preset"], chosen["run.steps"]), ("fp32", "200"))
        self.assertIn("too long in bf16", done.stderr)
        for call in self.calls:
            zt.wait_for("the end of the benchmark", lambda pid=call["pid"]: not zt.alive(pid))

    def test_a_machine_on_which_nothing_ends_in_time_has_the_fewest_steps(self):
        chosen, done = self.fit_to({"fp32": "never", "bf16": "never"}, options=("--patience", 1))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((chosen["precision.preset"], chosen["run.steps"]), ("fp32", "100"))

    def test_what_the_user_gave_stays(self):
        speeds = {"fp32": 0.5, "bf16": 0.25, "none": 0.2}
        chosen, _ = self.fit_to(speeds, ["--run.steps=50", "--batch.micro=2"])
        self.assertEqual(chosen, {"precision.preset": "bf16"})
        self.assertTrue(all("--batch.micro=2" in call["words"] for call in self.calls), "of what is measured too")
        chosen, done = self.fit_to(speeds, ["--precision.parameters=fp32", "--evaluation.interval=7"])
        self.assertEqual(
            chosen, {"run.steps": "500", "run.max_minutes": "2.5", "checkpoint.interval": "250"}, "measured as given"
        )
        self.assertIn("a step takes 0.2 s\n", done.stderr)
        for length in ("run.steps=50", "run.tokens=5000", "run.epochs=1"):
            chosen, _ = self.fit_to(speeds, [f"--{length}", "--precision.preset=fp32"])
            self.assertEqual((chosen, self.calls), ({}, []), length)

    def test_a_benchmark_that_fails_is_told_of(self):
        chosen, done = self.fit_to({"fp32": "fails", "bf16": 1})
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(chosen, {})
        self.assertIn("ztrain: no memory for this", done.stderr)

    def test_the_program_takes_what_is_chosen(self):
        done = self.fit(zt.EXECUTABLE, deck=self.write_deck("bytes", {"model.vocab_size": None}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"a step takes \S+ s in fp32, \S+ (s|long) in bf16")
        chosen = done.stdout.split()
        steps = [int(word.removeprefix("--run.steps=")) for word in chosen if word.startswith("--run.steps=")]
        self.assertTrue(len(steps) == 1 and steps[0] % 10 == 0 and 100 <= steps[0] <= 1000, chosen)
        result = zt.run(0, ["check", self.deck, *chosen])
        self.assertEqual(result.code, 0, str(result))


if __name__ == "__main__":
    zt.main()
