"""The same asked of the ztrain executable."""
import json
import pathlib
import subprocess

import numpy as np

import data

STEPS = 20
# Deck keys of all runs but STILL, which both sides follow. Clipping acts on nearly all steps.
SETTINGS = {"run.steps": STEPS, "data.sequence": data.SEQUENCE, "data.validation_fraction": 0.0,
            "precision.preset": "fp32", "optimizer.name": "adamw", "optimizer.lr": 1e-3,
            "optimizer.betas": [0.9, 0.95], "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.1,
            "optimizer.max_norm": 0.25, "schedule.name": "constant"}
# An epoch is a step.
WINDOWS = {**SETTINGS, "data.format": "bin-uint16", "batch.global": data.WINDOWS}
# The same, and an eps beside which the gradient's scale counts: with a small one AdamW hides it.
DOCUMENTS = {**SETTINGS, "data.format": "hdf5", "data.packing": "documents", "data.long_documents": "split",
             "batch.global": data.ROWS, "batch.micro": data.MICRO, "optimizer.eps": 1e-4}
# Experts are balanced within a micro-batch, which has all windows here: their order is another in each epoch.
BALANCED = {**WINDOWS, "batch.micro": data.WINDOWS, "experts.balance": "model", "optimizer.eps": 1e-4}
# A step too small to change any bit, also of a zero.
STILL = {"run.steps": 1, "optimizer.lr": 1e-37, "optimizer.eps": 1e9, "optimizer.weight_decay": 0.0}


def partial(projection):
    return {"model.trainable": ["model.layers.1.*", "model.embed_tokens.weight", f"*.{projection}.*"],
            "model.frozen": ["*norm.weight"]}


def lora(targets, dropout=0.0):
    return {**DOCUMENTS, "lora.rank": 4, "lora.alpha": 8, "lora.dropout": dropout, "lora.targets": targets,
            "optimizer.lr": 1e-2}


class Ztrain:
    def __init__(self, executable, launcher, ranks):
        self.executable, self.launcher, self.ranks = executable, launcher.split(), ranks

    def call(self, *words, parallel=False):
        launcher = [*self.launcher, "-np", self.ranks] if parallel else []
        command = [str(w) for w in [*launcher, self.executable, *words]]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
        return result.stdout

    def train(self, model, tokens, output, *more_keys):
        """(losses, gradient norms, last checkpoint) of a run from a model's folder; of deck keys, later ones win."""
        deck = pathlib.Path(f"{output}.toml")
        keys = {"data.train": [str(tokens)], "model.from": str(model), "checkpoint.resume": "none"}
        for more in more_keys:
            keys.update(more)
        deck.write_text(deck_text(keys))
        self.call(deck, f"--run.output={output}", parallel=True)
        records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        steps = [r for r in records if "grad_norm" in r]
        return [r["loss"] for r in steps], [r["grad_norm"] for r in steps], output / "checkpoints" / f"step_{len(steps)}"

    def export(self, checkpoint, folder, *words):
        self.call("export", checkpoint, "--to", folder, *words)
        return folder

    def generate(self, model, prompt, *words):
        ids = ",".join(map(str, prompt))
        return self.call("generate", model, "--dtype", "fp32", "--prompt-ids", ids, "--chunk", data.CHUNK,
                         "--max-length", data.PROMPT + data.NEW_TOKENS, *words,
                         parallel=True)

    def logits(self, model, prompt, file):
        self.generate(model, prompt, "--tokens", 0, "--logits", file)
        return np.fromfile(file, "<f4").reshape(len(prompt), -1)

    def evaluate(self, model, *words):
        """Of a model's folder or a checkpoint: what `ztrain evaluate --json` prints."""
        return json.loads(self.call("evaluate", model, "--dtype", "fp32", "--json", *words, parallel=True))

    def losses(self, model, *files):
        return [file["loss"] for file in self.evaluate(model, "--sequence", data.SEQUENCE, "--data", *files)["files"]]

    def log_probabilities(self, model, file):
        return [item["log_probabilities"] for item in self.evaluate(model, "--choices", file)["items"]]

    def continue_greedily(self, model, prompt, count):
        found = self.generate(model, prompt, "--tokens", count, "--temperature", 0, "--eos", -1)
        return [int(i) for i in found.split()]


def deck_text(keys):
    """TOML of {"run.steps": 3}."""
    sections = {}
    for key, value in keys.items():
        section, member = key.split(".")
        sections.setdefault(section, []).append(f"{member} = {json.dumps(value)}\n")
    return "".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items())
