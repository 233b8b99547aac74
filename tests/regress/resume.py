"""Resuming: a run that is cut in two has the losses and weights of one that is not.

What must not change on resume is refused.
"""

import json
import re
import shutil

import ztrain_run as zt


class Resume(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 40
        sections["checkpoint"]["interval"] = 20
        sections["evaluation"] = {"interval": 10, "batches": 2}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.straight = cls.train(2, "straight")
        cls.step_20 = cls.straight / "checkpoints" / "step_20"
        cls.step_40 = cls.straight / "checkpoints" / "step_40"

    def resume(self, name, overrides=None, ranks=2):
        """The second half of the run, in an output folder of its own."""
        return self.train(ranks, name, {"checkpoint.resume": self.step_20, **(overrides or {})})

    def second_half(self):
        return {step: value for step, value in zt.losses(self.straight).items() if step > 20}

    def refused(self, overrides, *patterns):
        result = zt.run(
            2,
            [
                self.deck,
                *zt.words_of(
                    {"run.output": self.folder / "refused", "checkpoint.resume": self.step_20, **overrides}
                ),
            ],
            timeout=20,
        )
        self.assert_refused(result, *patterns)

    def test_the_straight_run_is_sound(self):
        found = zt.losses(self.straight)
        self.assertEqual(list(found), list(range(1, 41)))
        self.assertLess(found[40][0], found[1][0] - 1, "the model does not learn")
        self.assertEqual(list(zt.validation_losses(self.straight)), [10, 20, 30, 40])

    def test_what_a_run_prints_can_be_given_to_another(self):
        """Started in a folder that is not the deck's, and writing to a path that is relative to it."""
        started_in = self.folder / "elsewhere"
        started_in.mkdir()
        run = zt.run(0, [self.deck, "--run.output=runs/short", "--run.steps=2"], cwd=started_in)
        self.assertEqual(run.code, 0, str(run))
        printed = re.search(r"step 2: checkpoint (\S+) \(", run.out).group(1)
        self.assertEqual(printed, str(started_in.resolve() / "runs/short/checkpoints/step_2"))
        export = zt.run(0, ["export", printed, "--to", "model"], cwd=started_in)
        model = re.search(r"(?m)^(\S+): \d+ tensors", export.out).group(1)
        for key, path in (("checkpoint.resume", printed), ("model.from", printed), ("model.from", model)):
            words = [self.deck, f"--{key}={path}", "--run.output=runs/next", "--run.steps=2"]
            again = zt.run(0, words, cwd=started_in)
            self.assertEqual(again.code, 0, str(again))
            self.assertIn(path, again.out.split("output runs/next")[1])

    def test_what_is_typed_is_found_from_the_working_folder_and_what_the_deck_names_from_its_own(self):
        started_in = self.folder / "straight"
        for key in "checkpoint.resume", "model.from":
            found = zt.run(0, ["check", self.deck, f"--{key}=checkpoints/step_40"], cwd=started_in)
            self.assertEqual(found.code, 0, str(found))
        lost = zt.run(0, ["check", "../deck.toml", "--data.train=elsewhere/text.txt"], cwd=started_in)
        self.assert_refused(lost, rf"'{started_in}/elsewhere/text.txt' does not exist")
        words = [self.write_deck("beside", {"checkpoint.folder": "saves", "model.vocab_size": None}), "--run.output=beside", "--run.steps=1"]
        beside = zt.run(0, words, cwd=started_in)
        self.assertIn(f"checkpoint {started_in.resolve()}/saves/step_1 ", beside.out, str(beside))
        self.assertIn("vocab_size = 257  # data.train\n", (started_in / "beside" / "deck.resolved.toml").read_text())

    def test_resume_on_the_same_mesh_is_bitwise_the_same(self):
        output = self.resume("same")
        self.assertIn("training starts at step 21 of 40", self.last.out)
        self.assertRegex(self.last.out, r"checkpoint \S+/step_20 \(step 20, 80 sequences consumed, read in")
        self.assert_same(self.second_half(), zt.losses(output))
        self.assertEqual(
            {s: v for s, v in zt.validation_losses(self.straight).items() if s > 20},
            zt.validation_losses(output),
        )
        self.assert_same_tensors(self.step_40, output / "checkpoints" / "step_40")

    def test_resume_auto_in_the_same_folder_takes_the_newest_and_doubles_no_step(self):
        output = self.folder / "auto"
        shutil.copytree(self.straight, output)
        shutil.rmtree(output / "checkpoints" / "step_40")
        before = zt.losses(output)
        with open(output / "metrics.jsonl", "a") as file:
            file.write('{"step": 41, "lo')  # as a killed run leaves it
        self.train(2, "auto", {"checkpoint.resume": "auto"})
        self.assertIn("training starts at step 21 of 40", self.last.out)
        self.assert_same(before, zt.losses(output))  # zt.losses fails on a doubled step
        evaluations = [r["step"] for r in zt.metrics(output) if "validation_loss" in r]
        self.assertEqual(evaluations, [10, 20, 30, 40])
        self.assert_same_tensors(self.step_40, output / "checkpoints" / "step_40")

    def test_resume_on_other_numbers_of_ranks_agrees(self):
        for ranks in (1, 4):
            output = self.resume(f"ranks_{ranks}", ranks=ranks)
            self.assert_close(self.second_half(), zt.losses(output), 1e-5, f"{ranks} ranks")

    def test_strategy_and_mesh_may_change(self):
        output = self.resume(
            "zero1", {"sharding.strategy": "zero1", "sharding.gradient_accumulation": "reduce"}
        )
        self.assert_same(self.second_half(), zt.losses(output), "FULL_SHARD to zero1")
        output = self.resume(
            "hybrid", {"sharding.strategy": "HYBRID_SHARD", "mesh.replicate": 2, "mesh.shard": 2}, ranks=4
        )
        self.assert_close(
            self.second_half(), zt.losses(output), 1e-5, "FULL_SHARD on 2 to HYBRID_SHARD on 2 x 2"
        )

    def test_a_checkpoint_of_whole_copies_resumes_sharded(self):
        straight = self.train(2, "zero0", {"sharding.strategy": "zero0", "batch.global": 2})
        output = self.train(
            2, "zero0_full", {"batch.global": 2, "checkpoint.resume": straight / "checkpoints" / "step_20"}
        )
        expected = {s: v for s, v in zt.losses(straight).items() if s > 20}
        self.assert_same(expected, zt.losses(output), "zero0 to FULL_SHARD")

    def test_a_run_that_ends_itself_goes_on_as_if_it_had_not(self):
        exported = self.folder / "exported"
        overrides = {"checkpoint.resume": "auto", "checkpoint.export": exported}
        for step in (1, 2):
            output = self.train(2, "limited", {**overrides, "run.max_minutes": 1e-9})
            self.assertIn(f"run.max_minutes = 1e-09: the run stops after step {step} of 40", self.last.out)
            self.assertIn(f"nothing is exported to '{exported}': the run is not at its end", self.last.out)
            self.assertTrue((output / "checkpoints" / f"step_{step}" / "index.h5").exists())
        self.assertEqual(list(zt.validation_losses(output)), [])
        self.assertFalse(exported.exists(), "the run is not complete")
        self.train(2, "limited", {**overrides, "run.max_minutes": 60})
        self.assertNotIn("the run stops", self.last.out)
        self.assertNotIn("nothing is exported", self.last.out)
        self.assertTrue((exported / "model.safetensors").exists(), "now it is")
        self.assert_same(zt.losses(self.straight), zt.losses(output))
        self.assertEqual(zt.validation_losses(self.straight), zt.validation_losses(output))
        self.assert_same_tensors(self.step_40, output / "checkpoints" / "step_40")

    def test_the_last_step_ends_a_run_that_would_end_itself(self):
        output = self.train(2, "last", {"run.steps": 1, "run.max_minutes": 1e-9})
        self.assertNotIn("the run stops", self.last.out)
        self.assertEqual(list(zt.validation_losses(output)), [1])

    def test_the_time_left_is_that_of_a_run_that_ends_itself(self):
        self.train(2, "left", {"run.steps": 1000000, "run.max_minutes": 1e-9})
        self.assertRegex(self.last.out, r"\n +1/1000000 .* 0s\n")

    def test_the_last_step_of_a_run_that_ends_itself_is_printed(self):
        self.train(2, "unprinted", {"run.steps": 100, "run.max_minutes": 1e-9, "metrics.interval": 10})
        self.assertRegex(self.last.out, r"\n +1/100 .*\n(.*\n)*run\.max_minutes.* stops after step 1 of 100")

    def test_minutes_that_are_none_are_refused(self):
        for minutes in ("-1", "soon", "nan"):
            self.refused({"run.max_minutes": minutes}, r"run\.max_minutes")

    def test_a_run_may_be_lengthened(self):
        output = self.resume("longer", {"run.steps": 44, "schedule.name": "cosine"})
        self.assertEqual(list(zt.losses(output)), list(range(21, 45)))
        rates = {r["step"]: r["lr"] for r in zt.metrics(self.straight) + zt.metrics(output) if "lr" in r}
        self.assertIn(
            f"warning: the run was 40 steps long and is 44 now: the learning rate, {rates[20]:.2e} in the step before, "
            f"goes on with {rates[21]:.2e}",
            self.last.out,
        )
        self.resume("as_long")
        self.assertNotIn("the learning rate", self.last.out)

    def test_a_run_that_has_decayed_is_lengthened_from_before_its_decay(self):
        keys = {"schedule.name": "wsd", "schedule.decay": 4, "checkpoint.interval": 2, "checkpoint.keep": 0}
        self.train(1, "stable", {**keys, "run.steps": 8})
        output = self.train(1, "stable", {**keys, "run.steps": 10, "checkpoint.resume": "auto"})
        rates = {r["step"]: r["lr"] for r in zt.metrics(output) if "lr" in r}
        self.assertIn(
            f"the learning rate, {rates[8]:.2e} in the step before, goes on with {rates[9]:.2e}", self.last.out
        )
        self.assertIn(f'checkpoint.resume = "{output}/checkpoints/step_4"', self.last.out)
        self.train(1, "stable", {**keys, "run.steps": 10, "checkpoint.resume": output / "checkpoints" / "step_4"})
        self.assertNotIn("the learning rate", self.last.out)

    def test_a_finished_run_starts_no_step(self):
        before = zt.losses(self.straight)
        self.train(2, "straight", {"checkpoint.resume": "auto"})
        self.assertEqual(before, zt.losses(self.straight))
        self.assertNotIn("step 41 of 40", self.last.out)

    def test_a_new_run_in_the_same_folder_keeps_the_old_metrics_aside(self):
        once = zt.losses(self.train(1, "anew", {"run.steps": 3}))
        again = zt.losses(self.train(1, "anew", {"run.steps": 3, "run.seed": 7}))
        self.assertNotEqual(once, again)
        previous = self.folder / "anew" / "metrics.previous.jsonl"
        self.assertIn(f"the metrics of the run before are now in {previous}\n", self.last.out)
        self.assertTrue(previous.exists())

    def test_a_new_run_is_not_mixed_up_with_the_checkpoints_of_an_old_one(self):
        output = self.train(2, "twice", {"run.steps": 8, "checkpoint.interval": 4})
        self.train(2, "twice", {"run.steps": 6, "checkpoint.interval": 3, "run.seed": 5})
        self.assertEqual(zt.names_in(output / "checkpoints"), ["step_3", "step_6"])
        kept = [p for p in output.rglob("step_8") if p.parent.name != "checkpoints"]
        self.assertEqual(len(kept), 1, "the old run's checkpoints are lost")
        self.train(2, "twice", {"run.steps": 7, "run.seed": 5, "checkpoint.resume": "auto"})
        self.assertIn("training starts at step 7 of 7", self.last.out)

    def test_h5py_reads_whole_tensors(self):
        import h5py

        with h5py.File(self.step_40 / "index.h5") as file:
            metadata = json.loads(file.attrs["metadata"])
            for state in ("model", "optimizer/exp_avg", "optimizer/exp_avg_sq"):
                weight = file[f"{state}/model.layers.1.mlp.up_proj.weight"]
                self.assertEqual((weight.shape, str(weight.dtype)), ((80, 32), "float32"), state)
                self.assertTrue((abs(weight[...]) < 10).all(), state)  # false for NaN
            self.assertEqual(file["model/model.embed_tokens.weight"].shape, (257, 32))
            self.assertEqual(file["model/model.norm.weight"].shape, (32,))
            self.assertEqual(file["model/model.layers.0.self_attn.k_proj.weight"].shape, (16, 32))
        self.assertEqual(metadata["step"], 40)
        self.assertEqual(metadata["samples"], 160)
        self.assertEqual(metadata["mesh"]["shard"], 2)

    def test_bf16_checkpoint_resumes_bitwise(self):
        straight = self.train(2, "bf16", {"precision.preset": "bf16"})
        output = self.train(
            2,
            "bf16_on",
            {"precision.preset": "bf16", "checkpoint.resume": straight / "checkpoints" / "step_20"},
        )
        self.assert_same({s: v for s, v in zt.losses(straight).items() if s > 20}, zt.losses(output))
        self.assert_same_tensors(straight / "checkpoints" / "step_40", output / "checkpoints" / "step_40")

    def test_keep_removes_old_checkpoints(self):
        output = self.train(1, "keep", {"run.steps": 8, "checkpoint.interval": 2, "checkpoint.keep": 3})
        self.assertEqual(zt.names_in(output / "checkpoints"), ["step_4", "step_6", "step_8"])
        every = {"run.steps": 8, "checkpoint.interval": 1, "checkpoint.keep": 1, "checkpoint.keep_every": 3}
        output = self.train(1, "every", every)
        self.assertEqual(zt.names_in(output / "checkpoints"), ["step_3", "step_6", "step_7", "step_8"])
        self.refused({**every, "checkpoint.interval": 2}, r"checkpoint\.keep_every = 3 is no multiple of checkpoint\.interval = 2")

    def test_shorter_sequences_are_refused(self):
        self.refused({"data.sequence": 16}, r"data\.sequence was 32 when .* and is 16 now")

    def test_another_learning_rate_is_refused(self):
        self.refused(
            {"optimizer.lr": 0.1},
            r"command line: optimizer\.lr was 0\.003 when .* and is 0\.1 now",
            r'or go on with them: checkpoint\.override = \["optimizer\.lr"\];',
        )

    def test_another_learning_rate_goes_on_from_the_same_bits(self):
        keys = {"checkpoint.interval": 21, "checkpoint.keep": 0}
        plain = self.resume("plain_rate", keys)
        overrides = {"optimizer.lr": 1e-3, "schedule.name": "linear", "checkpoint.override": ["optimizer.lr", "schedule.*"]}
        other = self.resume("other_rate", {**keys, **overrides})
        self.assertIn("  optimizer.lr: 0.003 -> 0.001\n", self.last.out)
        self.assertIn('  schedule.name: "cosine" -> "linear"\n', self.last.out)
        rates = {r["step"]: r["lr"] for r in zt.metrics(other) if "lr" in r}
        was = next(r["lr"] for r in zt.metrics(plain) if r["step"] == 21)
        self.assertIn(
            f"schedule: step 21 has a learning rate of {rates[21]:.2e}, with the keys as they were {was:.2e}\n  from there "
            f"it falls to 1.00e-04 at the end of the run, step 40\n",
            self.last.out,
        )
        self.assertEqual(rates[21], 1e-3 * (0.1 + 0.9 * (1 - 20 / 40)))
        straight, found = zt.losses(self.straight), zt.losses(other)
        self.assertEqual(straight[21], found[21], "the weights are those of the checkpoint")
        self.assertNotEqual(straight[22], found[22])
        a, b = (zt.tensors(run / "checkpoints" / "step_21") for run in (plain, other))
        moments = [name for name in a if name.startswith("optimizer/")]
        self.assertTrue(moments)
        for name in moments:
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), name)
        self.resume("again", {**overrides, "checkpoint.resume": other / "checkpoints" / "step_21"})
        self.assertNotIn("changed by checkpoint.override", self.last.out, "this checkpoint has these keys")

    def test_entries_that_name_nothing_that_can_change_are_refused(self):
        for entry, why in (("optimizer.lrr", r'is no key.*did you mean "optimizer\.lr"'), ("optimizer.name", "can never change")):
            self.refused({"checkpoint.override": [entry]}, rf'checkpoint\.override: "{entry}" {why}.*legal are run\.seed')
        self.refused(
            {"checkpoint.override": ["optimizer.*"], "optimizer.name": "lion"},
            r"\(it can never change: the states of another optimizer are others\)\nset these keys back; or keep",
        )

    def test_epochs_go_on_with_files_that_are_added_and_with_another_batch(self):
        data = self.folder / "growing"
        data.mkdir()
        zt.write_text_data(data / "b.txt", 32 * 20 + 1, seed=2)
        keys = {"run.steps": 0, "run.epochs": 1, "data.train": f"{data}/*.txt", "data.validation": self.text, "checkpoint.resume": "auto"}
        output = self.train(1, "epochs", keys)
        self.assertEqual(list(zt.losses(output)), list(range(1, 6)))
        zt.write_text_data(data / "a.txt", 32 * 8 + 1, seed=3)
        words = zt.words_of({"run.output": output, **keys})
        self.assert_refused(zt.run(1, [self.deck, *words]), r'data\.train is not what .*checkpoint\.override = \["data\.\*"\]')
        more = {**keys, "batch.global": 2, "checkpoint.override": ["data.*", "batch.global"]}
        self.train(1, "epochs", more)
        self.assertIn("data: 20 sequences (640 tokens) are consumed; steps take 2 sequences from here on, 4 before\n  no", self.last.out)
        self.assertIn(
            "data.train goes on with 8 sequences of 1 new file (a.txt), and 0 of the others that this epoch has not seen; none of "
            "the 20 seen comes again before the next epoch, which is over all 28\n",
            self.last.out,
        )
        self.assertIn("length: the run ends at step 9, 5 before\n", self.last.out)
        last = [r for r in zt.metrics(output) if "loss" in r][-1]
        self.assertEqual((last["step"], last["tokens"]), (9, 28 * 32))
        self.assertAlmostEqual(last["epoch"], 1)
        self.train(1, "epochs", {**more, "run.epochs": 2})
        self.assertNotIn("changed by checkpoint.override", self.last.out)
        self.assertIn("length: the run ends at step 23: its batch or data changed behind step 5\n", self.last.out)
        self.assertEqual(list(zt.losses(output)), list(range(1, 24)), "14 steps of 2 are an epoch of 28")

    def test_other_data_begin_an_epoch(self):
        other = zt.write_text_data(self.folder / "others.txt", 9000, seed=5)
        output = self.resume("others", {"data.train": other, "data.sequence": 16, "checkpoint.override": ["data.*"], "run.steps": 22})
        self.assertIn('  data.train: ["text.txt"] -> ["others.txt"]\n', self.last.out)
        self.assertRegex(self.last.out, r"sequences of 32 tokens are cut anew into 16\n  texts that were seen may come again")
        self.assertRegex(self.last.out, r"data\.train starts its first epoch over \d+ sequences")
        self.assertIn("note: the validation data differ from those of", self.last.out)
        self.assertEqual([r["tokens"] for r in zt.metrics(output) if "loss" in r], [80 * 32 + 64, 80 * 32 + 128])
        self.assertNotEqual(zt.losses(output)[21], zt.losses(self.straight)[21])
        mixed = {"data.train": [self.folder / "text.txt", other], "data.weights": [0.5, 0.5], "checkpoint.override": ["data.*"], "run.steps": 21}
        self.resume("mixed", mixed)
        self.assertRegex(self.last.out, r"sequences \(\d+ tokens\) are consumed\n  texts that were seen may come again")

    def test_the_best_is_exported_and_a_run_that_gets_worse_ends(self):
        keys = {"evaluation.interval": 5, "checkpoint.interval": 10, "checkpoint.keep": 1, "checkpoint.resume": "auto"}
        output = self.train(1, "best", {**keys, "run.steps": 10, "checkpoint.keep_best": 1})
        worse = {"optimizer.lr": 3.0, "optimizer.max_norm": 0, "schedule.name": "constant", "checkpoint.override": ["optimizer.*", "schedule.name"]}
        exported = self.folder / "best_export"
        export = {"checkpoint.export": exported, "checkpoint.export_from": "best", "evaluation.patience": 2}
        self.train(1, "best", {**keys, **worse, **export, "run.steps": 40})
        self.assertIn("step 20: the run ends here: no loss of 2 evaluations in a row", self.last.out)
        best = output / "checkpoints" / "step_10"
        self.assertRegex(self.last.out, rf"the lowest validation loss is \S+ \(perplexity \S+\), of step 10: checkpoint {best}\n")
        self.assertEqual(zt.names_in(output / "checkpoints"), ["step_10", "step_20"])
        again = zt.run(0, ["export", best, "--to", self.folder / "by_hand"])
        self.assertEqual(again.code, 0, str(again))
        weights = [(folder / "model.safetensors").read_bytes() for folder in (exported, self.folder / "by_hand")]
        self.assertEqual(weights[0], weights[1])
        self.assertEqual(sorted(zt.validation_losses(output)), [5, 10, 15, 20])
        newest = output / "checkpoints" / "step_20"
        near = rf"such as '{newest}', or '{best}' with the lowest validation loss"
        self.assert_refused(zt.run(0, ["evaluate", output, "--data", self.folder / "others.txt"]), near)
        self.train(1, "best", {**keys, **worse, **export, "run.steps": 50})
        self.assertRegex(self.last.out, rf"nothing to do: .*, or set it to 0, to go on from there; checkpoint\.resume = \"{best}\" goes on from the best; give another checkpoint\.export")
        self.assertNotIn("changed by checkpoint.override", self.last.out)
        gentle = {"optimizer.lr": 1e-4, "checkpoint.resume": best, "checkpoint.export": self.folder / "gentle", "run.steps": 15}
        self.train(1, "best", {**keys, **worse, **export, **gentle})
        self.assertEqual(max(zt.losses(output)), 15)

    def test_another_model_is_refused(self):
        self.refused({"model.hidden_size": 48}, r"model\.hidden_size was 32 when .* and is 48 now")

    def test_another_file_is_refused(self):
        other = zt.write_text_data(self.folder / "other.txt")
        self.refused(
            {"data.train": other}, r"data\.train was \[\"text\.txt\"\] when .* is \[\"other\.txt\"\] now"
        )

    def test_a_moved_file_is_taken(self):
        moved = self.folder / "moved"
        moved.mkdir()
        shutil.copy(self.text, moved / "text.txt")
        self.assert_same(
            self.second_half(), zt.losses(self.resume("moved_data", {"data.train": moved / "text.txt"}))
        )

    def test_a_changed_file_is_refused(self):
        changed = self.folder / "changed"
        changed.mkdir()
        (changed / "text.txt").write_text(self.text.read_text().replace("ka", "KA", 1))
        self.refused(
            {"data.train": changed / "text.txt"}, r"data\.train is not what \S+/step_20 was trained on"
        )


if __name__ == "__main__":
    zt.main()
