"""Losses on pairs of answers: TRL's numbers, the same run on every mesh and strategy, resume, and refusals.

tools/parity/preferences_against_trl.py --golden writes pairs.h5, labels.h5 and preferences.json.
"""

import json
import struct

import h5py
import hf_model as hf
import ztrain_run as zt

GOLDEN = zt.SOURCE / "tests" / "regress" / "golden"
RUNS = json.loads((GOLDEN / "preferences.json").read_text())["runs"]
REPORTED = ("rewards_chosen", "rewards_rejected", "rewards_margins", "rewards_accuracies", "logps_chosen", "logps_rejected")
# All pairs in one sequence; and some held out.
PACKED = {"data.sequence": 512, "data.max_documents": 0, "batch.global": 1, "batch.micro": 1}
VALIDATED = {"data.validation_fraction": 0.25, "evaluation.interval": 4, "batch.global": 4}


def write_reward_model(folder, config=None):
    """Writes the model of the golden numbers with a head for rewards, whose weights are made up."""
    folder.mkdir()
    own = {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "pad_token_id": 0}
    causal = json.loads((GOLDEN / "llama" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**causal, **own, **(config or {})}))
    score = [0.1 * (7 * i % 11 - 5) for i in range(causal["hidden_size"])]
    tensors = hf.read_file(GOLDEN / "llama" / "model.safetensors")
    tensors["score.weight"] = ("F32", [1, len(score)], struct.pack(f"<{len(score)}f", *score))
    hf.write_file(folder / "model.safetensors", tensors)
    return folder


