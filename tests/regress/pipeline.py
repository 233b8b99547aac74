"""mesh.pipeline from the command line: the losses of other meshes, checkpoints that go from any mesh to any, refusals."""

import json
import subprocess
import sys
import unittest

import traces
import ztrain_run as zt


def mesh(pipeline, shard=1, **more):
    return {"mesh.pipeline": pipeline, "mesh.shard": shard, **more}


class Pipeline(zt.Case):
    """5 layers, which no number of stages divides."""

    @classmethod
    def sections(cls):
        sections = super().sections()
        sections["model"] |= {"num_hidden_layers": 5}
        sections["batch"] = {"global": 6, "micro": 1}
        return sections

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.output = cls.train(1, "one_rank", {"checkpoint.interval": 3})
        cls.one_rank = zt.losses(cls.output)

    def agrees(self, name, ranks, overrides, tolerance=1e-5):
        output = self.train(ranks, name, overrides)
        self.assert_close(self.one_rank, zt.losses(output), tolerance, name)
        return output

    def test_losses_are_those_of_one_rank(self):
        self.agrees("two", 2, mesh(2))
        self.assertIn("mesh       2 x 1 x 1 x 1 x 1", self.last.out)
        keys = {"sharding.strategy": "FULL_SHARD", "recompute.mode": "full", "pipeline.schedule": "zb-v"}
        self.agrees("both", 4, mesh(2, 2, **keys))
        self.agrees("layers", 2, mesh(2, **{"pipeline.layers": [1, 4]}))

    def test_a_step_is_drawn_as_it_was_planned_and_done(self):
        output = self.train(2, "drawn", mesh(2, **{"metrics.timeline_step": 2, "profile.steps": [2, 3]}))
        self.assertIn("bubble", self.last.out)
        told = json.loads((output / "timeline.json").read_text())
        words = zt.words_of({"run.output": self.folder / "planned", **mesh(2)})
        plan = json.loads(zt.run(0, ["plan", self.deck, "--ranks", 2, "--json", *words]).out)
        sent = [record["bytes_sent"] for record in zt.metrics(output) if "bytes_sent" in record][0]
        self.assertGreater(sent["pipeline"], 0)
        self.assertEqual(sum(sent.values()), plan["traffic"]["bytes"])
        planned = plan["time"]["pipeline"]
        self.assertGreater(planned["bubble"], 0)
        for ranks in (told["ranks"], planned["ranks"]):
            self.assertEqual([r["rank"] for r in ranks], [0, 1])
            for rank in ranks:
                done = {(w["does"], w["micro_batch"]) for w in rank["work"]}
                self.assertEqual(done, {(does, m) for does in ("forward", "backward") for m in range(6)})
                self.assertTrue(all(a["end"] <= b["begin"] for a, b in zip(rank["work"], rank["work"][1:])))
            # All by one clock: the last micro-batch comes after the other rank has handed the first one on.
            at = [{(w["does"], w["micro_batch"]): w for w in rank["work"]} for rank in ranks]
            self.assertLess(at[0]["forward", 0]["end"], at[1]["forward", 5]["end"])
            self.assertLess(at[1]["backward", 0]["begin"], at[0]["backward", 5]["end"])
        self.check_traces(output, planned["ranks"])
        # Of those in the middle, which are compiled once, each has its own number.
        words = zt.words_of({"run.output": self.folder / "many", **mesh(2), "batch.global": 24})
        many = json.loads(zt.run(0, ["plan", self.deck, "--ranks", 2, "--json", *words]).out)
        for rank in many["time"]["pipeline"]["ranks"]:
            forward = [w["micro_batch"] for w in rank["work"] if w["does"] == "forward"]
            self.assertEqual(list(dict.fromkeys(forward)), list(range(24)))
        words = zt.words_of({"run.output": self.folder / "halves", **mesh(2), "pipeline.schedule": "zb-h1"})
        halves = json.loads(zt.run(0, ["plan", self.deck, "--ranks", 2, "--json", *words]).out)
        done = {w["does"] for rank in halves["time"]["pipeline"]["ranks"] for w in rank["work"]}
        self.assertEqual(done, {"forward", "backward_inputs", "backward_weights"})

    def check_traces(self, output, planned):
        """What each rank did in two steps is what the plan's trace has, op by op, and their files can be compared."""
        plan_file = self.folder / "planned.json"
        words = zt.words_of({"run.output": self.folder / "planned", **mesh(2)})
        self.assertEqual(zt.run(0, ["plan", self.deck, "--ranks", 2, "--alone", "--trace", plan_file, *words]).code, 0)
        facts, plan = traces.events_of(self, plan_file)
        last = max(e["ts"] + e["dur"] for e in plan["X"]) / 1e6
        self.assertAlmostEqual(last, facts["step_seconds"][0], delta=1e-8)
        files = [output / "trace" / f"rank{rank}_trace.json" for rank in (0, 1)]
        self.assertEqual(sorted((output / "trace").iterdir()), files)
        done = [traces.events_of(self, file) for file in files]
        for rank, (facts, phases) in enumerate(done):
            self.assertEqual(len(facts["step_seconds"]), 2)
            own = {phase: [e for e in events if e["pid"] == rank] for phase, events in plan.items()}
            for begin, end in zip(facts["bounds"][::2], facts["bounds"][1::2]):
                self.assertEqual(traces.ops_of(phases, begin, end), traces.ops_of(own))
            self.assertEqual([e["name"] for e in phases["X"] if e["cat"] == "run"],
                             ["step 2", "evaluation and saves", "reading data", "step 3", "evaluation and saves", "reading data"])
            peaks = [e["args"]["bytes"] for e in phases["i"] if e["args"]["tier"] == "device"]
            self.assertLessEqual(max(peaks), facts["planned_bytes"])
            self.assertGreater(min(peaks), 0.5 * max(e["args"]["bytes"] for e in own["i"]))
            ends = [e["ts"] + e["dur"] for e in own["X"] if e["cat"] in ("forward", "backward")]
            self.assertAlmostEqual(max(ends) / 1e6, planned[rank]["work"][-1]["end"], delta=1e-8)
        # By one clock: the second rank has nothing before the first has begun to send.
        sent = min(e["ts"] for e in done[0][1]["X"] if e["cat"] == "send")
        self.assertLess(sent, min(e["ts"] + e["dur"] for e in done[1][1]["X"] if e["cat"] == "recv"))
        merged = self.folder / "merged.json"
        subprocess.run([sys.executable, "-B", zt.SOURCE / "tools/merge_traces.py", *files, "-o", merged], check=True, capture_output=True)
        whole = traces.events_of(self, merged)[1]
        self.assertEqual(len(whole["X"]), len(done[0][1]["X"]) + len(done[1][1]["X"]))
        words = [sys.executable, "-B", zt.SOURCE / "tools/compare_plan.py", plan_file, *files, "--json"]
        told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        seconds = [value for facts, _ in done for value in facts["step_seconds"]]
        self.assertAlmostEqual(told["step"][1], sum(seconds) / 4)
        self.assertGreater(sum(row[1] for name, row in told["waits"].items() if name.startswith("waits for ")), 0)
        apart = [abs(measured - planned) for planned, measured in told["ops"].values()]
        self.assertEqual(apart, sorted(apart, reverse=True))
        self.assertGreater(min(told["ops"]["forward linear"]), 0)

    def test_a_schedule_may_be_a_file(self):
        lines = ["0F0,0F1,0F2,0B0,0F3,0I1,0F4,0W1,0B2,0F5,0B3,0B4,0B5"]
        lines += ["," + ",".join(f"1F{m},1I{m},1W{m}" for m in range(6))]
        path = self.folder / "own.csv"  # beside the deck, to which its name is relative
        path.write_text("\n".join(lines) + "\n")
        expected = zt.losses(self.train(2, "named", mesh(2)))
        self.assert_same(expected, zt.losses(self.train(2, "file", mesh(2, **{"pipeline.schedule": path}))))
        missing = {"pipeline.schedule": self.folder / "none.csv"}
        self.refuse(2, mesh(2, **missing), r"none\.csv")
        own = {"pipeline.schedule": path}
        self.refuse(3, mesh(3, **own), r"own\.csv has lines for 2 ranks, and mesh\.pipeline is 3")
        words = zt.words_of({"run.output": self.folder / "refused", "batch.global": 4, **mesh(2, **own)})
        said = r"schedule of 6 micro-batches, and a step has 4: a batch\.global of 6 has as many"
        self.assert_refused(zt.run(2, [self.deck, *words]), said, times=2)
        path.write_text(lines[0] + "\n1F0,1F\n")
        self.refuse(2, mesh(2, **own), r"own\.csv: line 2: '1F' is no action")

    def test_checkpoints_go_from_any_mesh_to_any(self):
        split = self.train(2, "split", mesh(2, **{"checkpoint.interval": 3}))
        self.assertEqual(zt.saved_steps(split / "checkpoints"), [3, 6])
        vee = self.train(2, "vee", mesh(2, **{"pipeline.schedule": "zb-v", "checkpoint.interval": 3}))
        for name, ranks, overrides, source in (
            ("to_vee", 2, mesh(2, **{"pipeline.schedule": "dualpipe-v"}), split),
            ("vee_to_three", 3, mesh(3), vee),
        ):
            resume = {"checkpoint.resume": str(source / "checkpoints" / "step_3")}
            found = zt.losses(self.train(ranks, name, {**overrides, **resume}))
            expected = {step: loss for step, loss in self.one_rank.items() if step > 3}
            self.assert_close(expected, found, 1e-5, name)

    def test_exports_are_the_same_file(self):
        """Steps that move no weight, from one checkpoint."""
        source = self.train(1, "still", {**zt.STILL, "run.steps": 1})
        resume = {"checkpoint.resume": str(source / "checkpoints" / "step_1"), "run.steps": 2, **zt.STILL}
        written = []
        vee = {"pipeline.schedule": "zb-v"}
        meshes = (("whole", 1, mesh(1)), ("three", 3, mesh(3)), ("vee", 2, mesh(2, **vee)))
        for name, ranks, overrides in meshes:
            folder = self.folder / f"export_{name}"
            self.train(ranks, f"exports_{name}", {**overrides, **resume, "checkpoint.export": folder})
            written.append({f.name: f.read_bytes() for f in folder.iterdir() if f.suffix == ".safetensors"})
        self.assertTrue(written[0])
        self.assertTrue(all(files == written[0] for files in written))

    def test_tied_embeddings_may_be_of_two_stages(self):
        tied = {"model.tie_word_embeddings": True, "checkpoint.interval": 3}
        expected = zt.losses(self.train(1, "tied_whole", tied))
        split = self.train(4, "tied_split", {**tied, **mesh(2, 2), "debug.asynchronous": True, "debug.poison": True})
        self.assert_close(expected, zt.losses(split), 1e-5)
        later = {step: loss for step, loss in expected.items() if step > 3}
        resume = {"checkpoint.resume": str(split / "checkpoints" / "step_3")}
        self.assert_close(later, zt.losses(self.train(3, "tied_on", {**tied, **mesh(3), **resume})), 1e-5)

    def refuse(self, ranks, overrides, *patterns):
        words = zt.words_of({"run.output": self.folder / "refused", **overrides})
        self.assert_refused(zt.run(ranks, [self.deck, *words]), *patterns, times=ranks)
        self.assert_refused(zt.run(0, ["check", self.deck, *words]), *patterns)  # which knows no ranks

    def test_what_does_not_go_together_is_said(self):
        few = {"model.num_hidden_layers": 3}  # so that 4 ranks, which the other tests take, are too many
        self.refuse(4, mesh(4, **few), r"mesh\.pipeline \(4\) makes 4 stages, and the model has 3 layers")
        self.refuse(
            2, mesh(2, **{"pipeline.layers": [2, 2]}), r"pipeline\.layers has 4 layers in all, and the model has 5"
        )
        self.refuse(2, mesh(2, **{"pipeline.layers": [5]}), r"pipeline\.layers has 1 numbers, and .* makes 2 stages")
        self.refuse(2, mesh(2, **{"pipeline.stages_per_rank": 2}), r'with pipeline\.schedule = "1f1b" every rank has 1')
        for steps in ([3, 2], [1.5, 2], [2]):
            self.refuse(2, mesh(2, **{"profile.steps": steps}), r"profile\.steps = \[.*\]: must be \[\] or two whole numbers")
        self.refuse(2, mesh(2, **{"pipeline.schedule": "2f2b"}), r"pipeline\.schedule .*one of 1f1b, gpipe")


if __name__ == "__main__":
    unittest.main(verbosity=2)
