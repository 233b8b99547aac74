"""Training that diverges: the run says so, and what is left trains."""

import struct

import ztrain_run as zt


def change_weights(model, changes):
    """Sets elements of an exported fp32 model. changes: {name: function of (rows, columns) that gives {index: value}}."""
    with open(model / "model.safetensors", "r+b") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = zt.json.loads(file.read(length))
        for name, elements in changes.items():
            assert header[name]["dtype"] == "F32"
            for index, value in elements(*header[name]["shape"]).items():
                file.seek(8 + length + header[name]["data_offsets"][0] + 4 * index)
                file.write(struct.pack("<f", value))


class Diverges(zt.Case):
    def test_divergence(self):
        result = zt.run(
            2,
            [self.deck, *zt.words_of({"optimizer.lr": 1e30, "optimizer.max_norm": 0, "run.steps": 60})],
            timeout=20,
        )
        self.assert_refused(result, r"20 steps in a row had gradients that are not finite")

    def diverging(self, folder, steps, **settings):
        """Gradients of more than fp32 has room for after a few steps that were finite."""
        settings = {
            "run.output": self.folder / folder,
            "run.steps": steps,
            "data.train": self.text,
            "optimizer.name": "sgd",
            "optimizer.momentum": 0,
            "optimizer.max_norm": 0,
            "optimizer.lr": 60,
            "schedule.warmup": 399,
            "checkpoint.interval": 2,
            **settings,
        }
        return zt.run(2, [zt.SOURCE / "inputs" / "smoke.toml", *zt.words_of(settings)], timeout=60)

    def finite(self, folder):
        """The steps of the run that were not skipped."""
        records = (self.folder / folder / "metrics.jsonl").read_text().splitlines()
        return [r["step"] for r in map(zt.json.loads, records) if r.get("grad_norm") is not None]

    def test_divergence_leaves_checkpoints_that_train(self):
        """Of the weights that the next step finds dead none is left where a run would go on, checkpoint.keep = 1 or not."""
        folder, settings = self.folder / "diverged", {"checkpoint.interval": 1, "checkpoint.keep": 1}
        result = self.diverging("diverged", 400, **settings)
        self.assert_refused(result, r"20 steps in a row had gradients that are not finite")
        self.assertIn("no checkpoint is written: this step was skipped, and older checkpoints stay", result.out)
        last = self.finite("diverged")[-1]
        self.assertEqual(zt.saved_steps(folder / "checkpoints"), [last - 1])
        self.assertEqual(zt.saved_steps(folder / "checkpoints.diverged"), [last])
        self.assertRegex(result.out, rf"checkpoints beyond step {last - 1} are now in \S+/checkpoints\.diverged")
        again = self.diverging("diverged", 400, **settings, **{"checkpoint.resume": "auto"})
        self.assertIn(f"training starts at step {last} of 400", again.out)

    def test_divergence_is_saved_where_nothing_else_was(self):
        """Weights without a validation loss wait for a step that is taken; there is none."""
        settings = {"optimizer.lr": 1e30, "schedule.warmup": 0}
        waits = {"checkpoint.interval": 1, "evaluation.interval": 1, "evaluation.batches": 1}
        for name, more in ("unsaved", {"checkpoint.interval": 0}), ("blind", waits):
            result = self.diverging(name, 400, **settings, **more)
            self.assert_refused(result, r"20 steps in a row had gradients that are not finite")
            self.assertEqual(self.finite(name), [1])
            self.assertEqual(zt.saved_steps(self.folder / name / "checkpoints"), [21])
            self.assertIn("step 21: warning: this step was skipped; training may not go on", result.out)
        self.assertIn("step 1: no checkpoint is written: the validation loss is not finite", result.out)
        self.assertNotIn("-nan", result.output)

    def fragile_model(self):
        """1e20 is multiplied by 1e20 for the letter Z alone."""
        model = self.folder / "fragile"
        if model.exists():
            return model
        self.train(1, "whole", {**zt.STILL, "run.steps": 1, "checkpoint.export": model})
        layer = "model.layers.0."
        first_column = lambda of: lambda rows, columns: {row * columns: of(row) for row in range(rows)}
        change_weights(
            model,
            {
                "model.embed_tokens.weight": first_column(lambda row: float(row == ord("Z"))),
                layer + "self_attn.o_proj.weight": lambda rows, columns: dict.fromkeys(range(columns), 0.0),
                layer + "mlp.gate_proj.weight": first_column(lambda row: 1e20),
                layer + "mlp.up_proj.weight": first_column(lambda row: 1e20),
            },
        )
        return model

    def test_a_step_that_is_not_to_be_skipped_ends_the_run_before_it(self):
        """The first op that is not finite is named, and the state is that before the step: the run meets it again."""
        text = zt.write_text_data(self.folder / "few_Zs.txt", 3000)
        text.write_text("Z".join(text.read_text()[at : at + 700] for at in range(0, 2800, 700)))
        settings = {**zt.STILL, "model.from": self.fragile_model(), "data.train": text, "run.steps": 20, "checkpoint.interval": 0}
        skipped = self.train(2, "skipped", settings)
        bad, *_ = [r["step"] for r in zt.metrics(skipped) if r.get("grad_norm", 0) is None]
        self.assertGreater(bad, 1)
        stopping = {**settings, "run.output": self.folder / "before_Z", "checkpoint.resume": "auto"}
        for _ in range(2):
            result = zt.run(2, [self.deck, *zt.words_of({**stopping, "watchdog.non_finite": "stop"})])
            self.assert_refused(
                result,
                rf"step {bad}: its gradients are not finite \(watchdog\.non_finite = \"stop\"\)\. Computed again: first rank [01] "
                r"\(\S+\), forward model\.layers\.0 micro \d: \w+ model\.layers\.0\.mlp\S* \(op \d+\): its result \S+ is not finite",
                rf"the run ends after step {bad - 1}, which is saved",
            )
            self.assertEqual(zt.saved_steps(self.folder / "before_Z/checkpoints"), [bad - 1])
        result = zt.run(2, [self.deck, *zt.words_of(stopping)])
        self.assertEqual(result.code, 0, str(result))
        self.assert_same(zt.losses(skipped), zt.losses(self.folder / "before_Z"))
        sixteen = {**settings, "watchdog.non_finite": "stop", "precision.preset": "deepspeed-fp16"}
        result = zt.run(0, ["check", self.deck, *zt.words_of(sixteen)])
        self.assert_refused(result, r"watchdog\.non_finite = \"stop\" does not go with precision\.parameters = \"fp16\"")
        early = {**settings, "watchdog.non_finite": "stop", "optimizer.during_backward": True, "optimizer.max_norm": 0}
        result = zt.run(0, ["check", self.deck, *zt.words_of(early)])
        self.assert_refused(result, r"non_finite = \"stop\" saves the state before the step, which optimizer\.during_backward = true does not")

    def test_validation_data_without_a_loss_put_a_checkpoint_off_once(self):
        """The validation data have a letter that those of training lack."""
        validation = self.folder / "Z.txt"
        validation.write_text("Z" * 1000)
        settings = {
            **zt.STILL,
            "run.output": self.folder / "fragile_run",
            "run.steps": 8,
            "model.from": self.fragile_model(),
            "data.validation": validation,
            "evaluation.interval": 1,
            "evaluation.batches": 1,
            "checkpoint.interval": 3,
            "checkpoint.keep": 0,
        }
        result = zt.run(1, [self.deck, *zt.words_of(settings)])
        self.assert_refused(result, r"the validation loss at the end of the run is not finite")
        self.assertEqual(zt.saved_steps(self.folder / "fragile_run" / "checkpoints"), [4, 7, 8], str(result))

    def test_a_run_that_ends_in_skipped_steps_is_no_success(self):
        model = self.folder / "model"
        settings = {
            "optimizer.lr": 1e9,
            "schedule.warmup": 0,
            "checkpoint.export": model,
            "checkpoint.interval": 1,
            "checkpoint.keep": 1,
            "checkpoint.resume": "auto",
        }
        for _ in range(2):
            result = self.diverging("short", 20, **settings)
            self.assert_refused(
                result, r"the last \d+ steps of the run had gradients that are not finite, and were skipped"
            )
            self.assertFalse(model.exists(), str(result))
            last = self.finite("short")[-1]
            self.assertEqual(zt.saved_steps(self.folder / "short" / "checkpoints"), sorted({max(last - 1, 1), last}))

    def test_a_run_that_stops_early_among_skipped_steps_goes_on_until_there_are_20(self):
        """The jobs of a queue count on, and what they save of the same weights takes no more room than any checkpoint."""
        settings = {"optimizer.lr": 1e30, "schedule.warmup": 0, "checkpoint.keep": 1, "checkpoint.resume": "auto"}
        result = self.diverging("stopped", 19, **settings, **{"checkpoint.interval": 0})
        self.assert_refused(result, r"the last 18 steps of the run .* were skipped: training has diverged")
        settings.update({"run.max_minutes": 1e-9, "checkpoint.interval": 1})
        result = self.diverging("stopped", 400, **settings)
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("the run stops after step 20 of 400", result.out)
        self.assertEqual(zt.saved_steps(self.folder / "stopped" / "checkpoints"), [20])
        result = self.diverging("stopped", 400, **settings)
        self.assert_refused(result, r"20 steps in a row had gradients that are not finite: training has diverged")
        self.assertEqual(zt.saved_steps(self.folder / "stopped" / "checkpoints"), [20])

    def test_a_run_without_a_single_step_is_no_success(self):
        model = self.folder / "untrained_model"
        result = self.diverging(
            "untrained", 5, **{
                "schedule.warmup": 0,
                "precision.preset": "deepspeed-fp16",
                "loss_scaling.initial_scale_power": 40,
                "checkpoint.export": model,
            }
        )  # fmt: skip
        self.assert_refused(result, r"every step of the run had gradients that are not finite, and was skipped")
        self.assertFalse(model.exists(), str(result))

    def test_a_run_whose_last_step_broke_the_weights_is_no_success(self):
        model = self.folder / "broken_model"
        settings = {
            "optimizer.lr": 1e30,
            "schedule.warmup": 0,
            "evaluation.interval": 1,
            "checkpoint.export": model,
            "checkpoint.resume": "auto",
        }
        for _ in range(2):
            result = self.diverging("broken", 1, **settings)
            self.assert_refused(result, r"the validation loss at the end of the run is not finite: training has diverged")
            self.assertFalse(model.exists(), str(result))


if __name__ == "__main__":
    zt.main()
