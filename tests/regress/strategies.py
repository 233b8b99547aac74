"""The same deck under every strategy, mesh and number of ranks, from the command line: the same losses."""

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

    def test_smoke_deck_agrees_on_other_numbers_of_ranks(self):
        smoke = zt.SOURCE / "inputs" / "smoke.toml"
        one, two, four = (zt.losses(self.train(n, f"smoke_np{n}", deck=smoke)) for n in (1, 2, 4))
        self.assert_close(one, two, 1e-5, "2 ranks")
        self.assert_close(one, four, 1e-5, "4 ranks")

    def test_strategies_are_bitwise_equal_when_micro_batches_accumulate(self):
        for accumulation in ("reduce", "no_sync"):
            found = {}
            for strategy in ("zero0", "zero2", "FULL_SHARD"):
                name = f"{accumulation}_{strategy}"
                found[strategy] = zt.losses(
                    self.train(
                        2,
                        name,
                        {
                            "sharding.strategy": strategy,
                            "sharding.gradient_accumulation": accumulation,
                            "batch.global": 8,
                        },
                    )
                )
            self.assert_same(found["zero0"], found["zero2"], accumulation)
            self.assert_same(found["zero0"], found["FULL_SHARD"], accumulation)

    def test_numbers_of_ranks_agree(self):
        for ranks in (2, 4):
            found = zt.losses(self.train(ranks, f"ranks_{ranks}"))
            self.assert_close(self.one_rank, found, 1e-5, f"{ranks} ranks")

    def test_micro_batch_size_does_not_matter(self):
        found = zt.losses(self.train(2, "micro", {"batch.micro": 2}))
        self.assert_close(self.one_rank, found, 1e-5)

    def test_hybrid_shard_on_a_replicated_mesh_agrees(self):
        output = self.train(
            4, "hybrid", {"sharding.strategy": "HYBRID_SHARD", "mesh.replicate": 2, "mesh.shard": 2}
        )
        self.assertIn("mesh       1 x 2 x 2 x 1 x 1", self.last.out)
        self.assert_close(self.one_rank, zt.losses(output), 1e-5)

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

    def test_the_same_run_twice_is_bitwise_the_same(self):
        self.assert_same(
            zt.losses(self.train(3, "once", {"batch.global": 6})),
            zt.losses(self.train(3, "again", {"batch.global": 6})),
        )

    def test_prefetch_changes_nothing(self):
        cases = {(n, when) for n in (0, 1, 2) for when in ("pre", "none")} | {(1, "post")}
        found = {}
        for n, when in cases:
            keys = {"sharding.forward_prefetch": n, "sharding.backward_prefetch": when}
            found[n, when] = zt.losses(self.train(2, f"prefetch_{n}_{when}", keys))
        for case in cases:
            self.assert_same(found[0, "none"], found[case], case)

    def test_bf16_agrees_with_fp32_to_its_precision(self):
        # bf16 keeps 8 bits: a relative 2^-8 = 0.4% in each activation, which averages out over a loss.
        output = self.train(2, "bf16", {"precision.preset": "bf16"})
        self.assertIn(
            "parameters bf16, gradients fp32, reduce fp32, master fp32, moments fp32", self.last.out
        )
        found = zt.losses(output)
        self.assertNotEqual(self.one_rank, found)
        self.assert_close(self.one_rank, found, 5e-3)

    def test_bf16_strategies_are_bitwise_equal(self):
        found = [
            zt.losses(
                self.train(
                    2, f"bf16_{s}", {"precision.preset": "bf16", "sharding.strategy": s, "batch.global": 2}
                )
            )
            for s in ("zero0", "zero1", "FULL_SHARD")
        ]
        self.assert_same(found[0], found[1])
        self.assert_same(found[0], found[2])

    def test_fp64_agrees_with_fp32(self):
        found = zt.losses(self.train(2, "fp64", {"precision.preset": "fp64"}))
        self.assert_close(self.one_rank, found, 1e-5)

    def test_recompute_is_bitwise_the_same(self):
        plain = zt.losses(self.train(2, "plain"))
        found = zt.losses(self.train(2, "recompute", {"recompute.mode": "full"}))
        self.assert_same(plain, found)

    def test_poison_is_bitwise_the_same(self):
        for strategy in ("zero1", "FULL_SHARD"):
            plain = zt.losses(self.train(2, f"clean_{strategy}", {"sharding.strategy": strategy}))
            found = zt.losses(
                self.train(
                    2,
                    f"poison_{strategy}",
                    {"sharding.strategy": strategy, "debug.poison": True, "recompute.mode": "full"},
                )
            )
            self.assert_same(plain, found, strategy)


if __name__ == "__main__":
    zt.main()
