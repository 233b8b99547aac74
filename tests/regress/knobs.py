"""Every key of [sharding], [precision], [loss_scaling], [recompute] and [optimizer], from the command line.

Keys that only place things change no bit; the others do what they say, and a resumed run goes on with what
they keep.
"""

import json
import re

import ztrain_run as zt

# name: (ranks, keys). Same losses and norms, bit for bit, as zero0 on as many ranks.
PLACED = {
    "sub-groups": (
        4,
        {
            "sharding.strategy": "FULL_SHARD",
            "sharding.reshard_after_forward": 2,
            "sharding.forward_prefetch": 3,
            "sharding.backward_prefetch": "BACKWARD_POST",
            "sharding.max_gathered_units": 2,
            "sharding.reduce_bucket_size": 2000,
            "sharding.overlap_reduce": False,
            "sharding.unit": "pattern",
            "sharding.unit_patterns": ["model.layers.*.mlp"],
        },
    ),
    "limits": (
        4,
        {
            "sharding.max_live_parameters": 9000,
            "sharding.max_reuse_distance": 8000,
            "sharding.persistence_threshold": 100,
            "sharding.unit": "size",
            "sharding.unit_min_parameters": 10000,
            "sharding.backward_prefetch": "none",
            "recompute.mode": "selective",
            "recompute.pieces": ["norm", "swiglu"],
        },
    ),
    "dropped": (
        2,
        {
            "sharding.strategy": "SHARD_GRAD_OP",
            "sharding.reshard_after_forward": True,
            "sharding.gradient_accumulation": "reduce",
            "sharding.unit": "model",
            "recompute.mode": "full",
            "recompute.every": 2,
        },
    ),
    "kept": (
        2,
        {
            "sharding.reshard_after_forward": False,
            "sharding.persistence_threshold": 1_000_000,
            "sharding.reduce_bucket_size": 1,
            "recompute.mode": "selective",
            "recompute.pieces": ["qkv", "attention", "ffn"],
        },
    ),
}

# name: keys. They change numbers, but no strategy does.
NUMERIC = {
    "nesterov": {
        "optimizer.name": "sgd",
        "optimizer.momentum": 0.8,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 0.01,
    },
    "groups": {
        "optimizer.betas": [0.8, 0.9],
        "optimizer.eps": 1e-6,
        "optimizer.no_decay": ["model.embed_tokens.*"],
        "optimizer.groups": [{"match": "*.mlp.*", "lr_scale": 0.5, "weight_decay": 0.2}],
        "precision.moments": "bf16",
        "precision.reduce": "bf16",
    },
    "nearest": {
        "precision.preset": "bf16-pure",
        "precision.rounding": "nearest",
        "precision.gradients": "fp32",
        "optimizer.name": "lion",
        "optimizer.max_norm": 0.5,
    },
    "during_backward": {"optimizer.during_backward": True, "optimizer.max_norm": 0},
    "whole_matrices": {"optimizer.name": "muon", "optimizer.muon_scale": "spectral", "optimizer.lr": 1e-3},
    "fp8": {"precision.fp8": "tensorwise", "precision.preset": "bf16"},
    "fp8_rows": {"precision.fp8": "rowwise", "precision.preset": "bf16-pure"},
    "fp16": {
        "precision.parameters": "fp16",
        "precision.master": "fp32",
        "loss_scaling.scale": 1024,
        "optimizer.lr": 1e-3,
    },
}

# fp16 whose scale rises until it is too large, again and again.
RESTLESS = {
    "precision.preset": "deepspeed-fp16",
    "loss_scaling.initial_scale_power": 8,
    "loss_scaling.window": 2,
    "loss_scaling.hysteresis": 2,
    "loss_scaling.consecutive_hysteresis": True,
    "loss_scaling.min_scale": 0.5,
}


def metadata(checkpoint):
    import h5py

    with h5py.File(checkpoint / "index.h5") as file:
        return json.loads(file.attrs["metadata"])


def skipped_steps(text):
    steps = re.findall(r"^step (\d+): the gradient norm is not finite; the step is skipped", text, re.M)
    return [int(step) for step in steps]


def scales_after(steps, overflows, keys):
    """The scale after each step, as DeepSpeed's DynamicLossScaler.update_scale has it."""
    scale, window = 2.0 ** keys["loss_scaling.initial_scale_power"], keys.get("loss_scaling.window", 1000)
    delayed_shift = hysteresis = keys.get("loss_scaling.hysteresis", 2)
    last_overflow, scales = -1, []
    for i in range(steps):
        if i + 1 in overflows:
            if delayed_shift == 1 or hysteresis == 1:
                scale = max(scale / 2, keys.get("loss_scaling.min_scale", 1))
            else:
                hysteresis -= 1
            last_overflow = i
        else:
            if keys.get("loss_scaling.consecutive_hysteresis", False):
                hysteresis = delayed_shift
            if (i - last_overflow) % window == 0:
                hysteresis = delayed_shift
                scale *= 2
        scales.append(scale)
    return scales


