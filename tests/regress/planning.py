"""check and plan: what they take for large jobs, and what they answer near limits and where things are not known."""

import json
import os
import re
import subprocess

import ztrain_run as zt

MOST_RESIDENT = 500e6
DECKS = zt.SOURCE / "inputs"
# Which decks fit their GPUs, by number of ranks; their heads say so.
SHIPPED = {
    "finetune_llama3_8b": {8: True, 32: True},
    "finetune_llama3_70b": {8: False, 32: True},
    "lora_llama3_70b": {8: True, 32: True},
    "qlora_llama3_70b": {1: False, 2: True},
    "llama3_70b": {8: False, 32: True, 64: True},
}


def read_json(text):
    """The object behind lines that say how far a plan is, which a slow machine prints."""
    return json.loads(text[text.index("{") :])


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

    def test_decks_for_fine_tuning_need_what_their_heads_say(self):
        for name, fits in SHIPPED.items():
            deck = zt.SOURCE / "inputs" / f"{name}.toml"
            said = {int(n): gb for gb, n in re.findall(r"([\d.]+) GB(?: a rank)? on (\d+)", deck.read_text())}
            self.assertEqual(sorted(said), sorted(fits))
            # Those that fit come first and say how much a device has. The others are planned on larger ones, where no remedy is searched.
            for ranks, expected in sorted(fits.items(), key=lambda row: not row[1]):
                larger = [] if expected else ["--device-memory", 1000]
                verdict = json.loads(zt.run(0, ["plan", deck, "--ranks", ranks, "--json", *larger]).out)["verdict"]
                limit = verdict["device_limit"] if expected else limit
                self.assertTrue(verdict["fits"], f"{name} on {ranks}")
                self.assertEqual(verdict["device_needed"] <= limit, expected, f"{name} on {ranks}")
                self.assertEqual(f"{verdict['device_needed'] / 1e9:.1f}", said[ranks], f"{name} on {ranks}")
            result = zt.run(0, ["check", deck, "--without-files", "--ranks", 32])
            self.assertEqual(result.code, 0, str(result))
            self.assertIn("the deck is valid", result.out)
            refused = zt.run(0, ["check", deck])
            self.assert_refused(refused, r"the environment variable ZTRAIN_\w+ is not set", times=deck.read_text().count('"${'))

    def test_a_run_of_epochs_is_told_by_tokens(self):
        words = ["plan", DECKS / "llama3_70b.toml", "--ranks", 64, "--run.steps=0", "--run.tokens=0", "--run.epochs=2.5"]
        text, plan = self.run_alone(*words)[0], read_json(self.run_alone(*words, "--json")[0])
        said = re.sub(r"\s+", " ", text)
        self.assertIn(" for a billion tokens, without evaluations and saves; the tokens of run.epochs = 2.5 depend on the data, ", said)
        hours, minutes = map(int, re.search(r" run (\d+)h (\d+)m for a billion", said).groups())
        self.assertAlmostEqual(60 * hours + minutes, 1e9 / plan["time"]["tokens_per_second"] / 60, delta=1)

    def planned(self, deck, *words):
        return read_json(self.run_alone("plan", DECKS / deck, *words, "--json")[0])

    def test_fit_searches_where_the_deck_s_own_mesh_is_no_mesh(self):
        """Three ranks do not divide the batch of four, and mesh.tensor = 3 not four ranks."""
        for words in (("--ranks", 3), ("--ranks", 4, "--mesh.tensor=3")):
            text, plan = self.run_alone("plan", DECKS / "smoke.toml", *words, "--fit")[0], self.planned("smoke.toml", *words, "--fit")
            first = plan["search"]["best"][0]
            self.assertEqual(plan["time"]["tokens_per_second"], first["tokens_per_second"])
            self.assertIn("\nnote: this plan is that of the fastest setting, since the deck by itself is refused: ", text)
            alone = self.planned("smoke.toml", *words, *(f"--{o}" for o in first["overrides"]))
            self.assertEqual(alone["memory"], plan["memory"])

    def test_what_nearly_fits_is_compiled_before_it_is_said_to(self):
        """The bytes that are alive at once would fit, and their places do not."""
        smoke = ["smoke.toml", "--ranks", 4, "--beside", 0]
        needed = self.planned(*smoke, "--device-memory", 1)["verdict"]["device_needed"]
        plan = self.planned(*smoke, "--device-memory", 0.9999 * needed / 1e9)
        self.assertFalse(plan["verdict"]["fits"])
        self.assertGreater(plan["fixes"]["least_ranks"], 4)
        self.assertTrue(self.planned(*smoke, "--device-memory", 1.0001 * needed / 1e9)["verdict"]["fits"])

    def test_offload_is_tried_beside_what_leaves_no_room_alone(self):
        fixes = self.planned("finetune_llama3_70b.toml", "--ranks", 8)["fixes"]
        sets = [set(fix["overrides"]) for fix in fixes["best"]]
        both = {"sharding.overlap_reduce=false", "offload.optimizer=cpu", "offload.master=cpu"}
        self.assertTrue(any(both <= keys for keys in sets), sets)

    def test_a_run_of_epochs_gets_a_script(self):
        """How many steps its warm-up is of is for the data to say."""
        words = ["--ranks", 2, "--sbatch", "--run.steps=0", "--run.epochs=2", "--schedule.warmup=100"]
        text, _ = self.run_alone("plan", DECKS / "smoke.toml", *words, "--cluster.preset=h100-80gb")
        self.assertIn("#SBATCH ", text)
        self.assertIn("\n# Checkpoints: 1.50 MB, at the end alone (checkpoint.interval = 0): after a crash all starts anew.\n", text)

    def test_a_processor_of_unknown_speed_promises_no_time(self):
        text, _ = self.run_alone("plan", DECKS / "smoke.toml", "--ranks", 2, "--device-memory", 0)
        self.assertNotRegex(text, r"\n  run  ")

    def test_without_ranks_the_mesh_says_how_many(self):
        text, _ = self.run_alone("plan", DECKS / "smoke.toml", "--mesh.tensor=2")
        self.assertRegex(text, r"on 2 ranks")

    def test_a_script_says_nothing_of_its_own_folder(self):
        """The job's script is found below it."""
        said = subprocess.run(
            [zt.EXECUTABLE, "plan", "inputs/smoke.toml", "--sbatch"], cwd=zt.SOURCE, capture_output=True, text=True, check=True
        ).stderr
        self.assertNotIn("which is not below this folder", said)

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
