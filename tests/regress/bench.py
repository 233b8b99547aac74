"""ztrain bench: its numbers add up, and it refuses what it cannot do."""

import json
import re
import tomllib

import ztrain_run as zt

# No data: a benchmark reads none.
MODEL = {**zt.SMALL_MODEL, "num_hidden_layers": 1}


class Bench(zt.Case):
    @classmethod
    def sections(cls):
        return {
            "run": {"steps": 100},
            "data": {"sequence": 32},
            "model": dict(MODEL),
            "batch": {"global": 8, "micro": 2},
            "precision": {"preset": "bf16"},
            "cluster": {"peak_tflops": 0.5},
        }

    def bench(self, ranks, *words, deck=None):
        path = self.folder / "bench.json"
        result = zt.run(ranks, ["bench", deck or self.deck, "--json", path, *words])
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.said, "", str(result))
        return result.out, json.loads(path.read_text())

    def assert_near(self, found, expected, what):
        self.assertLessEqual(abs(found - expected), 1e-9 * abs(expected), f"{what}: {found} and {expected}")

    def assert_adds_up(self, b, ranks, tokens):
        self.assertEqual((b["ranks"], b["tokens_per_step"]), (ranks, tokens))
        step = b["step_seconds"]
        self.assertEqual(sorted(step["all"])[len(step["all"]) // 2], step["median"])
        self.assertEqual((min(step["all"]), max(step["all"])), (step["fastest"], step["slowest"]))
        self.assert_near(b["tokens_per_s"] * step["median"], tokens, "tokens of a step")
        self.assert_near(b["tokens_per_s_per_rank"] * ranks, b["tokens_per_s"], "tokens of a rank")
        self.assert_near(b["tflops"]["model"] * ranks * 1e12, b["tokens_per_s"] * b["flops_per_token"], "FLOPs")
        self.assert_near(b["mfu"], b["tflops"]["model"] / 0.5, "MFU")
        self.assert_near(b["ceiling"]["share"], b["tflops"]["model"] / b["ceiling"]["tflops"], "ceiling")
        self.assertGreater(b["ceiling"]["copy_gb_per_s"], 0)
        parts = sum(b["seconds"].values()) + b["exposed_communication"]
        if not b["asynchronous"]:
            self.assertEqual(b["timed_step_seconds"], step["median"])
            self.assertLessEqual(parts, step["median"])
            self.assert_near(parts + b["other_seconds"], step["median"], "parts of a step")
        for kind in ("forward", "backward", "norm", "optimize"):
            self.assertGreater(b["seconds"][kind], 0, kind)
        memory = b["memory"]
        self.assertGreater(memory["planned"], 0)
        self.assertLessEqual(memory["peak"], 1.05 * (memory["planned"] + memory["outside"]))
        self.assertTrue(2 < b["loss"] < 8, "random tokens of 257")

    def assert_kernels_add_up(self, b, ranks):
        kernels = {(k["type"], k["operands"], k["communicates"]): k for k in b["kernels"]}
        self.assertEqual([k["total_seconds"] for k in b["kernels"]],
                         sorted((k["total_seconds"] for k in b["kernels"]), reverse=True))
        for k in b["kernels"]:
            self.assertGreater(k["seconds"], 0, k)
            self.assert_near(k["total_seconds"], k["count"] * k["seconds"], k["type"])
        self.assertEqual(any(k["communicates"] for k in b["kernels"]), ranks > 1)
        micros = 8 // 2 // ranks
        count = {t: sum(k["count"] for k in b["kernels"] if k["type"] == t) for t in {k["type"] for k in b["kernels"]}}
        for kind in ("attention", "attention_grad", "gated_activation"):
            self.assertEqual(count[kind], micros, kind)
        self.assertEqual(count["linear"], 4 * micros, "queries, keys and values are one; gate and up")
        # The head's loss and its gradient are one op, whose products are as large as the logits.
        logits = [k for k in b["kernels"] if k["type"] == "head_loss_grad"]
        for k in logits:
            self.assert_near(k["tflops"] * 1e12 * k["seconds"], 6 * 64 * 32 * 257, "FLOPs of the head")
        self.assertTrue(kernels)

    def test_one_rank(self):
        text, b = self.bench(0, "--steps=5", "--warmup=1", "--kernels")
        self.assert_adds_up(b, 1, 8 * 32)
        self.assertEqual(len(b["step_seconds"]["all"]), 5)
        self.assert_kernels_add_up(b, 1)
        for word in ("tokens/s", "MFU", "ceiling", "\nproducts  ", "memory", "forward", "optimize", "attention_grad"):
            self.assertIn(word, text)
        shown = float(re.search(r"tokens/s +([\d.]+)", text).group(1))
        self.assertAlmostEqual(shown, b["tokens_per_s"], delta=0.06)

    def test_ranks(self):
        for strategy in ("FULL_SHARD", "zero1"):
            _, b = self.bench(2, "--steps=4", "--kernels", f"--sharding.strategy={strategy}")
            self.assert_adds_up(b, 2, 8 * 32)
            self.assert_kernels_add_up(b, 2)
            self.assertGreater(b["seconds"]["reduce"], 0)

    def test_a_device_that_works_later(self):
        for ranks in (1, 2):
            _, b = self.bench(ranks, "--steps=3", "--kernels", "--debug.asynchronous=true")
            self.assertTrue(b["asynchronous"])
            self.assert_adds_up(b, ranks, 8 * 32)
            self.assert_kernels_add_up(b, ranks)

    def test_the_model_of_the_report_is_the_decks(self):
        _, b = self.bench(0, "--steps=1", "--warmup=0", "--batch.global=2")
        self.assertEqual({k: b["model"][k] for k in MODEL}, MODEL)
        self.assertEqual((b["sequence"], b["micro"], b["accumulation"]), (32, 2, 1))
        self.assertEqual(b["state"]["parameters"], "bf16")
        self.assertEqual(b["kernels"], [])

    def test_without_a_known_peak_there_is_no_mfu(self):
        deck = self.write_deck("no_peak", {"cluster.peak_tflops": None})
        text, b = self.bench(0, "--steps=1", deck=deck)
        self.assertIsNone(b["mfu"])
        self.assertIsNone(b["peak"]["tflops"])
        self.assertIn("cluster.peak_tflops gives it", text)

    def test_the_vocabulary_is_the_datas_where_the_deck_is_silent(self):
        deck = self.write_deck("bytes", {"model.vocab_size": None, "data.train": [str(self.text)]})
        _, b = self.bench(0, "--steps=1", "--warmup=0", deck=deck)
        self.assertEqual(b["model"]["vocab_size"], 257)

    def test_skipped_steps_are_warned_of(self):
        text, b = self.bench(0, "--steps=4", "--warmup=2", "--optimizer.lr=1e30")
        self.assertRegex(text, r"(?m)^steps +warning: 4 of 4 timed steps were skipped, .*optimizer\.lr")
        self.assertRegex(text, r"(?m)^loss +not finite \(the step was skipped\)$")
        self.assertIsNone(b["loss"])
        self.assertIn(("steps", True), [(note["what"], note["warning"]) for note in b["notes"]])
        text, b = self.bench(0, "--steps=1")
        self.assertNotIn("skipped", text)

    def test_calibration(self):
        result = zt.run(2, ["bench", "--calibrate", "--quick"])
        self.assertEqual(result.code, 0, str(result))
        machine = self.folder / "machine.toml"
        machine.write_text(result.out)
        read = tomllib.loads(result.out)
        self.assertEqual(sorted(read["ranks_on_node"]), ["1", "2"])
        for ranks, part in read["ranks_on_node"].items():
            for kernel in ("linear", "linear_grad_weight", "attention_grad", "rmsnorm", "optimizer_step"):
                self.assertIn("fp32", part["kernel"][kernel], f"{kernel} with {ranks}")
            self.assertEqual("all_gather" in part["kernel"], ranks == "2")

        def planned(text, *words):
            machine.write_text(text)
            return zt.run(0, ["plan", self.deck, "--ranks=2", "--json", "--alone", "--data.train=none.bin", "--machine", machine, *words])

        def step(text):
            plan = planned(text)
            self.assertEqual(plan.code, 0, str(plan))
            return json.loads(plan.out)["time"]["step_seconds"]

        slower = re.sub(r"(?m)^(fixed|hop) = (\S+)", lambda m: f"{m[1]} = {2 * float(m[2])}",
                        re.sub(r"(?m)^(bandwidth|rate) = (\S+)", lambda m: f"{m[1]} = {float(m[2]) / 2}", result.out))
        self.assert_near(step(slower), 2 * step(result.out), "seconds of a machine of half the speed")
        self.assert_refused(planned(result.out.replace("bandwidth", "bandwith")), r"kernel\.\S+ has no key bandwith: legal are fixed, bandwidth")
        self.assert_refused(planned(result.out[: result.out.rindex("\n# ")]), r"it has \d+ sections .* and says sections = \d+: it was cut")
        self.assert_refused(planned(result.out[: result.out.rindex(" = ") + 3]), r"machine\.toml:\d+: not valid TOML")
        for words, pattern in (
            ([self.deck, "--calibrate"], r"--calibrate has decks of its own: leave \S+ out"),
            (["--calibrate", "--kernels"], "--calibrate takes no options but --quick and --json"),
            ([self.deck, "--quick"], "--quick is for --calibrate"),
        ):
            self.assert_refused(zt.run(0, ["bench", *words]), pattern)

    def test_refusals(self):
        def refused(ranks, *words, pattern):
            self.assert_refused(zt.run(ranks, ["bench", *words]), pattern)

        refused(0, self.deck, "--batch.globl=4", pattern="batch.global")
        refused(2, self.deck, "--batch.global=6", pattern=r"batch\.global \(6\)")
        refused(0, self.deck, "--json", self.folder / "nowhere" / "b.json", pattern="--json: cannot write")
        deck = self.deck.read_bytes()
        refused(0, self.deck, "--json", self.deck, pattern=r"--json: '\S+' would be written over, and this command reads")
        self.assertEqual(self.deck.read_bytes(), deck)
        refused(0, self.folder / "nothing.toml", pattern="the deck: cannot read")
        nowhere = {"model.vocab_size": None, "data.train": [str(self.folder / "nowhere" / "*.txt")]}
        refused(0, self.write_deck("no_vocabulary", nowhere), pattern=r"matches no file\n.*: give them, or model.vocab_size")
        for words in (["--steps=0"], ["--steps=many"], []):
            result = zt.run(0, ["bench", *([self.deck] if words else []), *words])
            self.assertEqual(result.code, 2, str(result))
            self.assertIn("ztrain bench:", result.err)


if __name__ == "__main__":
    zt.main()