def told_scales(text, first, steps):
    """The same, from what a run prints when its scale changes."""
    told = re.findall(r"^step (\d+): .*the loss scale (?:falls|rises) from \S+ to (\S+)$", text, re.M)
    changes = {int(step): float(to) for step, to in told}
    scales = []
    for step in range(1, steps + 1):
        first = changes.get(step, first)
        scales.append(first)
    return scales


class Knobs(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 4
        sections["batch"]["global"] = 8
        sections["checkpoint"]["interval"] = -1
        return sections

    def test_each_key_is_set_somewhere(self):
        tested = {key for _, keys in PLACED.values() for key in keys} | {"precision.preset"} | set(RESTLESS)
        # These have tests of their own.
        tested |= {"sharding.gather_codes", "sharding.reduce_codes", "recompute.tiles", "optimizer.ema_decay"}
        tested |= {"optimizer.freeze_step"}
        tested |= {key for keys in NUMERIC.values() for key in keys}
        known, section = set(), ""
        for line in zt.run(0, ["deck"]).out.splitlines():
            if match := re.match(r"\[(\w+)\]", line):
                section = match[1]
            elif match := re.match(r"#? ?(\w+) = ", line):
                known.add(f"{section}.{match[1]}")
        sections = ("sharding", "precision", "loss_scaling", "recompute", "optimizer")
        known = {key for key in known if key.split(".")[0] in sections}
        self.assertGreater(len(known), 35, "`ztrain deck` is not understood")
        self.assertEqual(sorted(known - tested), [])

    def test_keys_that_place_change_no_bit(self):
        whole = {}
        for ranks in (2, 4):
            keys = {"sharding.strategy": "zero0", "sharding.gradient_accumulation": "reduce"}
            whole[ranks] = zt.losses(self.train(ranks, f"zero0_{ranks}", keys))
        for name, (ranks, keys) in PLACED.items():
            self.assert_same(whole[ranks], zt.losses(self.train(ranks, name, keys)), name)

    def test_numeric_keys_agree_between_strategies(self):
        plain = zt.losses(self.train(2, "plain"))
        for name, keys in NUMERIC.items():
            two = zt.losses(self.train(2, f"{name}_2", {**keys, **PLACED["kept"][1]}))
            other = zt.losses(
                self.train(
                    2,
                    f"{name}_zero1",
                    {**keys, "sharding.strategy": "zero1", "sharding.gradient_accumulation": "reduce"},
                )
            )
            self.assertNotEqual(plain, two, f"{name} has no effect")
            self.assert_same(other, two, name)


class LossScaling(zt.Case):
    """The steps of fp16 runs that overflow, and what is left of them."""

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 40
        sections["schedule"] = {"name": "constant"}
        sections["precision"] = {"preset": "deepspeed-fp16"}
        sections["checkpoint"].update({"interval": 1, "keep": 0})
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.restless = cls.train(2, "restless", RESTLESS)
        cls.told = cls.last.out
        cls.skipped = skipped_steps(cls.told)

    def step_of(self, step, output=None):
        return (output or self.restless) / "checkpoints" / f"step_{step}"

    def stopped_at(self, step, keys=RESTLESS, before=None):
        """The checkpoint of a run that ends with this step: in the middle of a run, skipped steps have none."""
        end = {"run.steps": step, "checkpoint.interval": 0}
        resume = {"checkpoint.resume": before} if before else {}
        return self.step_of(step, self.train(2, f"stopped_{step}", {**keys, **end, **resume}))

    def test_too_large_a_scale_skips_until_it_fits(self):
        """A checkpoint that was due long ago comes with the first step that is taken."""
        keys = {"loss_scaling.initial_scale_power": 40}
        evaluation = {"data.validation": self.text, "evaluation.interval": 15, "evaluation.batches": 1}
        output = self.train(2, "large", {**keys, **evaluation, "checkpoint.interval": 15, "run.steps": 60})
        overflows = skipped_steps(self.last.out)
        first = next(step for step in range(1, 60) if step not in overflows)
        self.assertIn("step 15: no checkpoint is written: this step was skipped", self.last.out)
        self.assertRegex(self.last.out, r"step 15: validation loss .*, the best so far", "a skipped step changes no weights")
        due = [s for s in (30, 45) if s not in overflows and s > first]
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [first, *due, 60])
        self.assertEqual(overflows[:20], list(range(1, 21)), "no gradient comes near 65504 / 2^20")
        self.assertLess(overflows[-1], 45, "it never fits")
        self.assertRegex(self.last.out, r"step 1: .* skipped; the loss scale stays at 1099511627776 \(loss")
        expected = scales_after(60, overflows, keys)
        self.assertEqual(expected[:3], [2.0**40, 2.0**39, 2.0**38])
        self.assertEqual(told_scales(self.last.out, 2.0**40, 60), expected)
        found = zt.losses(output)
        self.assertEqual([step for step, (_, norm) in found.items() if norm is None], overflows)
        self.assertLess(found[60][0], found[1][0] - 1, "the model does not learn")

    def test_the_scale_goes_up_and_down_as_deepspeeds_does(self):
        self.assertGreater(len(self.skipped), 2)
        self.assertLess(len(self.skipped), 20)
        expected = scales_after(40, self.skipped, RESTLESS)
        self.assertEqual(told_scales(self.told, 2.0**8, 40), expected)
        saved = [step for step in range(1, 41) if step == 40 or step not in self.skipped]
        self.assertEqual(zt.saved_steps(self.restless / "checkpoints"), saved)
        for step in saved:
            self.assertEqual(metadata(self.step_of(step))["loss_scaler"]["scale"], expected[step - 1], step)

    def test_a_skipped_step_leaves_the_state_as_it_was(self):
        for step in [s for s in self.skipped if s - 1 not in self.skipped][:2]:
            stopped = self.stopped_at(step, before=self.step_of(step - 1))
            self.assert_same_tensors(self.step_of(step - 1), stopped)
            before, after = metadata(self.step_of(step - 1)), metadata(stopped)
            self.assertEqual(before["optimizer_steps"], after["optimizer_steps"])
            self.assertEqual(before["samples"] + 4, after["samples"], "the data go on")
        step = self.skipped[0]
        before, taken = zt.tensors(self.step_of(step - 2)), zt.tensors(self.step_of(step - 1))
        for name, array in before.items():
            self.assertNotEqual(array.tobytes(), taken[name].tobytes(), f"{name}: a good step changes it")

    def test_resume_restores_the_scaler(self):
        middle = self.skipped[1]  # within the hysteresis, and at another scale than the first
        output = self.train(2, "resumed", {**RESTLESS, "checkpoint.resume": self.stopped_at(middle)})
        straight = zt.losses(self.restless)
        self.assert_same({s: v for s, v in straight.items() if s > middle}, zt.losses(output))
        first = next(s for s in range(middle + 1, 40) if s not in self.skipped)
        for step in (first, max(zt.saved_steps(output / "checkpoints"))):
            one, other = metadata(self.step_of(step)), metadata(self.step_of(step, output))
            self.assertEqual(one["loss_scaler"], other["loss_scaler"], step)
            self.assert_same_tensors(self.step_of(step), self.step_of(step, output))
        self.assertEqual(skipped_steps(self.last.out), [s for s in self.skipped if s > middle])

    def test_at_its_minimum_the_run_goes_on_with_a_warning(self):
        keys = {"loss_scaling.initial_scale_power": 40, "loss_scaling.min_scale": 2.0**36}
        output = self.folder / "minimum"
        words = zt.words_of({"run.output": output, **keys, "checkpoint.interval": 15, "run.steps": 30})
        result = zt.run(2, [self.deck, *words])
        self.assertEqual(skipped_steps(result.out), list(range(1, 31)))
        self.assertEqual(told_scales(result.out, 2.0**40, 30), scales_after(30, range(1, 31), keys))
        warning = rf"warning: the loss scale is at loss_scaling\.min_scale \({2**36}\)"
        # Four halvings after a step that costs nothing; the step that reaches the minimum still tells that.
        self.assertEqual(len(re.findall(warning, result.out)), 30 - 1 - 4)
        self.assertIn("step 15: no checkpoint is written", result.out)
        self.assertIn("step 30: warning: this step was skipped", result.out)
        self.assertEqual(zt.saved_steps(output / "checkpoints"), [30])
        self.assert_refused(result, r"the last 30 steps of the run had gradients that are not finite")

    def test_a_fixed_scale_that_is_too_large_ends_the_run(self):
        words = zt.words_of({"run.output": self.folder / "fixed", "loss_scaling.scale": 2.0**40})
        result = zt.run(2, [self.deck, *words], timeout=20)
        self.assert_refused(result, r"20 steps in a row .* or a lower loss_scaling\.scale")

    def test_a_fixed_scale_is_a_dynamic_one_that_does_not_move(self):
        keys = {"run.steps": 4, "checkpoint.interval": -1}
        fixed = zt.losses(self.train(2, "scale", {**keys, "loss_scaling.scale": 1024}))
        moving = self.train(2, "power", {**keys, "loss_scaling.initial_scale_power": 10})
        self.assert_same(fixed, zt.losses(moving))

    def test_codes_move_between_numbers_of_ranks_bit_for_bit(self):
        """A step that is skipped saves what it has read."""
        keys = {**RESTLESS, "optimizer.name": "adamw_8bit", "loss_scaling.hysteresis": 1}
        output = self.train(2, "codes", keys)
        skipped = skipped_steps(self.last.out)[0]
        expected = self.step_of(skipped - 1, output)
        states = {name.rsplit("/", 1)[0] for name in zt.tensors(expected)}
        self.assertIn("optimizer/exp_avg.absmax", states)
        for ranks in (1, 4):
            resumed = {**keys, "checkpoint.resume": expected, "run.steps": skipped}
            found = self.train(ranks, f"codes_{ranks}", resumed)
            self.assertEqual(skipped_steps(self.last.out), [skipped])
            self.assert_same_tensors(expected, self.step_of(skipped, found))


