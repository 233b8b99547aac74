"""Dims and options of the model that divide nothing: they train, and on several ranks as on one."""

import ztrain_run as zt


class Dims(zt.Case):
    def agree(self, name, ranks, overrides):
        """Trains on one rank and on several; returns the losses of one rank."""
        one = zt.losses(self.train(1, f"{name}_1", overrides))
        self.assertEqual(list(one), list(range(1, 7)))
        self.assertLess(one[6][0], one[1][0], "the model does not learn")
        for n in ranks:
            self.assert_close(one, zt.losses(self.train(n, f"{name}_{n}", overrides)), 1e-5, f"{n} ranks")
        return one

    def test_dims_that_do_not_divide_by_the_ranks(self):
        self.agree(
            "odd",
            [3],
            {
                "model.hidden_size": 40,
                "model.num_attention_heads": 5,
                "model.num_key_value_heads": 1,
                "model.intermediate_size": 100,
                "batch.global": 12,
            },
        )

    def test_head_dim_of_its_own(self):
        self.agree("head_dim", [2], {"model.head_dim": 6, "data.sequence": 19})

    def test_tied_embeddings(self):
        one = self.agree("tied", [2], {"model.tie_word_embeddings": True, "batch.global": 6})
        untied = zt.losses(self.train(1, "untied", {"batch.global": 6}))
        self.assertNotEqual(one, untied)
        index = self.folder / "tied_2" / "checkpoints" / "step_6"
        self.assertNotIn("model/lm_head.weight", zt.tensors(index))

    def test_attention_bias(self):
        self.agree("bias", [2], {"model.attention_bias": True})
        checkpoint = zt.tensors(self.folder / "bias_2" / "checkpoints" / "step_6")
        self.assertEqual(checkpoint["model/model.layers.0.self_attn.k_proj.bias"].shape, (16,))
        self.assertTrue(
            (checkpoint["model/model.layers.0.self_attn.v_proj.bias"] != 0).any(), "the bias did not learn"
        )

    def test_rope_scaling(self):
        one = self.agree(
            "rope", [2], {"model.rope_scaling": "llama3", "model.rope_original_max_position": 16}
        )
        self.assertNotEqual(one, zt.losses(self.train(1, "unscaled")))

    def test_one_layer_and_more_ranks_than_layers(self):
        self.agree("layer", [4], {"model.num_hidden_layers": 1, "batch.global": 4, "sharding.forward_prefetch": 2})

    def test_a_model_smaller_than_a_shard(self):
        # Weights of a few elements: most ranks own only padding of some units.
        self.agree(
            "tiny",
            [4],
            {
                "model.hidden_size": 4,
                "model.num_attention_heads": 2,
                "model.num_key_value_heads": 1,
                "model.intermediate_size": 6,
                "model.num_hidden_layers": 1,
            },
        )


if __name__ == "__main__":
    zt.main()
