"""[sparse_attention] from the command line: losses of one rank on meshes, files of layouts, evaluation and generation
with the same blocks, operations of plans by blocks, and refusals."""

import json

import numpy as np
import ztrain_run as zt

FIXED = {"sparse_attention.mode": "fixed", "sparse_attention.num_local_blocks": 2}
FIXED_ROWS = "10000\n11000\n01100\n01110\n01011\n"  # what FIXED makes of five blocks
LONGER_ROWS = "1000000\n1100000\n0110000\n0111000\n0101100\n0101110\n0101011\n"  # and of seven
DENSE_ROWS = "10000\n11000\n11100\n11110\n11111\n"


class SparseAttention(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 3
        sections["data"].update({"sequence": 320, "validation": [str(cls.folder / "held_out.txt")]})
        sections["evaluation"] = {"interval": 3, "batches": 100}
        sections["batch"] = {"global": 2, "micro": 1}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        zt.write_text_data(cls.folder / "held_out.txt", 641, 2)
        cls.one_rank = cls.train(1, "one_rank", FIXED)

    def agrees(self, name, keys):
        output = self.train(2, name, {**FIXED, "mesh.shard": 1, **keys})
        self.assert_close(zt.losses(self.one_rank), zt.losses(output), 1e-5, name)
        for step, loss in zt.validation_losses(self.one_rank).items():
            self.assertLessEqual(abs(zt.validation_losses(output)[step] - loss), 1e-5 * loss)

    def file(self, rows):
        (self.folder / "rows.txt").write_text(rows)
        return {"sparse_attention.mode": "file", "sparse_attention.layout": self.folder / "rows.txt"}

    def test_meshes_agree_with_one_rank(self):
        for method in ("ring", "ulysses"):
            self.agrees(method, {"mesh.context": 2, "context.method": method})
        self.agrees("tensor", {"mesh.tensor": 2})
        self.agrees("pipeline", {"mesh.pipeline": 2})

    def test_files_have_the_bits_of_the_modes_that_draw_them(self):
        dense = zt.losses(self.train(1, "dense"))
        self.assert_same(dense, zt.losses(self.train(1, "all_blocks", self.file(DENSE_ROWS))))
        longer = self.train(1, "rows", self.file(LONGER_ROWS))
        self.assert_same(zt.losses(self.one_rank), zt.losses(longer))
        self.assertGreater(abs(dense[3][0] - zt.losses(self.one_rank)[3][0]), 1e-4)
        # A cache has the rows of the file behind those of the run too, and no others.
        prompt, words = self.held_out()[:380], ["--max-length", 1000, "--tokens", 99]
        expected, made = self.generate(self.one_rank, [prompt], *words)
        found, ended = self.generate(longer, [prompt], *words)
        self.assertTrue((found == expected).all())
        self.assertEqual((ended[0], len(ended[0])), (made[0][:68], 68))
        again = self.generate(longer, [prompt + ended[0][:66]], *words)[1]
        self.assertEqual(again, [ended[0][66:]], "tokens that were decoded and tokens of a prompt")
        saved = longer / "checkpoints" / "step_3"
        refused = zt.run(0, ["generate", saved, "--prompt-ids", ",".join(["7"] * 449), *words])
        self.assert_refused(refused, r"449 tokens, more than the 448 .*the rows of its sparse_attention")
        (self.folder / "rows.txt").write_text(DENSE_ROWS)
        refused = zt.run(0, ["generate", saved, "--prompt-ids", "7"])
        self.assert_refused(refused, r"sparse_attention.layout: .*rows.txt has other blocks than when .*step_3 was")

    def held_out(self):
        return list((self.folder / "held_out.txt").read_bytes())

    def evaluate(self, *words):
        saved = self.one_rank / "checkpoints" / "step_3"
        result = zt.run(0, ["evaluate", saved, "--data", self.folder / "held_out.txt", "--json", *words])
        self.assertEqual(result.code, 0, str(result))
        return json.loads(result.out)["loss"]

    def test_evaluation_has_the_blocks_of_the_run(self):
        expected = zt.validation_losses(self.one_rank)[3]
        self.assertLessEqual(abs(self.evaluate("--dtype", "fp32") - expected), 1e-6 * expected)

    def generate(self, output, prompts, *words, ranks=0):
        """Logits of all tokens of the prompts, and the tokens that follow each prompt."""
        file, found = self.folder / "prompts.txt", self.folder / "logits.bin"
        file.write_text("".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts))
        words = ["--prompt-file", file, "--logits", found, "--dtype", "fp64", *words]
        result = zt.run(ranks, ["generate", output / "checkpoints" / "step_3", *words])
        self.assertEqual(result.code, 0, str(result))
        logits = np.fromfile(found, "<f4").reshape(sum(map(len, prompts)), -1).astype(np.float64)
        return logits, [[int(t) for t in line.split()] for line in result.out.splitlines()]

    def test_a_cache_gives_the_losses_of_evaluation(self):
        tokens = self.held_out()
        for sequence, ranks, words in ((320, 0, ["--chunk", 100]), (640, 2, ["--chunk", 4, "--tensor", 2])):
            expected = self.evaluate("--dtype", "fp64", "--sequence", sequence)
            prompts = [tokens[begin : begin + sequence] for begin in range(0, 640, sequence)]
            words += ["--tokens", 0, "--max-length", 640]
            x, _ = self.generate(self.one_rank, prompts, *words, ranks=ranks)
            losses = np.log(np.exp(x).sum(1)) - x[np.arange(640), tokens[1:641]]
            self.assertLessEqual(abs(losses.mean() - expected), 1e-7 * expected, f"rows of {sequence} tokens")

    def test_a_changed_file_stops_an_evaluation_and_no_export(self):
        saved = self.train(1, "of_a_file", {**self.file(FIXED_ROWS), "run.steps": 1}) / "checkpoints" / "step_1"
        evaluate = ["evaluate", saved, "--data", self.folder / "held_out.txt"]
        self.assert_refused(zt.run(0, [*evaluate, "--sequence", 300]), r"--sequence: rows of 300 .*sparse_attention.block .* 256")
        self.file(DENSE_ROWS)
        self.assert_refused(zt.run(0, evaluate), r"sparse_attention.layout: .*rows.txt has other blocks")
        (self.folder / "rows.txt").unlink()
        self.assert_refused(zt.run(0, evaluate), r"sparse_attention.layout.*rows.txt")
        self.assertEqual(zt.run(0, ["export", saved, "--to", self.folder / "exported"]).code, 0)

    def test_operations_are_those_of_the_blocks(self):
        def flops(keys):
            result = zt.run(0, ["plan", self.deck, "--ranks", 1, "--json", "--alone", *zt.words_of(keys)])
            self.assertEqual(result.code, 0, str(result))
            return json.loads(result.out)["model"]["flops_per_token"]

        per_key = 2 * 12 * 32  # layers, passes and products, width
        # Eleven blocks, of which those of the diagonal count half, instead of fifteen.
        self.assertAlmostEqual(flops({}) - flops(FIXED), per_key * 4 * 64 / 5, places=3)

    def test_refusals(self):
        cases = [
            (FIXED_ROWS[:-6], r"the row has 5 blocks, and the file has 4 rows"),
            ("1000\n1100\n1110\n1111\n", r"sparse_attention.layout has 4 rows, and data.sequence = 320 has 5 blocks"),
            (FIXED_ROWS.replace("01110", "01111"), r"rows.txt:4: the last 1 must be number 4"),
        ]
        for rows, pattern in cases:
            self.assert_refused(zt.run(0, ["check", self.deck, "--ranks", 1, *zt.words_of(self.file(rows))]), pattern)
        absent = zt.words_of({**self.file(""), "sparse_attention.layout": "absent.txt"})
        self.assert_refused(zt.run(0, ["check", self.deck, "--ranks", 1, *absent]), r"sparse_attention.layout.*absent.txt")
        gpus = zt.run(0, ["plan", self.deck, "--ranks", 1, "--cluster.preset=h100-80gb", *zt.words_of(FIXED)])
        self.assert_refused(gpus, r"works on CPU ranks only")


if __name__ == "__main__":
    zt.main()
