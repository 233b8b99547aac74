"""Checkpoints that are written behind training: those of a run that waits for each, byte for byte, and its losses."""

import json
import re

import ztrain_run as zt

# Of the metadata, what two runs of one test differ in.
OF_THE_RUN = ("deck", "deck_hash", "index_checksum", "metadata_checksum")


def metadata(checkpoint):
    found = json.loads((checkpoint / "metadata.json").read_text())
    return {key: value for key, value in found.items() if key not in OF_THE_RUN}


class SavesBehindTraining(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 11
        sections["checkpoint"].update({"interval": 3, "keep": 0})
        sections["evaluation"] = {"interval": 6, "batches": 1}
        sections["schedule"] = {"name": "constant"}
        return sections

    def compare(self, name, overrides, ranks=2):
        behind = self.train(ranks, f"{name}_behind", overrides)
        waits = self.train(ranks, f"{name}_waits", {**overrides, "checkpoint.async": False})
        self.assertEqual(zt.losses(behind), zt.losses(waits))
        self.assertEqual(zt.names_in(behind / "checkpoints"), zt.names_in(waits / "checkpoints"))
        steps = zt.saved_steps(waits / "checkpoints")
        self.assertEqual(steps, [3, 6, 9, 11])
        for step in steps:
            one, other = (folder / "checkpoints" / f"step_{step}" for folder in (behind, waits))
            self.assertEqual(metadata(one), metadata(other))
            self.assertEqual(metadata(one)["step"], step)
            self.assertTrue(
                (one / "shard_0000.h5").read_bytes() == (other / "shard_0000.h5").read_bytes(),
                f"{name}: the tensors of step {step} differ",
            )
            self.assertEqual(zt.run(0, ["verify", one]).code, 0)
        return behind

    def test_have_the_bytes_of_those_that_training_waits_for(self):
        behind = self.compare("plain", {})
        best = {step: loss for step, loss in zt.validation_losses(behind).items()}
        self.assertEqual(metadata(behind / "checkpoints" / "step_6")["validation_loss"], best[6])
        self.assertNotIn("validation_loss", metadata(behind / "checkpoints" / "step_9"))
        self.assertEqual(metadata(behind / "checkpoints" / "step_9")["proven_step"], 6)

    def test_have_them_with_copies_of_ranks_on_a_late_device_and_with_states_on_drives(self):
        self.compare("copies", {"mesh.replicate": 2, "debug.asynchronous": True})
        drives = {f"offload.{state}": "nvme" for state in ("parameters", "master", "optimizer")}
        self.compare("drives", {**drives, "offload.nvme_path": [str(self.folder)], "precision.preset": "bf16"})

    def test_a_run_goes_on_from_one(self):
        behind = self.train(2, "whole")
        again = self.train(2, "again", {"checkpoint.resume": behind / "checkpoints" / "step_6"})
        second_half = {step: loss for step, loss in zt.losses(behind).items() if step > 6}
        self.assertEqual(zt.losses(again), second_half)

    def test_a_save_that_is_due_waits_for_the_one_before_and_says_so(self):
        output = self.train(2, "often", {"checkpoint.interval": 1, "run.steps": 4})
        waits = re.findall(
            r"(?m)^step (\d+): training stood still for \d+\.\d s: the checkpoint of step (\d+) was being written",
            self.last.out,
        )
        self.assertEqual(waits, [("2", "1"), ("3", "2")])
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [1, 2, 3, 4])
        for record in zt.metrics(output):
            if "seconds" in record:
                self.assertGreaterEqual(record["seconds"]["save"], record["seconds"]["save_wait"])
        self.assertGreater(zt.metrics(output)[2]["seconds"]["save_wait"], 0)
        self.assertRegex(self.last.out, r"\nbound by saving: \d+% of \S+ s; .* \(rank 0\)\n")

    def test_the_copy_is_planned_and_printed(self):
        rows = {}
        for behind in (True, False):
            words = {"checkpoint.async": behind, "run.output": self.folder / "planned"}
            plan = zt.run(0, ["plan", self.deck, "--ranks", "2", "--json", *zt.words_of(words)])
            self.assertEqual(plan.code, 0, str(plan))
            rows[behind] = plan.out
        self.assertIn('"snapshot"', rows[True])
        self.assertNotIn('"snapshot"', rows[False])
        self.train(2, "planned", {})
        self.assertRegex(
            self.last.out, r"besides, in the host's memory: \S+ KiB for copies that checkpoints are written of, or that audits go back to; an arena of"
        )
        planned = re.search(r"peak memory (\S+) MiB of (\S+) MiB planned", self.last.out)
        self.assertLessEqual(float(planned.group(1)), 1.05 * float(planned.group(2)))

    def test_the_best_stay(self):
        rough = {"optimizer.lr": 0.1, "optimizer.max_norm": 0, "run.steps": 10}
        overrides = {"evaluation.interval": 3, "checkpoint.keep": 1, "checkpoint.keep_best": 1}
        output = self.train(2, "best", {**overrides, **rough})
        losses = zt.validation_losses(output)
        best = min((loss, -step) for step, loss in losses.items())
        self.assertLess(-best[1], 9, f"the last is the best, and nothing is seen: {losses}")
        self.assertIn(-best[1], zt.saved_steps(output / "checkpoints"))
        refused = zt.run(0, ["check", self.deck, "--evaluation.interval=0", "--checkpoint.keep_best=1"])
        self.assert_refused(refused, r"checkpoint\.keep_best = 1 needs validation losses")


if __name__ == "__main__":
    zt.main()
