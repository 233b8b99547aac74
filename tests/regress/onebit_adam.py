"""optimizer.name = "onebit_adam" from the command line: what copies sum up, and what they keep for later steps."""

import json

import numpy as np
import ztrain_run as zt

FREEZE = 2
TWO_BY_TWO = {"mesh.replicate": 2, "mesh.shard": 2}
FOUR = {"mesh.replicate": 4, "mesh.shard": 1}
NAME = {"optimizer.name": "onebit_adam", "optimizer.freeze_step": FREEZE}
STATES = {"offload.optimizer": "cpu", "offload.master": "cpu"}


def state(tensors, name):
    prefix = f"optimizer/{name}/"
    return {n.removeprefix(prefix): values.astype(np.float64) for n, values in tensors.items() if n.startswith(prefix)}


def signs(values):
    """The sign of each element times the mean magnitude of 256 elements."""
    flat = values.ravel()
    blocks = [flat[i : i + 256] for i in range(0, flat.size, 256)]
    return np.concatenate([np.where(b >= 0, 1, -1) * np.abs(b).mean() for b in blocks]).reshape(values.shape)


class OneBitAdam(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["batch"]["global"] = 8
        sections["optimizer"].update({"lr": 1e-3})
        sections["checkpoint"].update({"interval": 1, "keep": 0})
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = cls.train(4, "whole", {**NAME, **TWO_BY_TWO})

    @staticmethod
    def step_of(output, step):
        return output / "checkpoints" / f"step_{step}"

    def test_a_momentum_is_signs_and_errors_are_the_rest(self):
        """All copies have the same gradients, so that what one of them keeps is its part of what the sum has lost."""
        text = self.folder / "same.txt"
        text.write_text("abcdefgh ijklmnop qrstuvwx yz012" * 40)
        alike = {"data.train": str(text), "run.steps": FREEZE + 1, "optimizer.max_norm": 0}
        for number, mesh in enumerate((TWO_BY_TWO, FOUR, {**TWO_BY_TWO, "sharding.strategy": "NO_SHARD"}, {"mesh.replicate": 2, "mesh.tensor": 2})):
            exact = zt.tensors(self.step_of(self.train(4, f"exact_{number}", {**alike, **mesh}), FREEZE + 1))
            output = self.train(4, f"signs_{number}", {**alike, **mesh, **NAME})
            before, after = (zt.tensors(self.step_of(output, step)) for step in (FREEZE, FREEZE + 1))
            for name, momentum in state(exact, "exp_avg").items():
                found, size = state(after, "exp_avg")[name], np.abs(momentum).max() + 1e-12
                moves = state(before, "exp_avg_sq")[name] > 0  # words that the text does not have never do
                if "mesh.tensor" not in mesh:  # whose ranks' parts of a parameter have scales of their own
                    np.testing.assert_allclose(found, np.where(moves, signs(momentum), 0), atol=2e-6 * size, err_msg=f"{mesh} {name}")
                copies = mesh["mesh.replicate"]
                kept = [values.astype(float) * copies for n, values in after.items() if n.startswith("optimizer/error.copy") and n.endswith(f"/{name}")]
                self.assertEqual(len(kept), copies, name)
                for error in kept:
                    np.testing.assert_allclose(error[moves], (momentum - found)[moves], atol=5e-6 * size, err_msg=f"{mesh} {name}")
            for name, values in state(before, "exp_avg_sq").items():
                np.testing.assert_array_equal(values, state(after, "exp_avg_sq")[name])
            for values in state(before, "error.copy0").values():
                self.assertFalse(values.any(), "errors before the first sum of signs")

    def test_the_warm_up_is_adamw(self):
        plain = zt.losses(self.train(4, "plain", TWO_BY_TWO))
        found = zt.losses(self.whole)
        self.assert_same({s: plain[s] for s in range(1, FREEZE + 1)}, {s: found[s] for s in range(1, FREEZE + 1)})
        self.assertNotEqual(plain, found)
        self.assert_close(plain, found, 2e-2)

    def test_no_bit_depends_on_where_states_are_or_how_gradients_are_added_up(self):
        keys = {**NAME, **TWO_BY_TWO}
        for number, other in enumerate(({"sharding.strategy": "zero2", **STATES}, {"sharding.strategy": "NO_SHARD", "sharding.gradient_accumulation": "reduce"}, {"checkpoint.async": True})):
            self.assert_same(zt.losses(self.whole), zt.losses(self.train(4, f"other_{number}", {**keys, **other})), str(other))
        staged = self.train(4, "staged", {**NAME, "mesh.replicate": 2, "mesh.pipeline": 2, "mesh.shard": 1, "model.tie_word_embeddings": True})
        flat = self.train(2, "flat", {**NAME, "mesh.replicate": 2, "mesh.shard": 1, "model.tie_word_embeddings": True})
        self.assert_close(zt.losses(flat), zt.losses(staged), 1e-2)

    def test_a_resumed_run_has_the_same_bits(self):
        resumed = self.train(4, "resumed", {**NAME, **TWO_BY_TWO, "checkpoint.resume": self.step_of(self.whole, 4)})
        self.assert_same_tensors(self.step_of(self.whole, 6), self.step_of(resumed, 6))
        other = self.train(2, "other_cut", {**NAME, "mesh.replicate": 2, "mesh.shard": 1, "checkpoint.resume": self.step_of(self.whole, 4)})
        self.assert_close({s: zt.losses(self.whole)[s] for s in (5, 6)}, zt.losses(other), 1e-3)
        self.assertNotIn("anew", self.last.output)
        self.train(4, "more_copies", {**NAME, **FOUR, "checkpoint.resume": self.step_of(self.whole, 4)})
        self.assertRegex(self.last.output, "does not hold optimizer/error .*begins anew")

    def test_skipped_steps_leave_what_copies_keep_finite(self):
        """A loss scale that doubles with each step is soon too large."""
        output = self.train(2, "skips", {**NAME, "mesh.replicate": 2, "mesh.shard": 1, "precision.preset": "deepspeed-fp16", "run.steps": 14,
                                         "loss_scaling.initial_scale_power": 14, "loss_scaling.window": 1})
        self.assertGreater(sum(row["grad_norm"] is None for row in zt.metrics(output)[FREEZE + 2 :]), 0, "no step was skipped")
        for name, values in zt.tensors(self.step_of(output, zt.saved_steps(output / "checkpoints")[-1])).items():
            self.assertTrue(np.isfinite(values).all(), name)

    def test_a_step_sends_as_few_bytes_as_planned(self):
        sent = [row["bytes_sent"]["replicate"] for row in zt.metrics(self.whole)]
        self.assertEqual(len(set(sent[:FREEZE])), 1)
        self.assertLess(sent[FREEZE], sent[0] / 12)
        plan = zt.run(0, ["plan", self.deck, "--ranks", 4, "--json", *zt.words_of({**NAME, **TWO_BY_TWO})])
        self.assertEqual(plan.code, 0, str(plan))
        planned = sum(row["bytes"] for row in json.loads(plan.out)["traffic"]["rows"] if row["axes"] == "replicate")
        self.assertEqual(planned, sent[FREEZE])

    def test_refusals(self):
        for keys, pattern in (
            ({"optimizer.freeze_step": 0}, r"onebit_adam. needs optimizer\.freeze_step"),
            ({"optimizer.during_backward": True, "optimizer.max_norm": 0}, "gradients are summed after the whole backward"),
            ({"offload.optimizer": "cpu", "offload.optimizer_ahead": True}, "gradients are summed after the whole backward"),
        ):
            words = zt.words_of({"run.output": self.folder / "refused", **NAME, **TWO_BY_TWO, **keys})
            self.assert_refused(zt.run(0, ["check", self.deck, "--ranks", 4, *words]), pattern)


if __name__ == "__main__":
    zt.main()
