"""New tokens: rows of the embedding and the head that the model of model.from lacks."""

import json

import hf_model as hf
import numpy as np
import token_files
import ztrain_run as zt

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def rows(folder, name):
    _, shape, data = hf.read_folder(folder)[name]
    return np.frombuffer(data, "<f4").reshape(shape)


class AddedTokens(hf.Models):
    @classmethod
    def sections(cls):
        documents = [np.arange(i, i + 70) % 262 for i in range(60)]
        token_files.write_tokens(cls.folder / "new.h5", documents, None, {"vocab_size": 262})
        sections = super().sections()
        sections["data"]["train"] = ["new.h5"]
        return sections

    def exported(self, name, model, ranks, **keys):
        checkpoint = self.still(name, model, ranks, {"model.add_tokens": 5, **keys})
        return self.export(checkpoint, f"{name}_model"), checkpoint

    def test_they_begin_as_the_mean_of_the_others_on_every_mesh(self):
        one, checkpoint = self.exported("one", "model", 1)
        self.assertEqual(json.loads((one / "config.json").read_text())["vocab_size"], 262)
        for name in (EMBEDDING, HEAD):
            old = np.frombuffer(self.tensors[name][2], "<f4").reshape(257, -1)
            mean = (old.astype("f8").sum(0) / 257).astype("f4")
            np.testing.assert_allclose(rows(one, name)[257:], np.tile(mean, (5, 1)), rtol=2e-7, atol=1e-9)
            self.assertEqual(rows(one, name)[:257].tobytes(), old.tobytes())
        for which, ranks, keys in (("four", 4, {}), ("cut", 2, {"mesh.tensor": 2, "mesh.shard": 1})):
            other, _ = self.exported(which, "model", ranks, **keys)
            self.assertEqual(hf.read_folder(one), hf.read_folder(other), which)
        again = self.still("again", checkpoint, 2, {"model.add_tokens": 1})
        self.assertEqual(rows(self.export(again, "again_model"), HEAD).shape[0], 263)

    def test_they_may_be_drawn_and_heads_may_be_tied(self):
        tied = {n: t for n, t in self.tensors.items() if n != HEAD}
        self.write_model("tied", tied, config={"tie_word_embeddings": True})
        self.write_model("both", {**tied, HEAD: tied[EMBEDDING]}, config={"tie_word_embeddings": True})
        one, _ = self.exported("drawn", "tied", 1, **{"model.new_rows": "normal"})
        new = rows(one, EMBEDDING)[257:]
        self.assertTrue(0.01 < new.std() < 0.03 and len(np.unique(new)) == new.size)
        for model, ranks in (("tied", 4), ("both", 2)):
            other, _ = self.exported(f"drawn_{model}", model, ranks, **{"model.new_rows": "normal"})
            self.assertEqual(rows(other, EMBEDDING).tobytes(), rows(one, EMBEDDING).tobytes())

    def test_a_run_goes_on_and_what_is_wrong_is_said(self):
        keys = {"model.add_tokens": 5, "run.steps": 4}
        whole = zt.losses(self.train(2, "whole", keys))
        self.train(2, "half", {**keys, "run.steps": 2, "schedule.name": "constant"})
        self.assertEqual(len(whole), 4)
        self.train(2, "half", {**keys, "schedule.name": "constant", "checkpoint.resume": "auto"})
        self.assertIn("goes on from checkpoint", self.last.out)
        self.assertEqual(zt.run(0, ["check", self.deck, "--model.add_tokens=5"]).code, 0)
        short = zt.run(0, ["check", self.deck, "--model.add_tokens=2"])
        self.assert_refused(short, r"\(262 ids\) than the model .* 259\).* set model\.add_tokens = 5")
        refused = zt.run(0, ["check", self.deck, "--model.from=", "--model.add_tokens=5", "--model.vocab_size=300"])
        self.assert_refused(refused, r"model\.add_tokens = 5 adds tokens to the vocabulary of model\.from")


if __name__ == "__main__":
    zt.main()
