"""Each comparison of one model: {column: difference}, for the columns of BOUNDS."""
import math

import numpy as np
import torch

import data
import models
import quantized
import torch_side
import ztrain_side as zt

# What each column is: against_transformers.py. Those that may not be above 0 are counts.
BOUNDS = {"logits": 1e-4, "greedy": 0, "evaluated": 1e-5, "choices": 1e-5, "windows": 1e-5, "packed": 1e-5, "norm": 1e-5, "balanced": 1e-5, "frozen": 1e-5,
          "LoRA": 1e-5, "DoRA": 1e-5, "QLoRA": 1e-5, "codes": 0, "merged": 1e-4, "PEFT": 1e-5, "weights": 1e-5, "bits": 0}


def apart(ours, theirs):
    if len(ours) != len(theirs):
        return math.inf
    return largest(np.array(ours) / np.array(theirs) - 1)


def setting(config, key):
    """The older name of rope_type, which Phi 3's files have, says the same."""
    value = getattr(config, key, None)
    return {k: v for k, v in value.items() if k != "type"} if isinstance(value, dict) else value


def flat_bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def largest(difference):
    """NaN where one is there."""
    return float(abs(difference).max())


class Comparison:
    """One model, saved by transformers into a folder in which ztrain works."""

    def __init__(self, ztrain, row, folder):
        self.ztrain, self.row, self.folder = ztrain, row, folder
        self.saved = folder / "saved"
        original = row.make()
        original.save_pretrained(self.saved, max_shard_size="100KB")
        self.original = original
        tokens, self.windows = data.windows(row.vocabulary)
        self.prompt = tokens[:data.PROMPT].tolist()
        self.tokens, self.documents_file = folder / "tokens.bin", folder / "documents.h5"
        data.write_windows(self.tokens, tokens)
        docs = data.documents(row.vocabulary)
        data.write_documents(self.documents_file, docs)
        self.documents = data.alone(docs)

    def load(self):
        # Read back in fp32 rather than widened: rotary frequencies would stay rounded to the saved dtype.
        return torch_side.load(self.saved)

    def train(self, name, keys, *more_keys):
        return self.ztrain.train(self.saved, self.documents_file, self.folder / name, self.row.about.deck, keys,
                                 *more_keys)

    def export(self, checkpoint, name, *words):
        return self.ztrain.export(checkpoint, self.folder / name, *words)

    def generation(self):
        model = self.load()
        ours = self.ztrain.logits(self.saved, self.prompt, self.folder / "logits.bin")
        found = self.ztrain.continue_greedily(self.saved, self.prompt, data.NEW_TOKENS)
        expected = torch_side.continue_greedily(model, self.prompt, data.NEW_TOKENS)
        other = sum(a != b for a, b in zip(found, expected)) + abs(len(found) - len(expected))
        return {"logits": largest(ours - torch_side.logits(model, self.prompt)), "greedy": other}

    def evaluation(self):
        model, items, file = self.load(), data.choices(self.row.vocabulary), self.folder / "choices.jsonl"
        data.write_choices(file, items)
        expected = [torch_side.mean_loss(model, chunks) for chunks in (self.windows, self.documents)]
        ours = self.ztrain.losses(self.saved, self.tokens, self.documents_file)
        pairs = zip(self.ztrain.log_probabilities(self.saved, file), items, strict=True)
        choices = [apart(found, torch_side.log_probabilities(model, item)) for found, item in pairs]
        return {"evaluated": apart(ours, expected), "choices": largest(np.array(choices))}

    def import_and_export(self):
        _, _, still = self.train("still", zt.DOCUMENTS, zt.STILL)
        folder = self.export(still, "returned", "--dtype", models.SHORT[self.row.dtype], "--max-shard-size", "0.0001")
        returned = torch_side.load(folder, self.row.dtype)
        keys = [*models.BASE, *models.OWN_KEYS, "rope_parameters", "rope_scaling", "model_type"]
        one, other = self.original.config, returned.config
        differ = [k for k in keys if hasattr(one, k) and setting(one, k) != setting(other, k)]
        pairs = zip(self.original.state_dict().items(), returned.state_dict().items(), strict=True)
        # transformers may load a router in fp32.
        differ += [k for (k, a), (_, b) in pairs if not torch.equal(flat_bytes(a.to(b.dtype)), flat_bytes(b))]
        return {"bits": len(differ)}

    def training(self):
        model = self.load()
        losses, _ = torch_side.train(model, self.windows, zt.WINDOWS)
        ours, _, _ = self.ztrain.train(self.saved, self.tokens, self.folder / "windows", self.row.about.deck,
                                            zt.WINDOWS)
        found = {"windows": apart(ours, losses)}
        model = self.load()
        losses, norms = torch_side.train(model, self.documents, zt.DOCUMENTS)
        ours, our_norms, trained = self.train("packed", zt.DOCUMENTS)
        return {**found, "packed": apart(ours, losses), "norm": apart(our_norms, norms),
                "weights": self.weights_apart(trained, model, "trained")}

    def weights_apart(self, checkpoint, model, name):
        exported = torch_side.load(self.export(checkpoint, name, "--dtype", "fp32")).state_dict()
        return largest(np.array([largest(exported[k] - v) / largest(v) for k, v in model.state_dict().items()]))

    def balanced(self):
        """Losses, norms and weights of steps that balance experts too, in one micro-batch whose tokens ranks share."""
        if not hasattr(self.original.config, "router_aux_loss_coef"):
            return {}
        model = self.load()
        losses, norms = torch_side.train(model, self.windows, zt.BALANCED)
        ours, our_norms, trained = self.ztrain.train(self.saved, self.tokens, self.folder / "balanced", zt.BALANCED,
                                                     {"mesh.context": self.ztrain.ranks})
        weights = self.weights_apart(trained, model, "balanced_trained")
        return {"balanced": largest(np.array([apart(ours, losses), apart(our_norms, norms), weights]))}

    def frozen(self):
        partial = zt.partial(self.row.about.whole)
        model = torch_side.freeze(self.load(), *partial.values(), self.row.our_name)
        losses, _ = torch_side.train(model, self.documents, zt.DOCUMENTS)
        ours, _, _ = self.train("frozen", zt.DOCUMENTS, partial)
        return {"frozen": apart(ours, losses)}

    def adapters(self):
        if not self.row.targets:
            return {}
        keys = zt.lora(self.row.targets)
        _, _, still = self.train("lora_still", keys, zt.STILL)
        start = self.export(still, "lora_start", "--adapter", "--dtype", "fp32")
        peft_model = torch_side.load_adapter(self.load(), start, trainable=True)
        losses, _ = torch_side.train(peft_model, self.documents, keys)
        ours, _, trained = self.train("lora", keys)
        lora_apart = apart(ours, losses) if self.dropout_trains(ours) else math.inf
        return {"LoRA": lora_apart, "merged": self.merged(trained)}

    def magnitudes(self):
        """Losses of adapters with magnitudes, also beside a base in few bits, and a tenth of what `merged` is for them."""
        if not self.row.magnitudes:
            return {}
        found = []
        for form in ("", "nf4") if self.row.quantizes else ("",):
            keys = {**zt.lora(self.row.targets), "lora.dora": True, **quantized.FORMS.get(form, {})}
            base = quantized.with_codes(self.load(), form) if form else self.load()
            losses, _ = torch_side.train(torch_side.with_magnitudes(base, self.folder / "lora_start"), self.documents, keys)
            ours, _, trained = self.train(f"dora_{form}", keys)
            found.append(apart(ours, losses))
            if not form:
                if not self.dropout_trains(ours, {"lora.dora": True}):
                    found.append(math.inf)
                found.append(self.merged(trained, "dora_") / 10)
        return {"DoRA": max(found)}

    def quantized(self):
        """Losses with adapters beside a base in few bits, and elements of that base that are not bitsandbytes' own."""
        if not self.row.quantizes:
            return {}
        losses_apart, others = [], 0
        for form, more in quantized.FORMS.items():
            keys = {**zt.lora(self.row.targets), **more}
            _, _, still = self.train(f"{form}_still", keys, zt.STILL)
            start = self.export(still, f"{form}_start", "--adapter", "--dtype", "fp32")
            base = quantized.with_codes(self.load(), form)
            ours = torch_side.load(self.export(still, f"{form}_base", "--dtype", "fp32"))
            for name, module in quantized.quantized_layers(base).items():
                others += (flat_bytes(ours.get_submodule(name).weight) != flat_bytes(module.weight)).sum().item()
            losses, _ = torch_side.train(torch_side.load_adapter(base, start, trainable=True), self.documents, keys)
            found, _, _ = self.train(form, keys)
            losses_apart.append(apart(found, losses))
            if form in ("nf4", "fp4") and quantized.has_whole_blocks(base):
                theirs = torch_side.load_adapter(quantized.in_bitsandbytes(self.saved, form), start, trainable=True)
                losses_apart.append(apart(found, torch_side.train(theirs, self.documents, keys)[0]))
        return {"QLoRA": largest(np.array(losses_apart)), "codes": others}

    def from_peft(self):
        """Losses of a folder that PEFT saved: rsLoRA, of some models with DoRA, beside a head that is trained too. Then
        PEFT's logits of what ztrain exports, against the merged export."""
        targets = [target for target in self.row.targets if "experts." not in target and "*" not in target]
        if not targets:
            return {}
        whole = [] if self.original.config.tie_word_embeddings else ["lm_head"]
        model, folder = torch_side.new_adapter(self.load(), targets, whole, self.row.magnitudes), self.folder / "peft"
        model.save_pretrained(folder)
        keys = {**zt.lora(targets), "optimizer.lr": 1e-3}
        losses, _ = torch_side.train(model, self.documents, keys)
        silent = {key: value for key, value in keys.items() if not key.startswith("lora.")}
        ours, _, trained = self.ztrain.train(folder, self.documents_file, self.folder / "from_peft", self.row.about.deck,
                                             silent, {"model.base": str(self.saved)})
        return {"PEFT": max(apart(ours, losses), self.merged(trained, "peft_") / 10)}

    def merged(self, trained, prefix=""):
        """Logits of the adapters in PEFT against those of the merged export and of what ztrain itself generates."""
        adapter = self.export(trained, prefix + "adapter", "--adapter", "--dtype", "fp32")
        expected = torch_side.logits(torch_side.load_adapter(self.load(), adapter), self.prompt)
        if not largest(expected - torch_side.logits(self.load(), self.prompt)) > 0.01:
            return math.inf     # adapters that do nothing prove nothing
        merged = torch_side.load(self.export(trained, prefix + "merged", "--dtype", "fp32"))
        own = self.ztrain.logits(trained, self.prompt, self.folder / f"{prefix}lora_logits.bin")
        return largest(np.stack([torch_side.logits(merged, self.prompt), own]) - expected)

    def dropout_trains(self, without, more=None):
        """There is nothing to compare masks with; but the losses fall, and are not those without dropout."""
        targets = [target for target in self.row.targets if "experts." not in target] or ["q_proj"]  # have no dropout
        losses, _, _ = self.train("dropout", zt.lora(targets, dropout=0.1), more or {})
        return all(map(math.isfinite, losses)) and losses[-1] < losses[0] and losses[-1] != without[-1]

    def run(self):
        found = {}
        for part in (self.generation, self.evaluation, self.import_and_export, self.training, self.balanced, self.frozen,
                     self.adapters, self.magnitudes, self.quantized, self.from_peft):
            found.update(part())
        return found
