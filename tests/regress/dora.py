"""Adapters with magnitudes (DoRA): starts, meshes, resumes, exports. Losses of PEFT are in golden and golden_families."""

import json

import hf_model as hf
import numpy as np
import ztrain_run as zt

DORA = {"lora.rank": 4, "lora.alpha": 8, "lora.dora": True, "lora.targets": ["q_proj", "down_proj"], "precision.preset": "fp32",
        "optimizer.lr": 0.03, "schedule.name": "constant"}
RANDOM = {**DORA, "lora.random_base": True, "lora.dropout": 0.2}
LAYERS = [f"model.layers.{layer}.{name}" for layer in (0, 1) for name in ("mlp.down_proj", "self_attn.q_proj")]


class Magnitudes(zt.Case):
    def logits(self, model, *words):
        file = self.folder / "logits.bin"
        result = zt.run(2, ["generate", model, "--dtype", "fp32", "--prompt-ids", "5,6,7,8", "--tokens", "0", "--logits", file, *words])
        self.assertEqual(result.code, 0, str(result))
        return np.fromfile(file, "<f4")

    def export(self, model, name, *words):
        folder = self.folder / name
        result = zt.run(2, ["export", model, "--to", folder, "--dtype", "fp32", *words])
        self.assertEqual(result.code, 0, str(result))
        return folder

    def weights(self, folder):
        return {name: np.frombuffer(data, "<f4").reshape(shape) for name, (_, shape, data) in hf.read_folder(folder).items()}

    def test_meshes_agree(self):
        one = zt.losses(self.train(1, "one", RANDOM))
        for number, (ranks, keys) in enumerate((
            (2, {"sharding.strategy": "FULL_SHARD", "recompute.mode": "full"}),
            (2, {"mesh.tensor": 2, "batch.micro": 2}),
            (4, {"mesh.pipeline": 2, "sharding.strategy": "zero1", "batch.micro": 1, "offload.optimizer": "host"}),
            (4, {"mesh.context": 2, "mesh.tensor": 2}),
        )):
            self.assert_close(one, zt.losses(self.train(ranks, f"mesh_{number}", {**RANDOM, **keys})), 1e-5, str(keys))
        plain = zt.losses(self.train(1, "plain", {"precision.preset": "fp32"}))
        self.assertLess(abs(one[1][0] / plain[1][0] - 1), 1e-6, "a model starts as without adapters")
        lora = zt.losses(self.train(1, "lora", {**RANDOM, "lora.dora": False}))
        self.assertGreater(abs(one[6][0] / lora[6][0] - 1), 1e-4, "magnitudes do nothing")

    def test_exports_are_what_was_trained(self):
        base = self.export(self.train(2, "start", {"precision.preset": "fp32", "run.steps": 2}) / "checkpoints" / "step_2", "base")
        rows = {name: np.linalg.norm(weight.astype(float), axis=1) for name, weight in self.weights(base).items() if weight.ndim == 2}
        for form, keys in (("whole", {}), ("nf4", {"lora.quantization": "nf4"})):
            keys = {**DORA, "model.from": base, **keys}
            whole = self.train(2, form, keys)
            cut = self.train(2, f"{form}_cut", {**keys, "run.steps": 3})
            self.train(2, f"{form}_cut", {**keys, "checkpoint.resume": "auto"})
            self.assert_same(zt.losses(whole), zt.losses(cut))
            trained = whole / "checkpoints" / "step_6"
            own = self.logits(trained)
            self.assertGreater(float(abs(own - self.logits(base)).max()), 1e-2)
            self.assertLess(float(abs(own - self.logits(self.export(trained, f"{form}_merged"))).max()), 1e-4, form)
        still = self.train(2, "still", {**DORA, **zt.STILL, "model.from": base, "run.steps": 1}) / "checkpoints" / "step_1"
        adapter = self.export(still, "adapter", "--adapter")
        found = {name: values for name, values in self.weights(adapter).items() if name.endswith(".lora_magnitude_vector")}
        self.assertEqual(set(found), {f"base_model.model.{layer}.lora_magnitude_vector" for layer in LAYERS})
        for layer in LAYERS:
            magnitudes = found[f"base_model.model.{layer}.lora_magnitude_vector"]
            self.assertLess(float(abs(magnitudes / rows[f"{layer}.weight"] - 1).max()), 1e-6, layer)
        self.assertTrue(json.loads((adapter / "adapter_config.json").read_text())["use_dora"])

    def test_folders_of_adapters_go_on_and_are_merged(self):
        base = self.export(self.train(2, "origin", {"precision.preset": "fp32", "run.steps": 1}) / "checkpoints" / "step_1", "origin_base")
        trained = self.train(2, "first", {**DORA, "model.from": base}) / "checkpoints" / "step_6"
        adapter, own = self.export(trained, "first_adapter", "--adapter"), self.logits(trained)
        self.assertLess(float(abs(own - self.logits(adapter)).max()), 1e-5)
        self.assertLess(float(abs(own - self.logits(self.export(adapter, "of_folder", "--merge"))).max()), 1e-4)
        silent = {key: value for key, value in DORA.items() if not key.startswith("lora.")}
        again = [self.train(2, f"again_{name}", {**silent, "model.from": start}) for name, start in (("peft", adapter), ("own", trained))]
        self.assert_same(*map(zt.losses, again))
        result = zt.run(2, [self.deck, *zt.words_of({**DORA, "lora.dora": False, "model.from": adapter, "run.output": self.folder / "no"})])
        self.assert_refused(result, r"lora\.dora = false contradicts the adapters in model\.from")

    def test_mistakes_are_named(self):
        experts = {"model.family": "mixtral", "model.num_experts": 4, "model.num_experts_per_tok": 2}
        for overrides, pattern in (
            ({"lora.dora": True}, r"lora\.rank = 0 makes no adapters; nearest legal: false"),
            ({**RANDOM, "precision.preset": "bf16", "precision.fp8": "tensorwise"}, r"precision\.fp8 = \"?tensorwise\"? keeps codes"),
            ({**RANDOM, "lora.quantization": "nf4"}, r"codes of weights that are drawn \(lora\.random_base\)"),
            ({**RANDOM, **experts, "lora.dropout": 0.0, "lora.targets": ["experts.down_proj"]},
             r"magnitudes of experts' outputs are not there, and lora\.targets names 'experts\.down_proj'"),
            ({"lora.use_dora": True}, r"lora\.dora"),
        ):
            result = zt.run(2, [self.deck, *zt.words_of({**overrides, "run.output": self.folder / "no"})])
            self.assert_refused(result, pattern)


if __name__ == "__main__":
    zt.main()