class Resume(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["checkpoint"]["interval"] = 3
        sections["batch"]["global"] = 8
        return sections

    def halves(self, name, keys, resumed_keys=None, ranks=2):
        """Losses of steps 4 to 6 of a straight run of two ranks, and of one that is resumed there."""
        straight = self.folder / name
        if not straight.exists():
            self.train(2, name, keys)
        output = self.train(
            ranks,
            f"{name}_{ranks}_{len(list(self.folder.iterdir()))}",
            {**keys, **(resumed_keys or {}), "checkpoint.resume": straight / "checkpoints" / "step_3"},
        )
        return {s: v for s, v in zt.losses(straight).items() if s > 3}, zt.losses(output)

    def test_stochastic_rounding_goes_on_bitwise(self):
        keys = {"precision.preset": "bf16-pure"}
        self.assert_same(*self.halves("pure", keys))
        nearest = self.train(2, "nearest", {**keys, "precision.rounding": "nearest"})
        self.assertNotEqual(zt.losses(self.folder / "pure"), zt.losses(nearest))

    def test_codes_go_on_on_other_numbers_of_ranks(self):
        keys = {"optimizer.name": "adamw_8bit"}
        self.assert_same(*self.halves("codes", keys))
        for ranks in (1, 4):
            self.assert_close(*self.halves("codes", keys, ranks=ranks), 1e-5, f"{ranks} ranks")

    def test_8_bit_products_go_on_bitwise(self):
        for scales in ("tensorwise", "rowwise"):
            keys = {"precision.fp8": scales, "precision.preset": "bf16"}
            self.assert_same(*self.halves(scales, keys))
            self.assert_close(*self.halves(scales, keys, ranks=4), 1e-2, f"4 ranks, {scales}")

    def test_placement_may_change(self):
        self.assert_same(*self.halves("placed", {}, PLACED["dropped"][1]))
        self.assert_close(*self.halves("placed", {}, PLACED["sub-groups"][1], ranks=4), 1e-5)

    def test_what_is_stepped_may_not_change(self):
        straight = self.train(2, "adamw")
        for key, value, was in (
            ("optimizer.name", "lion", "adamw"),
            ("optimizer.groups", [{"match": "*", "lr_scale": 2.0}], ""),
            ("precision.preset", "fsdp-bf16", None),
        ):
            words = {"checkpoint.resume": straight / "checkpoints" / "step_3", key: value}
            words["run.output"] = self.folder / "refused"
            result = zt.run(2, [self.deck, *zt.words_of(words)], timeout=20)
            named = re.escape(key) if was is not None else r"precision\.parameters"
            self.assert_refused(result, named + r" was .* and is .* now")

    def test_sgd_without_momentum_keeps_nothing(self):
        for momentum, states in ((0, {"model"}), (0.9, {"model", "optimizer/momentum_buffer"})):
            keys = {"optimizer.name": "sgd", "optimizer.momentum": momentum, "run.steps": 1}
            output = self.train(2, f"sgd_{momentum}", keys)
            tensors = zt.tensors(output / "checkpoints" / "step_1")
            self.assertEqual({name.rsplit("/", 1)[0] for name in tensors}, states)


if __name__ == "__main__":
    zt.main()
