"""sharding.strategy from the command line: the same losses. The pairs of strategies with all else are mpi/matrix's."""

import ztrain_run as zt

FULL_WIDTH = ["zero0", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD"]


class Strategies(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one_rank = zt.losses(cls.train(1, "one_rank"))

    def test_smoke_deck_takes_each_strategy(self):
        smoke = zt.SOURCE / "inputs" / "smoke.toml"
        found = {}
        for strategy in FULL_WIDTH:
            output = self.train(4, f"smoke_{strategy}", {"sharding.strategy": strategy}, deck=smoke)
            found[strategy] = zt.losses(output)
            self.assertEqual(list(found[strategy]), list(range(1, 21)), strategy)
            self.assertTrue((output / "checkpoints" / "step_20" / "index.h5").exists())
            self.assert_same(found["zero0"], found[strategy], strategy)
        self.assertLess(found["zero0"][20][0], found["zero0"][1][0] - 0.5, "the model does not learn")
        self.assert_close(zt.losses(self.train(1, "smoke_np1", deck=smoke)), found["zero0"], 1e-5, "1 rank")

    def test_micro_batch_size_does_not_matter(self):
        found = zt.losses(self.train(2, "micro", {"batch.micro": 2}))
        self.assert_close(self.one_rank, found, 1e-5)

    def test_hybrid_shard_shards_within_the_node_in_a_silent_deck(self):
        output = self.train(
            4, "hybrid_silent", {"sharding.strategy": "HYBRID_SHARD", "cluster.ranks_per_node": 2}
        )
        self.assertIn("mesh       1 x 2 x 2 x 1 x 1", self.last.out)
        self.assert_close(self.one_rank, zt.losses(output), 1e-5)

    def test_validation_loss_does_not_depend_on_the_ranks(self):
        """Every window once, whether or not the ranks divide them; and one window for four ranks."""
        (self.folder / "window.txt").write_text(self.text.read_text()[:40])
        cases = {"all": {"evaluation.batches": 100}, "one": {"data.validation": "window.txt"}}
        for name, overrides in cases.items():
            overrides = {"evaluation.interval": 3, **overrides}
            one, four = (zt.validation_losses(self.train(n, f"{name}_{n}", overrides)) for n in (1, 4))
            self.assertEqual(list(one), [3, 6])
            for step in one:
                self.assertLessEqual(abs(one[step] - four[step]), 1e-5 * one[step], name)

    def test_bf16_agrees_with_fp32_to_its_precision(self):
        # bf16 keeps 8 bits: a relative 2^-8 = 0.4% in each activation, which averages out over a loss.
        output = self.train(2, "bf16", {"precision.preset": "bf16"})
        self.assertIn(
            "parameters bf16, gradients fp32, reduce fp32, master fp32, moments fp32", self.last.out
        )
        found = zt.losses(output)
        self.assertNotEqual(self.one_rank, found)
        self.assert_close(self.one_rank, found, 5e-3)


if __name__ == "__main__":
    zt.main()