class Preferences(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.reward_model = write_reward_model(cls.folder / "rewards")

    @classmethod
    def sections(cls):
        """All else comes with the golden numbers."""
        return {"checkpoint": {"interval": -1}}

    def steps(self, loss, ranks, name, overrides=None):
        model = self.reward_model if RUNS[loss]["settings"]["preference.loss_type"] == "reward" else GOLDEN / "llama"
        paths = {"data.train": [str(GOLDEN / RUNS[loss]["data"])], "model.from": str(model), "checkpoint.resume": "none"}
        output = self.train(ranks, name, overrides, self.write_deck(name, {**RUNS[loss]["settings"], **paths}))
        return [record for record in zt.metrics(output) if "grad_norm" in record]

    def assert_as_trl(self, loss, steps, what):
        run = RUNS[loss]
        self.assertEqual(len(steps), len(run["losses"]), what)
        others = ((key, key) for key in run if key not in ("data", "settings", "losses", "norms"))
        for ours, theirs in (("loss", "losses"), ("grad_norm", "norms"), *others):
            first = 1 if ours == "rewards_accuracies" else 0  # at first all rewards are zero, but for rounding
            for step, expected in zip(steps[first:], run[theirs][first:]):
                # discopop turns on within its temperature of 0.05, so that rounding of weights counts for more
                near = (1e-4 if loss == "discopop" else 1e-5) * max(1, *map(abs, run[theirs]))
                if ours == "grad_norm" and step["step"] > 1:  # of weights that differ by rounding, TRL's in fp32 too
                    near = (1e-3 if loss == "discopop" else 2e-4) * expected
                elif ours == "kl":  # a difference of sums over rows near 50, of which fp32 holds 4e-6
                    near = 4e-5
                self.assertAlmostEqual(step[ours], expected, delta=near, msg=f"{what}, {ours} of step {step['step']}")

    def test_losses_and_norms_are_those_of_trl(self):
        for loss in RUNS:
            self.assert_as_trl(loss, self.steps(loss, 2, loss, {"batch.micro": 6}), loss)

    def test_meshes_and_strategies_agree(self):
        """PACKED has all pairs in one sequence, the others have a pair in each."""
        meshes = {
            "packed": (1, PACKED),
            "tensor": (2, {"mesh.tensor": 2}),
            "context": (2, {"mesh.context": 2, **PACKED}),
            "pipeline": (2, {"mesh.pipeline": 2, "sharding.strategy": "zero1"}),
            "copies": (4, {"sharding.strategy": "NO_SHARD", "recompute.mode": "full", "batch.micro": 1}),
            "heads": (4, {"mesh.tensor": 2, "mesh.context": 2, "context.method": "ulysses", "batch.micro": 3}),
            "ring": (4, {"mesh.pipeline": 2, "mesh.context": 2, "context.method": "ring"}),
        }
        for name, (ranks, keys) in meshes.items():
            self.assert_as_trl("sigmoid", self.steps("sigmoid", ranks, name, keys), name)
            if name in ("packed", "context", "pipeline", "heads", "copies"):
                self.assert_as_trl("reward_centered", self.steps("reward_centered", ranks, f"reward_{name}", keys), f"reward {name}")
        for name, (ranks, keys) in meshes.items():  # kto compares with what all ranks have at once
            if name in ("packed", "context", "heads", "ring"):
                keys = keys if "batch.global" in keys else {**keys, "batch.micro": 12}
                self.assert_as_trl("kto", self.steps("kto", ranks, f"kto_{name}", keys), f"kto {name}")

    def test_losses_without_a_reference_agree_on_meshes(self):
        for loss in ("orpo", "simpo"):
            keys = {"preference.loss_type": loss}
            one = self.steps("sigmoid", 1, f"{loss}_one", keys)
            four = self.steps("sigmoid", 4, f"{loss}_four", {**keys, "mesh.tensor": 2, "batch.micro": 3})
            self.assertLess(one[-1]["loss"], one[0]["loss"])
            self.assertGreater(one[-1]["rewards_margins"], one[0]["rewards_margins"])
            for key in ("loss", "grad_norm", *REPORTED):
                for a, b in zip(one, four):
                    self.assertAlmostEqual(a[key], b[key], delta=1e-5 * max(1, abs(a[key])), msg=f"{loss} {key}")
        self.assertFalse((self.folder / "orpo_one" / "reference.h5").exists())

    def test_resuming_keeps_the_reference(self):
        keys = {**VALIDATED, "lora.rank": 4, "lora.targets": ["q_proj"], "checkpoint.interval": 4, "optimizer.lr": 1e-2}
        whole = self.steps("sigmoid", 2, "whole", keys)
        self.assertRegex(self.last.out, r"the lowest validation loss is \d\.\d{4}, of step")
        self.assert_refused(zt.run(2, ["evaluate", GOLDEN / "llama", "--data", GOLDEN / "pairs.h5"]), r"--data: '\S+pairs\.h5' holds pairs of answers, .*data\.validation")
        self.assertNotEqual(whole[0]["loss"], whole[-1]["loss"])
        self.steps("sigmoid", 2, "cut", {**keys, "run.steps": 4})
        reference = (self.folder / "cut" / "reference.h5").read_bytes()
        self.assertEqual(reference, (self.folder / "whole" / "reference.h5").read_bytes())
        self.steps("sigmoid", 2, "cut", {**keys, "checkpoint.resume": "auto"})
        self.assert_same(zt.losses(self.folder / "whole"), zt.losses(self.folder / "cut"))
        of_validation = [r for r in zt.metrics(self.folder / "whole") if "validation_loss" in r]
        self.assertEqual([r["step"] for r in of_validation], [4, 8])
        for record in of_validation:
            self.assertTrue(record.keys() >= set(REPORTED) and "perplexity" not in record, record)
            self.assertTrue(0 <= record["rewards_accuracies"] <= 1, record)
        self.steps("sigmoid", 1, "alone", {**keys, "run.steps": 4})
        alone = next(r for r in zt.metrics(self.folder / "alone") if "validation_loss" in r)
        for key in REPORTED:
            self.assertAlmostEqual(alone[key], of_validation[0][key], delta=1e-5 * max(1, abs(alone[key])), msg=key)

        def refuse(pattern):
            result = zt.run(2, [self.folder / "cut.toml", *zt.words_of({**keys, "run.output": "cut", "run.steps": 9,
                                                                       "checkpoint.resume": "auto", "checkpoint.override": ["data.*"]})])
            self.assert_refused(result, "run.output", pattern)

        with h5py.File(self.folder / "cut" / "reference.h5", "r+") as file:
            self.assertLess(file["train.0"][:].max(), 0)
            file["train.0"][3] += 1e-9
        refuse("other log-probabilities")
        for keys["data.sequence"] in (RUNS["sigmoid"]["settings"]["data.sequence"] * 2,):
            refuse(r"data\.sequence was \d+ and is \d+, and preference\.loss_type = \"sigmoid\" .*: set the keys back")
        del keys["data.sequence"]
        with h5py.File(self.folder / "cut" / "reference.h5", "r+") as file:
            del file["train.0"]
            file["train.0"] = [0.0] * 5
        refuse(r"has 5 log-probabilities in train\.0, and the data need \d+, two for each of \d+ pairs")
        (self.folder / "cut" / "reference.h5").unlink()
        refuse("reference.h5' is not there")
        (self.folder / "cut" / "reference.h5").mkdir()
        refuse("reference.h5' is no file")

    def test_what_does_not_fit_is_refused(self):
        pairs, chats = str(GOLDEN / "pairs.h5"), str(GOLDEN / "documents.h5")
        for keys, patterns in (
            ({"data.train": [chats]}, ("documents.h5' holds no pairs", "preference.loss_type")),
            ({"preference.loss_type": "none"}, ("pairs.h5' holds pairs", "preference.loss_type")),
            ({"data.long_documents": "split"}, ("data.long_documents", "preference.loss_type")),
            ({"data.packing": "windows"}, ("data.packing", "preference.loss_type")),
            ({"data.max_documents": 1}, ("data.max_documents", "preference.loss_type")),
            ({"preference.loss_type": "ipo", "preference.label_smoothing": 0.1}, ("preference.label_smoothing", "ipo")),
            ({"preference.loss_type": "exo_pair"}, ("preference.label_smoothing", "above 0")),
            ({"preference.center_rewards_coefficient": 0.1}, ("preference.center_rewards_coefficient", "sigmoid")),
        ):
            deck = self.write_deck("refused", {**RUNS["sigmoid"]["settings"], "data.train": [pairs],
                                               "model.from": str(GOLDEN / "llama"), **keys})
            self.assert_refused(zt.run(0, ["check", deck]), *patterns)


if __name__ == "__main__":
    zt.main()
