"""ztrain inspect and diff on checkpoints of runs; verify is in tests/fault/saved.py."""

import json
import shutil

import ztrain_run as zt


class CheckpointTools(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.train(2, "two", {"checkpoint.interval": 3})
        cls.first = cls.last
        cls.saved = cls.run_folder / "checkpoints" / "step_6"
        cls.older = cls.saved.parent / "step_3"

    def command(self, code, *words, ranks=0):
        result = zt.run(ranks, words, timeout=30)
        self.assertEqual(result.code, code, str(result))
        self.assert_no_crash(result)
        return result.out

    def test_inspect(self):
        text = self.command(0, "inspect", self.saved)
        self.assertIn("step       6 of 6, 6 of them changed the weights; 24 sequences, 768 tokens\n", text)
        self.assertIn("mesh 1 x 1 x 2 x 1 x 1 (pipeline x replicate x shard x context x tensor), strategy FULL_SHARD\n", text)
        self.assertRegex(text, r"\noptimizer/exp_avg +fp32 +21 +148\.88 KiB\n")
        self.assertNotIn("down_proj", text)
        size = (self.saved / "index.h5").stat().st_size
        found = json.loads(self.command(0, "inspect", self.saved, "--json", ranks=2))
        self.assertIn({"name": "index.h5", "bytes": size}, found["files"])
        self.assertEqual(found["metadata"]["step"], 6)
        expected = {f"{t['state']}/{t['name']}": t["bytes"] for t in found["tensors"]}
        self.assertEqual({name: array.nbytes for name, array in zt.tensors(self.saved).items()}, expected)
        self.assertIn(
            "\noptimizer/exp_avg model.layers.1.mlp.up_proj.weight fp32 [80, 32], 10.00 KiB in ",
            self.command(0, "inspect", self.saved, "--tensors"),
        )
        deck = self.folder / "found.toml"
        deck.write_text(self.command(0, "inspect", self.saved, "--deck"))
        self.assertIn("the deck is valid", self.command(0, "check", deck))

    def test_plans_say_how_large_they_are(self):
        frozen = {"lora.rank": 4, "lora.random_base": True, "precision.preset": "bf16"}
        for number, keys in enumerate(({}, {"optimizer.name": "adamw_8bit"}, {"precision.preset": "bf16", "mesh.pipeline": 2}, frozen)):
            run = self.train(2, f"size_{number}", {**keys, "run.steps": 1})
            found = json.loads(self.command(0, "inspect", run / "checkpoints/step_1", "--json"))
            planned = json.loads(self.command(0, "plan", self.deck, "--ranks", 2, "--json", *zt.words_of(keys)))
            saved = sum(t["bytes"] for t in found["tensors"])
            self.assertAlmostEqual(planned["verdict"]["checkpoint_bytes"] / saved, 1, delta=0.002)
        self.assertIn("each, every 3 steps and at the end; room for 3 (checkpoint.keep = 2)", self.first.out)

    def test_the_mesh_that_wrote_them_does_not_matter(self):
        copy = self.folder / "copy" / "step_3"
        shutil.copytree(self.older, copy)
        self.assertEqual(self.command(0, "diff", self.older, copy, ranks=2), "all 63 tensors are the same\n")
        still = [self.train(r, f"still_{r}", {**zt.STILL, "run.steps": 1}) / "checkpoints" / "step_1" for r in (1, 2)]
        states = {row["state"] for row in json.loads(self.command(1, "diff", *still, "--json"))["differing"]}
        self.assertFalse("model" in states, "weights that no step has moved are those of the seed")

    def test_diff_tells_what_numpy_tells(self):
        import numpy as np

        one, other = zt.tensors(self.older), zt.tensors(self.saved)
        found = json.loads(self.command(1, "diff", self.older, self.saved, "--json"))
        self.assertEqual(found, json.loads(self.command(1, "diff", self.older, self.saved, "--json", ranks=2)))
        self.assertEqual(found["same"] + len(found["differing"]), len(one))
        self.assertGreater(len(found["differing"]), 50)
        for row in found["differing"]:
            a, b = (t[f"{row['state']}/{row['name']}"].astype(np.float64).ravel() for t in (one, other))
            apart = np.abs(a - b)
            self.assertEqual((row["items"], row["largest"]), (a.size, apart.max()))
            self.assertAlmostEqual(row["mean"] / apart.mean(), 1, places=12)
            self.assertEqual((row["differing"], row["first"]), (np.count_nonzero(a != b), np.flatnonzero(a != b)[0]))
        text = self.command(1, "diff", self.older, self.saved)
        self.assertRegex(text, r"(?m)^model lm_head\.weight: largest difference \S+, mean \S+; \d+ of 8224 items differ, the first is number 0$")

    def test_diff_of_other_models_and_precisions(self):
        wide = self.train(1, "wide", {"run.steps": 1, "model.intermediate_size": 96, "precision.preset": "bf16"})
        text = self.command(1, "diff", self.older, wide / "checkpoints" / "step_1")
        self.assertRegex(text, r"model model\.layers\.0\.mlp\.up_proj\.weight: shape \[80, 32\] and \[96, 32\]\n")
        self.assertRegex(text, r"model model\.norm\.weight: largest difference")

    def test_what_is_no_checkpoint_is_refused(self):
        for words in (("inspect", self.folder), ("diff", self.saved, self.saved.parent)):
            self.assert_refused(zt.run(2, words, timeout=20), r"is no checkpoint of ztrain")


if __name__ == "__main__":
    zt.main()
