"""Adapters and frozen parameters: the same run on every mesh and strategy, no state for what is frozen."""

import json

import hf_model as hf
import ztrain_run as zt

LORA = {"lora.random_base": True, "lora.rank": 4, "lora.alpha": 8, "lora.dropout": 0.2, "lora.targets": ["q_proj", "v_proj", "down_proj"]}
PARTIAL = {"model.trainable": ["model.layers.1.*", "lm_head.weight"], "model.frozen": ["*norm.weight"]}


class Adapters(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one_rank = zt.losses(cls.train(1, "one_rank", LORA))

    def test_strategies_and_ranks_agree(self):
        for ranks in (2, 4):
            first = None
            for strategy in ("FULL_SHARD", "NO_SHARD", "zero2"):
                keys = {**LORA, "sharding.strategy": strategy, "sharding.gradient_accumulation": "reduce"}
                found = zt.losses(self.train(ranks, f"{strategy}_{ranks}", keys))
                first = first or found
                self.assert_same(first, found, strategy)
                self.assert_close(self.one_rank, found, 1e-5, f"{strategy} on {ranks} ranks")

    def test_a_model_starts_as_without_adapters(self):
        plain = zt.losses(self.train(1, "plain"))
        self.assertEqual(plain[1][0], self.one_rank[1][0], "lora_B is zero at first")
        self.assertNotEqual(plain[3][0], self.one_rank[3][0])

    def test_micro_batches_and_recompute_drop_the_same_elements(self):
        plain = zt.losses(self.train(2, "micro_1", LORA))
        self.assert_same(plain, zt.losses(self.train(2, "again", {**LORA, "recompute.mode": "full"})))
        self.assert_close(self.one_rank, zt.losses(self.train(1, "micro_4", {**LORA, "batch.micro": 4})), 1e-5)
        without = zt.losses(self.train(2, "no_dropout", {**LORA, "lora.dropout": 0.0}))
        self.assertNotEqual(without[3][0], plain[3][0])

    def test_evaluation_drops_nothing(self):
        """Started from adapters that add something, and left as they are."""
        # One window of 32 tokens and its next: every sequence of every step is the same, masks alone differ.
        (self.folder / "window.txt").write_text(self.text.read_text()[:33])
        held = {**LORA, "checkpoint.frozen": True, "data.validation": "text.txt", "evaluation.batches": 4}
        trained = self.train(2, "eval_trained", {**held, "lora.dropout": 0.0, "evaluation.interval": 6})
        before = zt.validation_losses(trained)
        keys = {
            **held,
            "model.from": trained / "checkpoints" / "step_6",
            "evaluation.interval": 1,
            **zt.STILL,
            "data.train": "window.txt",
            "batch.global": 2,
            "run.steps": 3,
        }
        runs = {rate: self.train(2, f"eval_{rate}", {**keys, "lora.dropout": rate}) for rate in (0.0, 0.5)}
        losses = {rate: [loss for loss, _ in zt.losses(run).values()] for rate, run in runs.items()}
        self.assertGreater(abs(losses[0.0][0] - losses[0.5][0]), 1e-6, "dropout does nothing in training either")
        self.assertEqual(len(set(losses[0.0])), 1)
        self.assertEqual(len(set(losses[0.5])), 3, "each step draws its own masks")
        for run in runs.values():
            self.assertEqual(zt.validation_losses(run)[1], before[6])

    def test_only_adapters_change_and_have_states(self):
        output = self.train(2, "states", {**LORA, "checkpoint.frozen": True, "checkpoint.interval": 2, "checkpoint.keep": 0})
        early, late = (zt.tensors(output / "checkpoints" / f"step_{n}") for n in (2, 6))
        states = {name.split("/")[-1] for name in late if not name.startswith("model/")}
        adapters = {name[6:] for name in late if ".lora_" in name and name.startswith("model/")}
        self.assertEqual(states, adapters)
        self.assertEqual(len(adapters), 2 * 3 * 2, "A and B of three layers in two blocks")
        for name, array in late.items():
            if name.startswith("model/"):
                same = array.tobytes() == early[name].tobytes()
                self.assertEqual(same, name[6:] not in adapters, name)

    def test_resume_is_bitwise_the_same(self):
        for name, keys in (("lora", LORA), ("partial", PARTIAL)):
            keys = {**keys, "schedule.name": "constant"}
            whole = self.train(2, f"{name}_whole", keys)
            cut = self.train(2, f"{name}_cut", {**keys, "run.steps": 3})
            self.train(2, f"{name}_cut", {**keys, "checkpoint.resume": "auto"})
            self.assert_same(zt.losses(whole), zt.losses(cut))
            self.assert_same_tensors(whole / "checkpoints" / "step_6", cut / "checkpoints" / "step_6")

    def test_resume_on_another_mesh(self):
        keys = {**LORA, "schedule.name": "constant"}
        whole = self.train(2, "mesh_whole", keys)
        cut = self.train(2, "mesh_cut", {**keys, "run.steps": 3})
        self.train(4, "mesh_cut", {**keys, "checkpoint.resume": "auto", "sharding.strategy": "zero1"})
        self.assertIn("the frozen weights are drawn from seed 1234 again", self.last.out)
        self.assert_close(zt.losses(whole), zt.losses(cut), 1e-5)

    def test_what_is_trained_may_not_change_on_resume(self):
        self.train(2, "fixed", {**LORA, "run.steps": 2})
        for change in ({"lora.rank": 3}, {"lora.alpha": 4}, {"lora.rank": 0}, {"model.trainable": ["lm_head.weight"]}):
            words = {**LORA, **change, "run.output": self.folder / "fixed", "checkpoint.resume": "auto"}
            result = zt.run(2, [self.deck, *zt.words_of(words)])
            (key,) = change
            self.assert_refused(result, key.replace(".", r"\.") + " was .* when the checkpoint was written")

    def test_frozen_parameters_keep_their_bits(self):
        output = self.train(2, "partial", {**PARTIAL, "checkpoint.interval": 2, "checkpoint.keep": 0})
        self.assertIn("trained    ", self.last.out)
        words = zt.words_of({k: v for k, v in PARTIAL.items()})
        self.assertRegex(zt.run(0, ["check", self.deck, *words]).out, r"trained +\S+ of \S+ parameters .*lm_head\.weight, without")
        early, late = (zt.tensors(output / "checkpoints" / f"step_{n}") for n in (2, 6))
        changed = {name[6:] for name in late if late[name].tobytes() != early[name].tobytes() and name[:6] == "model/"}
        self.assertEqual(changed, {n.split("/")[-1] for n in late if n.startswith("optimizer/exp_avg/")})
        self.assertTrue(all(n == "lm_head.weight" or n.startswith("model.layers.1.") for n in changed), changed)
        self.assertFalse([n for n in changed if "norm" in n])

    def test_plans_count_the_states_of_what_is_trained(self):
        found = {}
        for name, keys in (("all", {}), ("lora", LORA)):
            result = zt.run(0, ["plan", self.deck, "--ranks", "2", "--json", *zt.words_of(keys)])
            self.assertEqual(result.code, 0, str(result))
            found[name] = json.loads(result.out)
        whole, lora = (
            found[name]["memory"][0]["programs"]["train step"]["device"]["categories"] for name in ("all", "lora")
        )
        model = found["lora"]["model"]
        share = model["trained_parameters"] / model["parameters"]
        self.assertLess(share, 0.2)
        # Padding to whole shards is all that may be beside the adapters' own states.
        self.assertLess(lora["optimizer"]["kept"], (share + 0.1) * whole["optimizer"]["kept"])
        self.assertLess(lora["gradients"]["peak"], 0.3 * whole["gradients"]["peak"])

    def test_mistakes_are_named(self):
        cases = [
            ({"lora.random_base": True, "lora.rank": 4, "lora.targets": ["q_prj"]}, r"lora\.targets: 'q_prj' is no linear layer.*q_proj"),
            ({"lora.random_base": True, "lora.rank": 4, "lora.targets": []}, r"lora\.targets, the layers that get adapters"),
            ({"model.frozen": ["*"]}, r"model\.frozen freezes every parameter"),
            ({"model.trainable": ["model.layer.*"]}, r"model\.trainable: 'model\.layer\.\*' matches no parameter"),
            ({"model.trainable": ["layers.0.*"]}, r"'layers\.0\.\*' matches no parameter; did you mean 'model\.layers\.0\.\*'\?"),
            ({"lora.rank": -1}, r"lora\.rank = -1 is not legal"),
        ]
        for overrides, pattern in cases:
            result = zt.run(2, [self.deck, *zt.words_of({**overrides, "run.output": self.folder / "no"})])
            self.assert_refused(result, pattern)


class LackTheirBase(hf.Models):
    """Checkpoints that do not hold the frozen weights, which are read again from the model's folder."""

    KEYS = {"lora.rank": 3, "lora.alpha": 5, "lora.targets": ["q_proj", "down_proj"], "optimizer.lr": 1e-2, "schedule.name": "constant"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = cls.train(2, "whole", {**cls.KEYS, "run.steps": 4, "checkpoint.interval": 2, "checkpoint.keep": 0})
        cls.held = cls.train(2, "held", {**cls.KEYS, "run.steps": 4, "checkpoint.frozen": True})
        cls.saved, cls.full = (run / "checkpoints" / "step_4" for run in (cls.whole, cls.held))

    def cut(self, name, **more):
        output = self.train(2, name, {**self.KEYS, **more})
        return output, {**self.KEYS, **more, "run.steps": 4, "checkpoint.resume": "auto"}

    def copy_of_model(self, name, changes=None):
        return self.write_model(name, {**self.tensors, **(changes or {})})

    def other_weight(self):
        """The model with one bit of one frozen weight changed."""
        name = "model.layers.1.mlp.up_proj.weight"
        dtype, shape, data = self.tensors[name]
        return name, {name: (dtype, shape, data[:400] + bytes([data[400] ^ 1]) + data[401:])}

    def run_tool(self, *words, ranks=0):
        result = zt.run(ranks, words)
        self.assertEqual(result.code, 0, str(result))
        return result.out

    def test_they_hold_what_is_trained_and_hashes_of_the_rest(self):
        self.assert_same(zt.losses(self.whole), zt.losses(self.held))
        found, held = zt.tensors(self.saved), zt.tensors(self.full)
        self.assertEqual(sorted(found), sorted(name for name in held if ".lora_" in name))
        for name, array in found.items():
            self.assertEqual(array.tobytes(), held[name].tobytes(), name)
        told = json.loads((self.saved / "metadata.json").read_text())["frozen"]
        self.assertEqual((told["from"], sorted(told["parameters"])), (str(self.folder / "model"), sorted(self.tensors)))
        self.assertIn(": sound", self.run_tool("verify", self.saved))
        self.assertIn(f"frozen     hash {told['hash']}, of {self.folder / 'model'}", self.run_tool("inspect", self.saved))
        self.assertIn("tensors are the same", self.run_tool("diff", self.saved, self.full))
        planned = json.loads(self.run_tool("plan", self.deck, "--ranks", 2, "--json", *zt.words_of(self.KEYS)))
        self.assertEqual(planned["verdict"]["checkpoint_bytes"], sum(array.nbytes for array in found.values()))

    def test_runs_go_on_bitwise_and_on_other_meshes(self):
        output, keys = self.cut("cut")
        self.train(2, "cut", keys)
        self.assertRegex(self.last.out, r"the frozen weights are read from \S+/model again: hash \w{16}, as in the checkpoint")
        self.assert_same(zt.losses(self.whole), zt.losses(output))
        self.assert_same_tensors(self.saved, output / "checkpoints" / "step_4")
        for ranks, more in ((4, {"sharding.strategy": "zero1"}), (4, {"mesh.tensor": 2, "mesh.pipeline": 2}), (3, {"batch.global": 4})):
            output, keys = self.cut(f"cut_{ranks}_{len(more)}")
            self.train(4, output.name, {**keys, **more})
            self.assert_close(zt.losses(self.whole), zt.losses(output), 1e-5)

    def test_another_base_is_refused(self):
        name, changes = self.other_weight()
        other = self.copy_of_model("other", changes)
        output, keys = self.cut("refused")
        words = zt.words_of({**keys, "run.output": output, "model.from": other})
        differs = rf"step_2: was trained beside the frozen weights of '{self.folder}/model' \(hash \w+\), and '{other}' has others \(hash \w+\): 1 of 21 parameters differ: {name}; give"
        self.assert_refused(zt.run(2, [self.deck, *words]), differs)
        for words in (["export", self.saved, "--to", self.folder / "no"], ["generate", self.saved, "--prompt-ids", 5]):
            self.assert_refused(zt.run(2, [*words, "--base", other]), differs.replace("step_2", "step_4"))
        words = {**self.KEYS, "model.from": self.saved, "model.base": other, "run.output": self.folder / "no_start"}
        self.assert_refused(zt.run(2, [self.deck, *zt.words_of(words)]), differs.replace("step_2", "step_4"))

    def test_a_base_that_was_moved_is_given(self):
        place = self.copy_of_model("place")
        output, keys = self.cut("moved", **{"model.from": place})
        moved = place.rename(self.folder / "elsewhere")
        saved = output / "checkpoints" / "step_2"
        gone = rf"step_2: holds what was trained alone; .* read from '{place}', and '{place}' is not there: give the folder .*--base"
        self.assert_refused(zt.run(0, ["export", saved, "--to", self.folder / "no"]), gone)
        self.assert_refused(zt.run(2, ["generate", saved, "--prompt-ids", 5]), gone)
        self.run_tool("generate", saved, "--prompt-ids", 5, "--base", moved)
        self.run_tool("export", saved, "--to", self.folder / "from_moved", "--base", moved, "--merge")
        self.train(2, "moved", {**keys, "model.from": moved})
        self.assert_same(zt.losses(self.whole), zt.losses(output))

    def test_they_generate_export_and_begin_runs_as_whole_ones(self):
        texts = [self.run_tool("generate", c, "--prompt-ids", "5,6", "--tokens", 8, "--logits", self.folder / f"{n}.bin", ranks=2)
                 for n, c in enumerate((self.saved, self.full))]
        self.assertEqual(texts[0].splitlines()[-1], texts[1].splitlines()[-1])
        self.assertEqual((self.folder / "0.bin").read_bytes(), (self.folder / "1.bin").read_bytes())
        for name, words in (("merged", []), ("fp16", ["--dtype", "fp16"]), ("alone", ["--adapter"])):
            one, other = (self.export(c, f"{name}_{n}", *words, ranks=2 - n) for n, c in enumerate((self.saved, self.full)))
            self.assertEqual(hf.read_folder(one), hf.read_folder(other))
        narrow = [self.train(2, f"narrow_{held}", {**self.KEYS, "precision.preset": "bf16", "checkpoint.frozen": held}) for held in (False, True)]
        one, other = (self.export(run / "checkpoints" / "step_2", f"{run.name}_export", "--dtype", "fp32") for run in narrow)
        self.assertEqual(hf.read_folder(one), hf.read_folder(other))
        first = {}
        for name, checkpoint in (("saved", self.saved), ("full", self.full)):
            first[name] = self.train(2, f"first_{name}", {**self.KEYS, "model.from": checkpoint})
        self.assert_same(zt.losses(first["saved"]), zt.losses(first["full"]))
        self.train(2, "first_saved", {**self.KEYS, "model.from": self.saved, "run.steps": 4, "checkpoint.resume": "auto"})

    def test_whole_ones_go_on_where_the_base_is_the_same(self):
        name, changes = self.other_weight()
        for model, refused in (("model", False), (self.copy_of_model("changed", changes), True)):
            output, keys = self.cut(f"old_{refused}", **{"checkpoint.frozen": True})
            words = {**keys, "checkpoint.frozen": False, "model.from": model, "run.output": output}
            if refused:
                self.assert_refused(zt.run(2, [self.deck, *zt.words_of(words)]), r"1 of 21 parameters differ.*set checkpoint\.frozen = true")
                self.train(2, output.name, {**words, "checkpoint.frozen": True})
            else:
                self.train(2, output.name, words)
                self.assert_same_tensors(self.saved, output / "checkpoints" / "step_4")
            self.assert_same(zt.losses(self.whole), zt.losses(output))


if __name__ == "__main__":
    zt.main()
