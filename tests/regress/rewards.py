"""Reward models: heads that are drawn, read and exported, with adapters too; their evaluation; and refusals.

tests/regress/preferences.py holds losses and norms against TRL's.
"""

import json

import h5py
import hf_model as hf
import ztrain_run as zt
from preferences import GOLDEN, RUNS, write_reward_model

PAIRS, SCORE = GOLDEN / "pairs.h5", "score.weight"
EVALUATED = ("loss", "rewards_chosen", "rewards_rejected", "rewards_margins", "rewards_accuracies")
LORA = {"lora.rank": 2, "lora.alpha": 4, "lora.targets": ["q_proj", "v_proj"], "optimizer.lr": 1e-2}


class Rewards(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rewards = write_reward_model(cls.folder / "rewards")

    @classmethod
    def sections(cls):
        """All else comes with the golden numbers."""
        return {"checkpoint": {"resume": "none"}}

    def begin_deck(self, name, model, keys=None):
        return self.write_deck(name, {**RUNS["reward"]["settings"], "data.train": [str(PAIRS)], "model.from": str(model),
                                      "run.steps": 3, "checkpoint.export": str(self.folder / f"{name}_model"), **(keys or {})})

    def steps(self, name, ranks, model, keys=None):
        output = self.train(ranks, name, None, self.begin_deck(name, model, keys))
        return [record for record in zt.metrics(output) if "grad_norm" in record]

    def evaluate(self, model, ranks=0, *words):
        result = zt.run(ranks, ["evaluate", model, "--data", PAIRS, "--dtype", "fp32", "--sequence", 64, "--json", *words])
        self.assertEqual(result.code, 0, str(result))
        return json.loads(result.out)

    def assert_evaluated_alike(self, one, other, near=2e-6):
        self.assertEqual((one["pairs"], other["pairs"]), (12, 12))
        for key in EVALUATED:
            self.assertAlmostEqual(one[key], other[key], delta=near * max(1, abs(one[key])), msg=key)

    def saved(self, name, step=3):
        return self.folder / name / "checkpoints" / f"step_{step}"

    def test_evaluation_gives_the_rewards_of_training(self):
        first = {key: RUNS["reward"][key][0] for key in EVALUATED[1:]} | {"loss": RUNS["reward"]["losses"][0], "pairs": 12}
        for ranks, words in ((0, ()), (4, ("--tensor", 2, "--mesh.shard=2")), (2, ("--pipeline", 2)), (2, ("--mesh.context=2",))):
            self.assert_evaluated_alike(self.evaluate(self.rewards, ranks, *words), first, 1e-5)
        table = zt.run(0, ["evaluate", self.rewards, "--data", PAIRS, PAIRS, "--dtype", "fp32"])
        self.assertRegex(table.out, r"file +pairs +loss +chosen +rejected +margin +accuracy")
        self.assertRegex(table.out, r"all +24 +0\.83347")

    def test_a_drawn_head_is_the_same_on_every_mesh_and_is_exported(self):
        one = self.steps("one", 1, GOLDEN / "llama")
        self.assertIn("the head (score.weight) is drawn from seed", self.last.out)
        self.assertIn("head for rewards", self.last.out)
        four = self.steps("four", 4, GOLDEN / "llama", {"mesh.tensor": 2, "batch.micro": 3, "tensor.sequence_parallel": False,
                                                         "offload.optimizer": "cpu"})
        for a, b in zip(one, four):
            for key in (*EVALUATED, "grad_norm"):
                self.assertAlmostEqual(a[key], b[key], delta=1e-5 * max(1, abs(a[key])), msg=key)
            self.assertNotIn("logps_chosen", a)
        exported = self.folder / "one_model"
        config, tensors = json.loads((exported / "config.json").read_text()), hf.read_folder(exported)
        self.assertEqual(config["architectures"], ["LlamaForSequenceClassification"])
        self.assertEqual((config["id2label"], config["label2id"]), ({"0": "LABEL_0"}, {"LABEL_0": 0}))
        self.assertEqual((config["num_labels"], config["problem_type"]), (1, "regression"))
        self.assertEqual(config["tie_word_embeddings"], True)
        self.assertNotIn("lm_head.weight", tensors)
        with h5py.File(self.saved("one") / "index.h5") as index:
            self.assertEqual(index[f"model/{SCORE}"][:].tobytes(), tensors[SCORE][2])
        self.assert_evaluated_alike(self.evaluate(self.saved("one"), 2), self.evaluate(exported))
        # A new run from the export, and from the checkpoint, begins where the last one ended.
        after = self.evaluate(exported)["loss"]
        for name, model in (("on", exported), ("on_saved", self.saved("one"))):
            begun = self.steps(name, 2, model, {"run.steps": 1})
            self.assertAlmostEqual(begun[0]["loss"], after, delta=2e-6)
            self.assertNotIn("drawn from seed", self.last.out)

    def test_padding_that_ends_answers_is_not_exported(self):
        for name, pad, ends, written in (("kept", 0, 2, 0), ("ends", 2, 3, 2), ("an_end", 2, [3, 2], None)):
            model = self.folder / f"{name}_causal"
            model.mkdir()
            config = json.loads((GOLDEN / "llama" / "config.json").read_text())
            (model / "config.json").write_text(json.dumps({**config, "pad_token_id": pad, "eos_token_id": ends}))
            (model / "model.safetensors").write_bytes((GOLDEN / "llama" / "model.safetensors").read_bytes())
            self.steps(name, 1, model, {"run.steps": 1})
            self.assertEqual(json.loads((self.folder / f"{name}_model" / "config.json").read_text())["pad_token_id"], written)

    def test_adapters_leave_the_head_trained_whole(self):
        keys = {**LORA, "checkpoint.export_adapter": True, "checkpoint.interval": 2}
        self.steps("adapted", 2, GOLDEN / "llama", keys)
        with h5py.File(self.saved("adapted", 2) / "index.h5") as before, h5py.File(self.saved("adapted") / "index.h5") as after:
            self.assertNotEqual(before[f"model/{SCORE}"][:].tobytes(), after[f"model/{SCORE}"][:].tobytes())
        adapter = self.folder / "adapted_model"
        config, tensors = json.loads((adapter / "adapter_config.json").read_text()), hf.read_folder(adapter)
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score"]))
        self.assertEqual([name for name in tensors if ".lora_" not in name], [f"base_model.model.{SCORE}"])
        expected = self.evaluate(self.saved("adapted"))
        self.assert_evaluated_alike(self.evaluate(adapter, 2), expected)
        for name, source in (("merged", self.saved("adapted")), ("merged_peft", adapter)):
            merged = zt.run(2, ["export", source, "--merge", "--to", self.folder / name, "--dtype", "fp32"])
            self.assertEqual(merged.code, 0, str(merged))
            self.assert_evaluated_alike(self.evaluate(self.folder / name), expected)
        self.assertEqual(hf.read_folder(self.folder / "merged"), hf.read_folder(self.folder / "merged_peft"))
        begun = self.steps("adapted_on", 2, adapter, {"run.steps": 1})
        self.assertAlmostEqual(begun[0]["loss"], expected["loss"], delta=2e-6)

    def test_what_does_not_fit_is_refused(self):
        self.steps("plain", 1, self.rewards, {"run.steps": 1})
        for model in (self.rewards, self.saved("plain", 1)):
            self.assert_refused(zt.run(0, ["generate", model, "--prompt-ids", "5,6"]), "it is a reward model", "ztrain evaluate")
            self.assert_refused(zt.run(0, ["evaluate", model, "--choices", GOLDEN / "choices.jsonl"]), "--choices", "it is a reward model|is a reward model")
            for loss in ("none", "sigmoid"):
                deck = self.begin_deck("refused", model, {"preference.loss_type": loss})
                self.assert_refused(zt.run(0, ["check", deck]), "model.from: .* is a reward model", f'preference.loss_type = "{loss}"')
        for name, config, patterns in (
            ("labels", {"id2label": {"0": "A", "1": "B"}}, ("id2label", "is 2")),
            ("default_labels", {"id2label": None}, ("num_labels", "is 2")),
            ("pad", {"pad_token_id": 2}, ("pad_token_id = 2", "eos_token_id", "null")),
        ):
            deck = self.begin_deck("refused", write_reward_model(self.folder / name, config))
            self.assert_refused(zt.run(0, ["check", deck]), *patterns)
        missing = write_reward_model(self.folder / "missing")
        tensors = hf.read_file(missing / "model.safetensors")
        del tensors[SCORE]
        hf.write_file(missing / "model.safetensors", tensors)
        self.assert_refused(zt.run(0, ["check", self.begin_deck("refused", missing)]), "1 tensor is missing", SCORE)
        deck = self.begin_deck("refused", GOLDEN / "granite")
        self.assert_refused(zt.run(0, ["check", deck]), "checkpoint.export", "granite", "no class for reward models")


if __name__ == "__main__":
    zt.main()
