"""recompute.tiles from the command line: the losses without tiles on meshes and with other features, a lower peak, and
refusals of what a part of the tokens cannot compute alone."""

import json

import ztrain_run as zt

TILES = {"recompute.tiles": 4}
ADAPTERS = {"lora.random_base": True, "lora.rank": 4}


class Tiles(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 3
        sections["batch"] = {"global": 4, "micro": 2}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one_rank = zt.losses(cls.train(1, "one_rank"))

    def agrees(self, name, ranks, overrides, expected=None):
        output = self.train(ranks, name, {**TILES, **overrides})
        found = zt.losses(output)
        expected = expected or self.one_rank
        self.assert_close(expected, found, 1e-5, name)
        for step, (_, norm) in expected.items():
            self.assertLessEqual(abs(found[step][1] - norm), 1e-5 * norm, f"{name}: the norm of step {step}")
        return output

    def test_one_rank_with_each_mode(self):
        plain = zt.losses(self.agrees("none", 1, {}))
        # A product of fewer rows may be summed in another order, so the first losses need not be the same bits.
        self.assertAlmostEqual(plain[1][0], self.one_rank[1][0], delta=1e-8)
        self.assert_same(plain, zt.losses(self.agrees("full", 1, {"recompute.mode": "full"})))
        pieces = {"recompute.mode": "selective", "recompute.pieces": ["qkv", "attention"]}
        self.assert_same(plain, zt.losses(self.agrees("selective", 1, pieces)))

    def test_meshes_agree_with_one_rank(self):
        self.agrees("shard", 2, {"mesh.shard": 2, "sharding.strategy": "FULL_SHARD"})
        for axis in ("tensor", "context"):
            self.agrees(axis, 2, {"mesh.shard": 1, f"mesh.{axis}": 2})
        stages = {"mesh.pipeline": 2, "pipeline.schedule": "1f1b", "mesh.shard": 1, "batch.micro": 1}
        self.agrees("pipeline", 2, stages)
        self.agrees("mixed", 4, {"mesh.shard": 2, "mesh.tensor": 2, "batch.micro": 1})

    def test_other_features_compute_the_same(self):
        away = {f"offload.{kind}": "cpu" for kind in ("parameters", "activations")}
        self.agrees("offloaded", 1, away)
        cases = {
            "adapters": {**ADAPTERS, "lora.targets": ["q_proj", "gate_proj", "down_proj"]},
            "post_norms": {"model.family": "gemma2"},
            "evaluated": {"evaluation.interval": 3, "evaluation.batches": 2, "data.validation": [str(self.text)]},
        }
        for name, keys in cases.items():
            plain = self.train(1, f"{name}_plain", keys)
            tiled = self.agrees(name, 1, keys, zt.losses(plain))
            validation = zt.validation_losses(tiled)
            self.assertEqual(list(validation), [3] if name == "evaluated" else [])
            for step, loss in zt.validation_losses(plain).items():
                self.assertLessEqual(abs(validation[step] - loss), 1e-5 * loss)
        half = {"precision.preset": "bf16"}
        found = zt.losses(self.train(1, "bf16", {**TILES, **half}))
        self.assert_close(zt.losses(self.train(1, "bf16_plain", half)), found, 5e-3)

    def test_plans(self):
        """The peak falls, and the messages of parts have their own stream."""
        def plan(ranks, keys):
            result = zt.run(0, ["plan", self.deck, "--ranks", ranks, "--json", *zt.words_of(keys)])
            self.assertEqual(result.code, 0, str(result))
            return json.loads(result.out)

        large = {"recompute.mode": "full", "batch.micro": 4, "model.intermediate_size": 4096}
        tiled, whole = (plan(1, {**large, "recompute.tiles": tiles})["memory"][0]["total"]["device"] for tiles in (8, 1))
        self.assertLess(tiled, 0.8 * whole)
        busy = plan(2, {**TILES, "mesh.shard": 1, "mesh.tensor": 2})["time"]["busy_seconds"]
        self.assertIn("forward", busy["exchange"])
        self.assertNotIn("forward", busy["reduce"])

    def test_refusals(self):
        experts = {"model.family": "mixtral", "model.num_experts": 4}
        cases = [
            ({"recompute.tiles": 7}, r"does not divide the 64 tokens .*nearest legal: 4"),
            (experts, r"dense feed-forwards only, and the model has 4 experts"),
            ({"mesh.pipeline": 2, "pipeline.schedule": "zb-h1"}, r"needs a pipeline.schedule whose backward is one turn"),
            ({**ADAPTERS, "lora.dropout": 0.1, "lora.targets": ["gate_proj"]}, r"set lora.dropout = 0"),
            ({"precision.preset": "bf16", "precision.fp8": "tensorwise"}, r'nearest legal: precision.fp8 = "rowwise"'),
        ]
        for keys, pattern in cases:
            words = zt.words_of({**TILES, **keys})
            self.assert_refused(zt.run(0, ["check", self.deck, "--ranks", 2, *words]), pattern)


if __name__ == "__main__":
    zt.main()
