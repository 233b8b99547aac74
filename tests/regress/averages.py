"""Moving averages of weights (optimizer.ema_decay): what they are, on which ranks, after a resume, and who takes them."""

import json

import numpy
import ztrain_run as zt

DECAY = 0.75
KEYS = {"optimizer.ema_decay": DECAY}
LORA = {**KEYS, "precision.preset": "bf16", "sharding.gradient_accumulation": "reduce", "lora.random_base": True, "lora.rank": 4, "lora.targets": ["q_proj", "down_proj"]}


def averages(tensors):
    return {name.removeprefix("optimizer/ema/"): array for name, array in tensors.items() if name.startswith("optimizer/ema/")}


def as_bf16(array):
    """The values rounded to nearest even, as float64."""
    bits = array.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(numpy.float32).astype(float)


class Averages(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 4
        sections["batch"]["global"] = 8
        sections["checkpoint"].update({"interval": 1, "keep": 0})
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.start = cls.step_of(cls.train(1, "start", {"run.steps": 1}), 1)
        cls.adapters = cls.step_of(cls.train(2, "adapters", LORA), 4)

    @staticmethod
    def step_of(output, step):
        return output / "checkpoints" / f"step_{step}"

    def evaluated(self, folder, *words):
        result = zt.run(0, ["evaluate", folder, "--data", self.text, "--json", "--dtype", "fp32", "--sequence", "32", *words])
        self.assertEqual(result.code, 0, str(result))
        return result

    def exported(self, checkpoint, name, *words):
        folder = self.folder / name
        result = zt.run(0, ["export", checkpoint, "--to", folder, "--dtype", "fp32", *words])
        self.assertEqual(result.code, 0, str(result))
        data = next(folder.glob("*.safetensors")).read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        return {n: data[begin:][slice(*row["data_offsets"])] for n, row in header.items() if n != "__metadata__"}

    def test_they_follow_the_weights_from_the_first_on(self):
        """In float64, beside each kind of step. The run begins with weights that are known."""
        start = self.start
        kinds = {
            "no_master": {"precision.preset": "bf16-pure", "optimizer.name": "sgd", "optimizer.momentum": 0},
            "matrices": {"optimizer.name": "muon", "offload.optimizer": "cpu", "precision.preset": "bf16"},
        }
        for name, keys in kinds.items():
            output = self.train(2, name, {**KEYS, **keys, "model.from": start, "run.steps": 2})
            expected = {n.removeprefix("model/"): a.astype(float) for n, a in zt.tensors(start).items() if n.startswith("model/")}
            if name == "no_master":  # rounds the weights that it starts from
                expected = {n: as_bf16(a) for n, a in expected.items()}
            for step in (1, 2):
                found = zt.tensors(self.step_of(output, step))
                self.assertEqual(sorted(averages(found)), sorted(expected), name)
                for parameter, average in averages(found).items():
                    weights = found[f"model/{parameter}"].astype(float)
                    expected[parameter] = DECAY * expected[parameter] + (1 - DECAY) * weights
                    error = numpy.abs(average - expected[parameter]).max()
                    self.assertLessEqual(error, 3e-7 * numpy.abs(expected[parameter]).max(), f"{name} step {step} {parameter}")
                    self.assertEqual(average.dtype, numpy.float32)

    def test_weights_that_are_drawn_are_the_first_averages(self):
        output = self.train(1, "still", {**KEYS, **zt.STILL, "run.steps": 1})
        found = zt.tensors(self.step_of(output, 1))
        for parameter, average in averages(found).items():
            numpy.testing.assert_allclose(average, found[f"model/{parameter}"], atol=1e-6)

    def test_strategies_and_resumed_runs_have_the_same_bits(self):
        keys = {**LORA, "sharding.strategy": "zero0"}
        whole = self.train(2, "whole", keys)
        self.assert_same_tensors(self.step_of(whole, 4), self.adapters)
        resumed = self.train(2, "resumed", {**LORA, "checkpoint.resume": self.step_of(whole, 2)})
        self.assert_same_tensors(self.step_of(resumed, 4), self.adapters)
        words = zt.words_of({"run.output": self.folder / "none", "checkpoint.resume": self.step_of(whole, 2), **LORA, "optimizer.ema_decay": 0})
        self.assert_refused(zt.run(2, [self.deck, *words]), r"optimizer\.ema_decay was 0\.75 .* and is 0 now .*cannot change from or to 0: the checkpoint holds averages")

    def test_export_and_evaluation_take_them(self):
        checkpoint = self.step_of(self.train(2, "taken", {**KEYS, "model.frozen": ["*norm.weight"], "checkpoint.frozen": True}), 4)
        tensors = zt.tensors(checkpoint)
        weights = {n.removeprefix("model/"): a for n, a in tensors.items() if n.startswith("model/")}
        found = averages(tensors)
        self.assertEqual({n for n in weights if n not in found}, {n for n in weights if n.endswith("norm.weight")})
        found = {**weights, **found}
        exported = self.exported(checkpoint, "taken_ema", "--ema")
        self.assertEqual(sorted(found), sorted(exported))
        for name, array in found.items():
            self.assertTrue(array.tobytes() == exported[name], f"{name} differs")
        loss = [
            json.loads(self.evaluated(*words).out)["loss"]
            for words in ((checkpoint, "--ema"), (self.folder / "taken_ema",), (checkpoint,))
        ]
        self.assertEqual(loss[0], loss[1])
        self.assertNotEqual(loss[0], loss[2])
        tensors = self.exported(self.adapters, "adapters_ema", "--ema", "--adapter")
        self.assertGreater(len(tensors), 4)
        for name, values in tensors.items():
            parameter = name.removeprefix("base_model.model.")
            self.assertEqual(values, averages(zt.tensors(self.adapters))[parameter].tobytes(), name)
        for words in (["export", self.start, "--to", self.folder / "refused"], ["evaluate", self.start, "--data", self.text]):
            self.assert_refused(zt.run(0, [*words, "--ema"]), r"holds no averages of weights: .*optimizer\.ema_decay = 0")
        refused = zt.run(0, ["evaluate", self.folder / "taken_ema", "--data", self.text, "--ema"])
        self.assert_refused(refused, "--ema: .* is no checkpoint of a run")


if __name__ == "__main__":
    zt.main()
