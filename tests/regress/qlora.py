"""Adapters beside weights in few bits: the same run on every mesh, no base in checkpoints, and exports that have it again."""

import json

import hf_model as hf
import numpy as np
import ztrain_run as zt

LORA = {"lora.rank": 4, "lora.alpha": 8, "lora.targets": ["q_proj", "down_proj"], "precision.preset": "fp32"}
NF4 = {**LORA, "lora.quantization": "nf4"}


class Quantized(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        start = cls.train(2, "start", {"precision.preset": "fp32", "run.steps": 2})
        cls.base = cls.folder / "base"
        cls.export(start / "checkpoints" / "step_2", cls.base, "--dtype", "fp32")
        cls.start = {"model.from": cls.base}

    @classmethod
    def export(cls, checkpoint, folder, *words):
        result = zt.run(2, ["export", checkpoint, "--to", folder, *words])
        assert result.code == 0, str(result)
        return folder

    def weights(self, folder):
        return {name: np.frombuffer(data, "<f4").reshape(shape) for name, (_, shape, data) in hf.read_folder(folder).items()}

    def test_a_resumed_run_makes_the_base_again(self):
        keys = {**NF4, **self.start, "schedule.name": "constant"}
        whole = self.train(2, "whole", keys)
        cut = self.train(2, "cut", {**keys, "run.steps": 3})
        self.train(4, "cut", {**keys, "checkpoint.resume": "auto", "sharding.strategy": "zero1"})
        self.assert_close(zt.losses(whole), zt.losses(cut), 1e-5)
        again = self.train(2, "again", {**keys, "run.steps": 3})
        self.train(2, "again", {**keys, "checkpoint.resume": "auto"})
        self.assert_same(zt.losses(whole), zt.losses(again))
        held = {name[6:] for name in zt.tensors(whole / "checkpoints" / "step_6") if name.startswith("model/")}
        self.assertFalse([name for name in held if name.endswith("_proj.weight")], "the base is in the checkpoint")
        self.assertIn("model.layers.1.mlp.down_proj.lora_B.weight", held)

    def test_exports_have_what_was_trained(self):
        """With adapters that add nothing yet, an export is the base as its codes say; then it is what generates."""
        for form, most in (("nf4", 0.16), ("fp4", 0.17), ("int8", 0.004)):
            keys = {**LORA, **self.start, "lora.quantization": form}
            still = self.train(2, f"{form}_still", {**keys, **zt.STILL, "run.steps": 1})
            found = self.weights(self.export(still / "checkpoints" / "step_1", self.folder / form, "--dtype", "fp32"))
            for name, original in self.weights(self.base).items():
                error = float(abs(found[name] - original).max() / abs(original).max())
                if name.endswith("_proj.weight"):
                    self.assertTrue(0 < error < most, f"{form} {name}: {error}")
                else:
                    self.assertEqual(error, 0, name)
        trained = self.train(2, "trained", {**NF4, **self.start, "optimizer.lr": 0.05}) / "checkpoints" / "step_6"
        merged = self.export(trained, self.folder / "merged", "--dtype", "fp32")
        logits = {}
        for name, model in (("own", trained), ("merged", merged), ("base", self.folder / "nf4")):
            file = self.folder / f"{name}.bin"
            result = zt.run(2, ["generate", model, "--dtype", "fp32", "--prompt-ids", "5,6,7,8", "--tokens", "0", "--logits", file])
            self.assertEqual(result.code, 0, str(result))
            logits[name] = np.fromfile(file, "<f4")
        self.assertLess(float(abs(logits["own"] - logits["merged"]).max()), 1e-4)
        self.assertGreater(float(abs(logits["own"] - logits["base"]).max()), 1e-2)
        adapter = self.export(trained, self.folder / "adapter", "--adapter")
        self.assertEqual(json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"], str(self.base))

    def test_a_base_that_was_drawn_is_in_no_export(self):
        drawn = self.train(2, "drawn", {**NF4, "lora.random_base": True, "run.steps": 2}) / "checkpoints" / "step_2"
        self.export(drawn, self.folder / "drawn_adapter", "--adapter")
        result = zt.run(2, ["export", drawn, "--to", self.folder / "no"])
        self.assert_refused(result, r"were drawn from seed \d+ \(lora\.random_base\): nothing holds those")

    def test_plans_count_the_codes(self):
        kept = {}
        for name, keys in (("bf16", {}), ("nf4", {"lora.quantization": "nf4"}), ("int8", {"lora.quantization": "int8"})):
            words = zt.words_of({**LORA, **keys, "lora.random_base": True, "precision.preset": "bf16", "model.hidden_size": 256,
                                 "model.intermediate_size": 1024})
            result = zt.run(0, ["plan", self.deck, "--ranks", "2", "--json", *words])
            self.assertEqual(result.code, 0, str(result))
            plan = json.loads(result.out)
            kept[name] = plan["memory"][0]["programs"]["train step"]["device"]["categories"]["parameters"]["kept"]
        linear = 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 1024) / 2      # elements of two layers, on one of two ranks
        self.assertAlmostEqual((kept["bf16"] - kept["nf4"]) / linear, 2 - 132 / 256, delta=0.02)
        self.assertAlmostEqual((kept["bf16"] - kept["int8"]) / linear, 1, delta=0.02)

    def test_mistakes_are_named(self):
        cases = [
            ({"lora.quantization": "nf4"}, r"lora\.quantization = \"nf4\" keeps weights that adapters stand beside"),
            ({**NF4, "lora.random_base": True, "precision.preset": "bf16", "precision.fp8": "tensorwise"}, r"choose one of them"),
            ({**NF4, "lora.random_base": True, "mesh.tensor": 2}, r"whole blocks of 64 elements; nearest legal: 1 \(legal for this model: 1\)"),
            ({**NF4, "lora.random_base": True, "model.trainable": ["*_proj.weight"]}, r"none is left to quantise"),
            ({**NF4, "lora.random_base": True, "checkpoint.export": "no_model"}, r"set checkpoint\.export_adapter = true"),
            ({"lora.load_in_4bit": True}, r"lora\.quantization"),
            ({"lora.bnb_4bit_use_double_quant": True}, r"lora\.double_quantization"),
        ]
        for overrides, pattern in cases:
            result = zt.run(2, [self.deck, *zt.words_of({**overrides, "run.output": self.folder / "no"})])
            self.assert_refused(result, pattern)


if __name__ == "__main__":
    zt.main()
