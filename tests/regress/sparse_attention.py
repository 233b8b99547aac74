"""[sparse_attention] from the command line: losses of one rank on meshes, files of layouts, evaluation with the same
blocks, operations of plans by blocks, and refusals."""

import json

import ztrain_run as zt

FIXED = {"sparse_attention.mode": "fixed", "sparse_attention.num_local_blocks": 2}
FIXED_ROWS = "10000\n11000\n01100\n01110\n01011\n"  # what FIXED makes of five blocks
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
        self.assert_same(zt.losses(self.one_rank), zt.losses(self.train(1, "rows", self.file(FIXED_ROWS))))
        self.assertGreater(abs(dense[3][0] - zt.losses(self.one_rank)[3][0]), 1e-4)

    def test_evaluation_has_the_blocks_of_the_run(self):
        saved = self.one_rank / "checkpoints" / "step_3"
        result = zt.run(0, ["evaluate", saved, "--data", self.folder / "held_out.txt", "--dtype", "fp32", "--json"])
        self.assertEqual(result.code, 0, str(result))
        expected = zt.validation_losses(self.one_rank)[3]
        self.assertLessEqual(abs(json.loads(result.out)["loss"] - expected), 1e-6 * expected)

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
            ("1000\n1100\n1110\n1111\n", r"sparse_attention.layout has 4 rows, and data.sequence = 320 makes 5 blocks"),
            (FIXED_ROWS.replace("01110", "01111"), r"rows.txt:4: the last 1 must be number 4"),
        ]
        for rows, pattern in cases:
            self.assert_refused(zt.run(0, ["check", self.deck, "--ranks", 1, *zt.words_of(self.file(rows))]), pattern)
        absent = zt.words_of({**self.file(""), "sparse_attention.layout": "absent.txt"})
        self.assert_refused(zt.run(0, ["check", self.deck, "--ranks", 1, *absent]), r"sparse_attention.layout.*absent.txt")
        saved = self.one_rank / "checkpoints" / "step_3"
        self.assert_refused(zt.run(0, ["generate", saved, "--prompt", "ka"]), r"sparse_attention.mode")
        gpus = zt.run(0, ["plan", self.deck, "--ranks", 1, "--cluster.preset=h100-80gb", *zt.words_of(FIXED)])
        self.assert_refused(gpus, r"CPUs alone can skip blocks")


if __name__ == "__main__":
    zt.main()
