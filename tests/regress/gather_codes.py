"""sharding.gather_codes from the command line: losses do not depend on the mesh, and gathers send as few bytes as codes have."""

import json

import ztrain_run as zt

AWAY = {f"offload.{state}": "cpu" for state in ("parameters", "optimizer", "master", "gradients", "activations")}

# (codes, ranks, keys). The losses are those of the same codes on one rank.
PLACED = [
    ("int8", 2, {"batch.micro": 2}),
    ("int8", 4, {"sharding.strategy": "HYBRID_SHARD", "mesh.replicate": 2, "mesh.shard": 2, "sharding.unit": "model"}),
    ("int8", 2, {"mesh.shard": 1, "mesh.context": 2}),
    ("int4", 2, {"sharding.strategy": "SHARD_GRAD_OP", **AWAY}),
    ("int4", 4, {"sharding.reshard_after_forward": 2}),
    ("int4", 2, {"mesh.shard": 1, "mesh.pipeline": 2}),
]
WIDTHS = (("int8", "fp32", 8.5 / 32), ("int4", "fp32", 4.5 / 32), ("int8", "bf16", 8.5 / 16), ("int4", "bf16", 4.5 / 16))


class GatherCodes(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 4
        sections["batch"]["global"] = 8  # two micro-batches or more on each rank
        sections["sharding"] = {"strategy": "FULL_SHARD"}
        sections["checkpoint"]["interval"] = -1
        return sections

    def coded(self, codes, ranks, name, keys=None):
        return self.train(ranks, f"{codes}_{name}", {"sharding.gather_codes": codes, **(keys or {})})

    def plan(self, keys):
        result = zt.run(0, ["plan", self.deck, "--ranks", 2, "--json", *zt.words_of(keys)])
        self.assertEqual(result.code, 0, str(result))
        return json.loads(result.out)["traffic"]

    def test_losses_are_those_of_one_rank(self):
        plain = zt.losses(self.train(1, "plain"))
        for codes, tolerance in (("int8", 1e-4), ("int4", 1e-2)):
            one = zt.losses(self.coded(codes, 1, "one"))
            self.assertNotEqual(plain, one, f"{codes} has no effect")
            self.assert_close(plain, one, tolerance, codes)
            for number, (_, ranks, keys) in enumerate(row for row in PLACED if row[0] == codes):
                found = zt.losses(self.coded(codes, ranks, f"placed_{number}", keys))
                self.assert_close(one, found, 1e-7, f"{codes} {keys}")

    def test_parts_of_layers_have_blocks_of_their_own(self):
        """A block of codes lies within a rank's part of a layer, so other degrees of mesh.tensor round otherwise."""
        keys = {"mesh.tensor": 2}
        two = zt.losses(self.coded("int4", 2, "tensor", keys))
        self.assert_close(two, zt.losses(self.coded("int4", 4, "tensor_and_shard", keys)), 1e-7)
        self.assert_close(zt.losses(self.train(2, "tensor_plain", keys)), two, 1e-2)

    def test_adapters_and_evaluation(self):
        adapters = {"lora.random_base": True, "lora.rank": 4, "precision.preset": "bf16"}
        (self.folder / "windows.txt").write_text(self.text.read_text()[:200])  # all of them in each evaluation
        keys = {**adapters, "data.validation": "windows.txt", "evaluation.interval": 2, "evaluation.batches": 100}
        one, two = (self.coded("int4", ranks, f"lora_{ranks}", keys) for ranks in (1, 2))
        self.assert_close(zt.losses(one), zt.losses(two), 1e-5)
        expected, found = zt.validation_losses(one), zt.validation_losses(two)
        self.assertEqual(list(expected), [2, 4])
        for step, loss in expected.items():
            self.assertLessEqual(abs(found[step] - loss), 1e-5 * loss)

    def test_resume_is_bitwise(self):
        straight = self.coded("int8", 2, "straight", {"checkpoint.interval": 2})
        resumed = self.coded("int8", 2, "resumed", {"checkpoint.resume": straight / "checkpoints" / "step_2"})
        self.assert_same({s: v for s, v in zt.losses(straight).items() if s > 2}, zt.losses(resumed))

    def test_gathers_send_codes(self):
        for codes, preset, share in WIDTHS:
            plain, coded = (
                sum(row["bytes"] for row in self.plan({"sharding.gather_codes": which, "precision.preset": preset})["rows"]
                    if row["collective"] == "all_gather" and row["axes"] == "shard*ring*context")
                for which in ("none", codes)
            )
            self.assertEqual(coded, share * plain, f"{codes} beside {preset}")
        keys = {"sharding.gather_codes": "int4"}
        record = [r for r in zt.metrics(self.train(2, "counted", keys)) if "bytes_sent" in r][0]
        self.assertEqual(sum(record["bytes_sent"].values()), self.plan(keys)["bytes"])

    def test_weights_that_are_never_gathered_have_no_codes(self):
        for strategy in ("NO_SHARD", "zero1", "zero2"):
            words = zt.words_of({"sharding.gather_codes": "int8", "sharding.strategy": strategy})
            self.assert_refused(zt.run(0, ["check", self.deck, *words]), r"gather_codes = .*int8.* keeps them whole")


if __name__ == "__main__":
    zt.main()
