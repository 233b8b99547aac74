"""mesh.context from the command line: losses, norms and validation of one rank, packed documents of any lengths,
checkpoints that go from any mesh to any, the plan's bytes, counts that do not divide."""

import json
import unittest

import token_files
import ztrain_run as zt


def mesh(shard, context, tensor=1, **more):
    return {"mesh.shard": shard, "mesh.context": context, "mesh.tensor": tensor, **more}


class ContextParallel(zt.Case):
    """Sequences of 31 tokens, which 2 and 4 ranks do not divide, and a window that reaches into other ranks' tokens."""

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 10
        sections["data"].update({"sequence": 31, "validation": [str(cls.text)]})
        sections["evaluation"] = {"interval": 5, "batches": 2}
        sections["model"].update({"family": "mistral", "sliding_window": 9})
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.train(1, "one_rank", {"checkpoint.interval": 5})
        cls.one_rank = zt.losses(cls.output)

    def agrees(self, name, ranks, overrides):
        output = self.train(ranks, name, overrides)
        found = zt.losses(output)
        self.assert_close(self.one_rank, found, 1e-5, name)
        for step, (_, norm) in self.one_rank.items():
            self.assertLessEqual(abs(found[step][1] - norm), 1e-5 * norm, f"{name}: the norm of step {step}")
        return output

    def test_losses_and_norms_are_those_of_one_rank(self):
        two = self.agrees("two", 2, mesh(1, 2))
        self.assertIn("mesh       1 x 1 x 1 x 2 x 1", self.last.out)
        expected, found = zt.validation_losses(self.output), zt.validation_losses(two)
        self.assertEqual(sorted(expected), [5, 10])
        for step, loss in expected.items():
            self.assertLessEqual(abs(found[step] - loss), 1e-5 * loss)
        around = self.agrees("exchanged_in_ring", 4, mesh(1, 4, **{"context.method": "ulysses"}))
        self.assertIn("mesh       1 x 1 x 1 x 2 x 2 x 1 (pipeline x replicate x shard x ring x context x tensor)", self.last.out)
        for step, loss in expected.items():
            self.assertLessEqual(abs(zt.validation_losses(around)[step] - loss), 1e-5 * loss)

    def test_documents_of_any_lengths(self):
        file = self.folder / "documents.h5"
        token_files.write_tokens(file, *token_files.some_documents(200, 3, 31, 1))
        keys = {"data.train": [file], "data.packing": "documents", "data.validation": [], "evaluation.interval": 0}
        one = zt.losses(self.train(1, "packed_one", keys))
        for method, ranks in (("gather", 4), ("ring", 2), ("ulysses", 4)):
            packed = mesh(1, ranks, **{"context.method": method, **keys})
            self.assert_close(one, zt.losses(self.train(ranks, f"packed_{method}_{ranks}", packed)), 1e-5)

    def test_the_plan_is_what_a_run_sends(self):
        for method, degrees in (("ring", (1, 2, 2)), ("ulysses", (1, 4))):
            keys = mesh(*degrees, **{"context.method": method})
            result = zt.run(0, ["plan", self.deck, "--ranks", 4, "--json", *zt.words_of(keys)])
            self.assertEqual(result.code, 0, str(result))
            output = self.train(4, f"sends_{method}", keys)
            record = [r for r in zt.metrics(output) if "bytes_sent" in r][0]
            planned = {}
            for row in json.loads(result.out)["traffic"]["rows"]:
                planned[row["axes"]] = planned.get(row["axes"], 0) + row["bytes"]
            self.assertIn("context", planned)
            self.assertEqual({axes: sent for axes, sent in record["bytes_sent"].items() if sent}, planned)

    def test_checkpoints_go_from_any_mesh_to_any(self):
        split = self.train(2, "split", mesh(1, 2, **{"checkpoint.interval": 5, "context.method": "ulysses"}))
        self.assertEqual(zt.saved_steps(split / "checkpoints"), [5, 10])
        for name, ranks, overrides, source in (
            ("to_one", 1, {}, split),
            ("from_one_to_ring", 2, mesh(1, 2, **{"context.method": "ring"}), self.output),
            ("to_heads_in_ring", 4, mesh(1, 4, **{"context.method": "ulysses"}), split),
        ):
            resume = {"checkpoint.resume": str(source / "checkpoints" / "step_5")}
            found = zt.losses(self.train(ranks, name, {**overrides, **resume}))
            expected = {step: loss for step, loss in self.one_rank.items() if step > 5}
            self.assert_close(expected, found, 1e-5, name)

    def test_exports_are_the_same_file(self):
        """Steps that move no weight, from one checkpoint."""
        source = self.train(1, "still", {**zt.STILL, "run.steps": 1})
        resume = {"checkpoint.resume": str(source / "checkpoints" / "step_1"), "run.steps": 2, **zt.STILL}
        written = []
        for name, ranks, overrides in (
            ("whole", 1, {}),
            ("ring_and_heads", 4, mesh(1, 2, 2, **{"context.method": "ring"})),
        ):
            folder = self.folder / f"export_{name}"
            self.train(ranks, f"exports_{name}", {**overrides, **resume, "checkpoint.export": folder})
            written.append({f.name: f.read_bytes() for f in folder.iterdir() if f.suffix == ".safetensors"})
        self.assertTrue(written[0])
        for other in written[1:]:
            self.assertEqual(written[0], other)

    def test_counts_that_do_not_divide(self):
        """Heads that no two ranks share equally: keys go round all of these. Masks are drawn by tokens, padded or not."""
        by_heads = {"context.method": "ulysses"}
        self.agrees("ring_of_all", 3, mesh(1, 3, **by_heads))
        self.assertIn("mesh       1 x 1 x 1 x 3 x 1 x 1 (pipeline x replicate x shard x ring x context x tensor)", self.last.out)
        dropout = {"lora.rank": 2, "lora.dropout": 0.3, "lora.random_base": True}
        one = zt.losses(self.train(1, "dropout", dropout))
        found = self.train(4, "dropout_gather", mesh(1, 4, **{"context.method": "gather", **dropout}))
        self.assert_close(one, zt.losses(found), 1e-5)

    def test_codes_of_tokens_that_do_not_divide(self):
        """48 tokens over 2 ranks, 24 each, where products of codes want multiples of 16."""
        codes = {"data.sequence": 48, "precision.preset": "bf16", "precision.fp8": "rowwise"}
        one = zt.losses(self.train(1, "codes_one", codes))
        two = self.train(2, "codes_ring", mesh(1, 2, **{"context.method": "ring", **codes}))
        self.assert_close(one, zt.losses(two), 4e-3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
