"""offload.optimizer_ahead: the bits of runs without it, whether steps stand, are clipped or are skipped, and resumed runs."""

import h5py

import ztrain_run as zt

AWAY = {"offload.optimizer": "cpu", "offload.master": "cpu", "precision.preset": "bf16", "checkpoint.interval": 1,
        "checkpoint.keep": 9}
SKIPS = {"precision.preset": "deepspeed-fp16", "loss_scaling.initial_scale_power": 18, "loss_scaling.hysteresis": 1,
         "loss_scaling.window": 1}
CLIP = 1.75  # between the norms of the steps


def state_of(checkpoint):
    """{name: a hash of its bytes} of weights and optimizer states: a comparison that fails then prints no arrays."""
    found = {}
    with h5py.File(checkpoint / "index.h5") as file:
        file.visititems(lambda name, item: found.update({name: hash(item[()].tobytes())}) if isinstance(item, h5py.Dataset) else None)
    return {name: value for name, value in found.items() if name.startswith(("model/", "optimizer/"))}


def checkpoints_of(output):
    return sorted((output / "checkpoints").glob("step_*"))


class Ahead(zt.Case):
    def agrees(self, ranks, **more):
        """Returns the ahead run, which has the bits of one that waits for the norm: losses, norms, weights and states."""
        keys = {**AWAY, "optimizer.max_norm": CLIP, **more}
        plain = self.train(ranks, "plain", keys)
        ahead = self.train(ranks, "ahead", {**keys, "offload.optimizer_ahead": True, "debug.poison": True})
        self.assertEqual(zt.losses(ahead), zt.losses(plain))
        states = state_of(checkpoints_of(plain)[-1])
        self.assertGreater(len(states), 10)
        self.assertEqual(state_of(checkpoints_of(ahead)[-1]), states)
        self.assertNotIn("units_rolled_back", zt.metrics(plain)[0])
        return ahead

    def back(self, output):
        """{step: (units taken back, gradient norm)}"""
        return {r["step"]: (r["units_rolled_back"], r["grad_norm"]) for r in zt.metrics(output)}

    def test_clipped_steps_are_taken_back(self):
        back = self.back(self.agrees(1, **{"optimizer.ema_decay": 0.75})).values()
        self.assertEqual({units > 0 for units, _ in back}, {True, False})
        for units, norm in back:
            self.assertEqual(units > 0, norm > CLIP, back)

    def test_skipped_steps_are_taken_back(self):
        ahead = self.agrees(2, **SKIPS)
        skipped = [units for units, norm in self.back(ahead).values() if norm is None]
        self.assertGreater(min(skipped), 1)
        self.assertLess(len(skipped), 6)
        first = checkpoints_of(ahead)[0]
        keys = {**AWAY, **SKIPS, "optimizer.max_norm": CLIP, "offload.optimizer_ahead": True, "checkpoint.resume": first}
        resumed = self.train(2, "resumed", keys)
        tail = {step: of for step, of in zt.losses(ahead).items() if step > int(first.name[5:])}
        self.assertEqual(zt.losses(resumed), tail)
        self.assertEqual(state_of(checkpoints_of(resumed)[-1]), state_of(checkpoints_of(ahead)[-1]))

    def test_refusals(self):
        for changes, word in (({}, "runs on the host"), ({**AWAY, "optimizer.name": "muon"}, "whole matrices"),
                              ({**AWAY, "offload.master": "nvme", "offload.nvme_path": [self.folder]}, "cannot be on nvme"),
                              ({**AWAY, "optimizer.max_norm": 0, "optimizer.during_backward": True}, "changes no step"),
                              ({**AWAY, "mesh.pipeline": 2}, "end of the step")):
            words = {"run.output": self.folder / "refused", "offload.optimizer_ahead": True, **changes}
            self.assert_refused(zt.run(2, [self.deck, *zt.words_of(words)]), f"optimizer_ahead = true.*{word}")


if __name__ == "__main__":
    zt.main()
