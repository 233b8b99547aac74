"""debug.asynchronous: work runs as late as dependencies allow, with its memory closed to the host, and no result changes."""

import ztrain_run as zt

ASYNCHRONOUS = {"debug.asynchronous": True}


class Asynchronous(zt.Case):
    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["run"]["steps"] = 8
        sections["precision"] = {"preset": "bf16"}
        sections["checkpoint"]["interval"] = 4
        sections["evaluation"] = {"interval": 4, "batches": 2}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plain = cls.train(2, "plain")

    def assert_same_run(self, output, checkpoint="step_8"):
        self.assert_same(zt.validation_losses(self.plain), zt.validation_losses(output))
        self.assert_same(zt.losses(self.plain), zt.losses(output))
        self.assert_same_tensors(self.plain / "checkpoints" / checkpoint, output / "checkpoints" / checkpoint)

    def generated(self, checkpoint):
        result = zt.run(2, ["generate", checkpoint, "--prompt", "kalo", "--tokens", "12", "--temperature", "0"])
        self.assertEqual(result.code, 0, str(result))
        return result.out

    def test_training_evaluation_and_generation(self):
        output = self.train(2, "asynchronous", ASYNCHRONOUS)
        self.assertRegex(self.last.out, r"device +CPU, work deferred; communication: MPI")
        self.assert_same_run(output)
        for record in zt.metrics(output):
            for phase in ("forward", "backward", "optimizer") if "seconds" in record else ():
                self.assertGreater(record["seconds"][phase], 0, "every step is timed by events")
        # The checkpoint's deck says how it was trained, and so it generates.
        expected = self.generated(self.plain / "checkpoints" / "step_8")
        self.assertEqual(expected, self.generated(output / "checkpoints" / "step_8"))

    def test_resume(self):
        output = self.train(
            2, "resumed", {**ASYNCHRONOUS, "checkpoint.resume": self.plain / "checkpoints" / "step_4"}
        )
        second_half = {s: v for s, v in zt.losses(self.plain).items() if s > 4}
        self.assert_same(second_half, zt.losses(output))
        self.assert_same_tensors(self.plain / "checkpoints" / "step_8", output / "checkpoints" / "step_8")

    def test_starting_from_weights(self):
        changes = {"model.from": self.plain / "checkpoints" / "step_4", **{"model." + k: None for k in zt.SMALL_MODEL}}
        deck = self.write_deck("from", {k: v for k, v in changes.items()})
        expected = self.train(2, "from_plain", deck=deck)
        found = self.train(2, "from_asynchronous", ASYNCHRONOUS, deck=deck)
        self.assert_same(zt.losses(expected), zt.losses(found))

    def test_with_poison_and_graphs(self):
        for graphs in ("none", "compute"):
            output = self.train(
                2, "poison_" + graphs, {**ASYNCHRONOUS, "debug.poison": True, "device.cuda_graphs": graphs}
            )
            self.assert_same_run(output)
            timed = [r["seconds"] for r in zt.metrics(output) if "seconds" in r]
            self.assertEqual(all("forward" in s for s in timed[1:]), graphs == "none", "graphs have no times")
            self.assertTrue(all("exposed_communication" in s for s in timed))
        # One rank has no communication that the host drives.
        one = self.train(1, "one")
        graph = self.train(1, "one_graph", {**ASYNCHRONOUS, "device.cuda_graphs": "step"})
        self.assert_same(zt.losses(one), zt.losses(graph))

    def test_one_graph_with_communication_of_the_host_is_refused(self):
        result = zt.run(
            2,
            [
                self.deck,
                *zt.words_of(
                    {"run.output": self.folder / "refused", **ASYNCHRONOUS, "device.cuda_graphs": "step"}
                ),
            ],
        )
        self.assert_refused(result, 'device.cuda_graphs = "step"')

    def test_ops_that_run_later_have_no_times(self):
        for key, off in (("profile.steps", "[1,1]"), ("metrics.timeline_step", "1")):
            words = zt.words_of({"run.output": self.folder / "untimed", **ASYNCHRONOUS})
            refused = zt.run(1, [self.deck, *words, f"--{key}={off}"])
            self.assert_refused(refused, rf"{key}: what runs later than it is issued, as on GPUs, has no times here")


if __name__ == "__main__":
    zt.main()
