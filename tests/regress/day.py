"""The day of someone who fine-tunes: from the configuration of another program and a table of questions to a model that
transformers and PEFT read, each step with the command that a user types."""

import importlib.util
import json
import subprocess
import sys

import hf_model as hf
import ztrain_run as zt

SFT = """\
model_name_or_path: {base}
dataset_name: {data}
max_length: 48
packing: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-03
lr_scheduler_type: linear
warmup_ratio: 0.1
max_steps: 12
eval_strategy: steps
eval_steps: 4
save_strategy: steps
save_steps: 4
load_best_model_at_end: true
fp16: false
output_dir: {output}
"""
FSDP = """\
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
num_processes: 2
"""
ADAPTERS = {"lora.rank": 4, "lora.alpha": 16, "optimizer.lr": 2e-2}


class Day(zt.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = cls.folder / "base"
        cls.train(2, "pretrained", {"run.steps": 4, "checkpoint.export": cls.base})

    def command(self, *words, ranks=0):
        result = zt.run(ranks, words)
        self.assertEqual(result.code, 0, str(result))
        return result.out

    def prepare(self, source, output, *words):
        command = [sys.executable, zt.SOURCE / "tools" / "prepare_data.py", source, "--tokenizer", "bytes", "--output", output, *words]
        found = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return self.folder / output

    def loss(self, model, *words, ranks=2):
        found = self.command("evaluate", model, "--data", "answers.validation.h5", "--sequence", 48, "--dtype", "fp32", "--json", *words, ranks=ranks)
        return json.loads(found)["loss"]

    def test_the_day(self):
        # Data: a table of questions with answers, and pairs of answers of which one is better.
        sums = [(f"{n} and {n}?", f"{n + n}.", "No idea.") for n in range(10, 90)]
        (self.folder / "answers.csv").write_text("prompt,completion\n" + "".join(f"{q},{a}\n" for q, a, _ in sums))
        lines = [json.dumps({"prompt": q, "chosen": good, "rejected": bad}) for q, good, bad in sums]
        (self.folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
        answers = self.prepare("answers.csv", "answers.h5", "--validation", "0.2")
        pairs = self.prepare("pairs.jsonl", "pairs.h5")

        # Full fine-tuning, with the deck that the files of TRL and Accelerate become.
        (self.folder / "sft.yaml").write_text(SFT.format(base=self.base, data=answers, output=self.folder / "full"))
        (self.folder / "fsdp.yaml").write_text(FSDP)
        self.command("translate", "sft.yaml", "fsdp.yaml", "--to", "full.toml")
        deck = self.folder / "full.toml"
        data = {"data.train": answers, "data.validation": self.folder / "answers.validation.h5", "precision.preset": "fp32"}
        exported = {"checkpoint.export": self.folder / "best", "checkpoint.export_from": "best"}
        self.command("check", deck, "--ranks", 2, *zt.words_of(data))
        full = self.train(2, "full", {**data, **exported}, deck)
        before, after = self.loss(self.base), self.loss(self.folder / "best", ranks=1)
        self.assertLess(after, before - 0.3)
        lowest = min(zt.validation_losses(full).values())
        self.assertAlmostEqual(after, lowest, delta=1e-5)

        # Longer, at another rate; then until nothing improves any more.
        more = {**data, "checkpoint.resume": "auto", "run.steps": 16, "optimizer.lr": 5e-4}
        self.assert_refused(zt.run(2, [deck, *zt.words_of({**more, "run.output": full})]), r"checkpoint\.override = \[\"optimizer\.lr\"\]")
        self.train(2, "full", {**more, "checkpoint.override": ["optimizer.lr"]}, deck)
        self.assertIn("optimizer.lr", self.last.out)
        self.assertEqual(max(zt.losses(full)), 16)
        still = {"model.from": full / "checkpoints" / "step_16", "optimizer.lr": 1e-30, "evaluation.interval": 1, "evaluation.patience": 2}
        ended = self.train(2, "ended", {**data, **still, "checkpoint.resume": "none"}, deck)
        self.assertEqual(max(zt.losses(ended)), 3, "two evaluations without an improvement behind the first")

        # Adapters, beside weights as they are and in 4 bits; then preferences between answers.
        kept = {}
        for name, keys in (("lora", {}), ("qlora", {"lora.quantization": "nf4"})):
            output = self.train(2, name, {**data, **ADAPTERS, **keys, "evaluation.interval": 0, "checkpoint.keep_best": 0}, deck)
            kept[name] = output / "checkpoints" / "step_12"
            self.assertLess(self.loss(kept[name]), before - 0.2, name)
            self.assertFalse([t for t in zt.tensors(kept[name]) if t.endswith("_proj.weight")], name)
            self.command("export", kept[name], "--adapter", "--to", f"{name}_adapter", ranks=2)
            self.assertAlmostEqual(self.loss(f"{name}_adapter", *(["--base", self.base])), self.loss(kept[name]), delta=0.3 if keys else 1e-5)
        self.command("export", kept["lora"], "--to", "merged", "--dtype", "fp32", ranks=2)
        self.assertAlmostEqual(self.loss("merged"), self.loss(kept["lora"]), delta=1e-5)
        preferred = {"data.train": pairs, "data.validation": "", "model.from": self.folder / "merged", "preference.loss_type": "sigmoid"}
        dpo = self.train(2, "dpo", {**preferred, "precision.preset": "fp32", "data.validation_fraction": 0.1}, deck)
        margins = [r["rewards_margins"] for r in zt.metrics(dpo) if "rewards_margins" in r and "loss" in r]
        self.assertEqual(margins[0], 0)
        self.assertGreater(margins[-1], 0.05)

        # Questions with choices, and what other programs read.
        choices = [json.dumps({"context": q, "choices": [bad, good], "answer": 1}) for q, good, bad in sums[:20]]
        (self.folder / "choices.jsonl").write_text("\n".join(choices) + "\n")
        found = json.loads(self.command("evaluate", dpo / "checkpoints" / "step_12", "--choices", "choices.jsonl", "--json", ranks=2))
        self.assertGreater(found["acc"], 0.8)
        names = set(hf.read_folder(self.folder / "best"))
        self.assertEqual(names, set(hf.read_folder(self.base)))
        self.read_elsewhere(answers.with_suffix(".validation.h5"), after)

    def read_elsewhere(self, data, expected):
        """transformers and PEFT read the folders, if they are installed; regress/golden has their numbers otherwise."""
        if not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "peft")):
            return
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        ids = torch.tensor([list(b"40 and 40?80.")])
        for folder, adapter in (("best", None), (self.base, "lora_adapter")):
            model = AutoModelForCausalLM.from_pretrained(self.folder / folder, dtype=torch.float32)
            model = PeftModel.from_pretrained(model, self.folder / adapter) if adapter else model
            theirs = float(model(ids, labels=ids).loss)
            (self.folder / "line.txt").write_bytes(bytes(ids[0].tolist()))
            ours = self.command("evaluate", adapter or folder, *(["--base", self.base] if adapter else []), "--data", "line.txt", "--dtype", "fp32", "--json")
            self.assertAlmostEqual(json.loads(ours)["loss"], theirs, delta=1e-5)


if __name__ == "__main__":
    zt.main()
