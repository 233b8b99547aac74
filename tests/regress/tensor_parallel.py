"""mesh.tensor from the command line: the losses of other meshes, checkpoints that go from any mesh to any, refusals."""

import unittest

import ztrain_run as zt


def mesh(shard, tensor, **more):
    return {"mesh.shard": shard, "mesh.tensor": tensor, **more}


class TensorParallel(zt.Case):
    """6 heads on 3 of keys, a feed-forward of 89 columns, a vocabulary of 257, sequences of 31: nothing divides by 2 or 4."""

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["model"] |= {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8, "intermediate_size": 89}
        sections["data"]["sequence"] = 31
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.train(1, "one_rank", {"checkpoint.interval": 3})
        cls.one_rank = zt.losses(cls.output)

    def agrees(self, name, ranks, overrides, tolerance=1e-5):
        output = self.train(ranks, name, overrides)
        self.assert_close(self.one_rank, zt.losses(output), tolerance, name)
        return output

    def test_losses_are_those_of_one_rank(self):
        self.agrees("two", 2, mesh(1, 2))
        self.assertIn("mesh       1 x 1 x 1 x 1 x 2", self.last.out)
        keys = {"sharding.strategy": "FULL_SHARD", "recompute.mode": "full", "tensor.overlap": True}
        self.agrees("both", 4, mesh(2, 2, **keys))
        self.agrees("whole", 2, mesh(1, 2, **{"tensor.sequence_parallel": False}))

    def test_codes_in_parts_of_several_sizes(self):
        """Of 3 heads of keys and 80 columns one of 2 ranks has 2 and 48; 31 tokens become 32, and 48 on 3 ranks."""
        codes = {"precision.preset": "bf16", "precision.fp8": "tensorwise", "model.head_dim": 16, "model.intermediate_size": 80}
        one = zt.losses(self.train(1, "codes_one", codes))
        self.assert_close(one, zt.losses(self.train(2, "codes_two", mesh(1, 2, **codes))), 4e-3)
        parts = {"tensor.overlap": True, **codes}
        self.assert_close(one, zt.losses(self.train(3, "codes_three", mesh(1, 3, **parts))), 4e-3)

    def test_checkpoints_go_from_any_mesh_to_any(self):
        split = self.train(2, "split", mesh(1, 2, **{"checkpoint.interval": 3}))
        self.assertEqual(zt.saved_steps(split / "checkpoints"), [3, 6])
        for name, ranks, overrides, source in (
            ("to_four", 4, mesh(1, 4), split),
            ("from_one", 4, mesh(2, 2), self.output),
        ):
            resume = {"checkpoint.resume": str(source / "checkpoints" / "step_3")}
            found = zt.losses(self.train(ranks, name, {**overrides, **resume}))
            expected = {step: loss for step, loss in self.one_rank.items() if step > 3}
            self.assert_close(expected, found, 1e-5, name)

    def test_exports_are_the_same_file(self):
        """Steps that move no weight, from one checkpoint."""
        source = self.train(1, "still", {**zt.STILL, "run.steps": 1})
        resume = {"checkpoint.resume": str(source / "checkpoints" / "step_1"), "run.steps": 2, **zt.STILL}
        written = []
        for name, ranks, overrides in (("whole", 1, mesh(1, 1)), ("parts", 4, mesh(2, 2))):
            folder = self.folder / f"export_{name}"
            self.train(ranks, f"exports_{name}", {**overrides, **resume, "checkpoint.export": folder})
            written.append({f.name: f.read_bytes() for f in folder.iterdir() if f.suffix == ".safetensors"})
        self.assertTrue(written[0])
        self.assertEqual(written[0], written[1])

    def refuse(self, ranks, overrides, *patterns):
        words = zt.words_of({"run.output": self.folder / "refused", **overrides})
        self.assert_refused(zt.run(ranks, [self.deck, *words]), *patterns, times=ranks)
        self.assert_refused(zt.run(0, ["check", self.deck, *words]), *patterns)  # which knows no ranks

    def test_what_does_not_go_together_is_said(self):
        parts = {"tensor.overlap": True, "tensor.sequence_parallel": False}
        self.refuse(2, mesh(1, 2, **parts), "tensor.overlap = true cuts what tokens that are split over mesh.tensor send")
        codes = {"precision.preset": "bf16", "precision.fp8": "rowwise", "model.head_dim": 16, "model.intermediate_size": 96}
        self.refuse(4, mesh(1, 4, **codes), r'mesh\.tensor = 4: precision\.fp8 = "rowwise" needs heads .*, and no more ranks than heads of keys; nearest legal: 3 \(legal for this model: 1, 2, 3\), or precision\.fp8 = "none"$')
        for scales in ("tensorwise", "rowwise"):  # of 5 blocks of 16 columns no rank of 6 has one that is whole
            codes = {**codes, "precision.fp8": scales, "model.intermediate_size": 80, "model.num_key_value_heads": 6}
            self.refuse(6, mesh(1, 6, **codes), r"mesh\.tensor = 6: .* in parts whose sizes are multiples of 16; nearest legal: 5 ")
        self.refuse(
            2,
            mesh(1, 2, **{"model.num_attention_heads": 1, "model.num_key_value_heads": 1}),
            r"mesh\.tensor = 2: each rank needs a head of attention \(the model has 1\), .*: legal are 1 to 1$",
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
