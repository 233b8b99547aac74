"""Writes tests/regress/golden: tiny models, what they train on, and what transformers and PEFT make of them.

    tokens.bin, documents.h5       shared by the models, as are the items of choices.jsonl
    MODEL/                         config.json and model.safetensors, as transformers saves them
    MODEL/lora/                    the adapters that ztrain draws (its draw depends on run.seed and names alone)
    MODEL/golden.json              runs: deck keys and the losses of PyTorch's steps; logits of the first and the last
                                   tokens of a prompt, and the tokens that follow it greedily; log-probabilities of choices
"""
import json
import shutil
import tempfile
from pathlib import Path

import data
import models
import quantized
import torch_side
import ztrain_side as zt

PROMPT, FIRST = 40, 8


def runs(row):
    """Name: the file trained on, and deck keys."""
    if row.by_length:   # all sequences of a run have one length, which is above the model's own, or below it
        return {"windows": ("tokens.bin", zt.WINDOWS), "short": ("tokens.bin", {**zt.WINDOWS, **data.SHORT})}
    found = {
        "windows": ("tokens.bin", zt.WINDOWS),
        "documents": ("documents.h5", zt.DOCUMENTS),
        "frozen": ("documents.h5", {**zt.DOCUMENTS, **zt.partial(row.about.whole)}),
    }
    if row.name == "llama":
        muon = {**zt.DOCUMENTS, "optimizer.name": "muon", "optimizer.muon_scale": "rms"}
        found["muon"] = "documents.h5", muon
        found["muon_spectral"] = "documents.h5", {**muon, "optimizer.muon_scale": "spectral"}
    if row.targets:
        found["lora"] = "documents.h5", zt.lora(row.targets)
    if row.magnitudes:
        found["dora"] = "documents.h5", {**zt.lora(row.targets), "lora.dora": True}
    if row.magnitudes and row.quantizes:
        found["dora_nf4"] = "documents.h5", {**zt.lora(row.targets), "lora.dora": True, **quantized.FORMS["nf4"]}
    if row.quantizes:
        found.update((form, ("documents.h5", {**zt.lora(row.targets), **more})) for form, more in quantized.FORMS.items())
    if row.about.moved:
        found["moved"] = "tokens.bin", {**zt.WINDOWS, **row.about.moved}
    if row.balanced:
        found["balanced"] = found.pop("windows")[0], zt.BALANCED
    return {name: (file, {**keys, **row.about.deck, **keys}) for name, (file, keys) in found.items()}


def chunks(row, name):
    """What PyTorch trains on in a run."""
    if name in ("windows", "balanced", "moved"):
        return data.windows(row.vocabulary)[1]
    if name == "short":
        return data.windows(row.vocabulary, data.SHORT["data.sequence"])[1]
    return data.alone(data.documents(row.vocabulary))


def has_adapters(name):
    return name in ("lora", "dora", "dora_nf4") or name in quantized.FORMS


def drawn_adapters(ztrain, row, folder):
    """Writes the adapters that a run of ztrain starts with."""
    with tempfile.TemporaryDirectory() as temporary:
        file, keys = runs(row)["lora"]
        _, _, still = ztrain.train(folder, folder.parent / file, Path(temporary) / "still", keys, zt.STILL)
        shutil.rmtree(folder / "lora", ignore_errors=True)
        ztrain.export(still, folder / "lora", "--adapter", "--dtype", "fp32")
    config = folder / "lora" / "adapter_config.json"
    text = json.loads(config.read_text())
    config.write_text(json.dumps({**text, "base_model_name_or_path": None}, indent=2) + "\n")


def run(row, folder, name):
    model = torch_side.load(folder)
    file, keys = runs(row)[name]
    if name == "frozen":
        model = torch_side.freeze(model, *zt.partial(row.about.whole).values(), row.our_name)
    elif name.startswith("dora"):
        base = quantized.with_codes(model, "nf4") if name == "dora_nf4" else model
        model = torch_side.with_magnitudes(base, folder / "lora")
    elif name == "lora" or name in quantized.FORMS:
        base = quantized.with_codes(model, name) if name in quantized.FORMS else model
        model = torch_side.load_adapter(base, folder / "lora", trainable=True)
    losses, _ = torch_side.train(model, chunks(row, name), keys)
    return {"data": file, "settings": keys, "losses": losses}


def choices(row, folder):
    items, model = data.choices(row.vocabulary), torch_side.load(folder)
    return [[float(f"{v:.10g}") for v in torch_side.log_probabilities(model, item)] for item in items]


def generation(row, folder):
    prompt = data.windows(row.vocabulary)[0][:PROMPT].tolist()
    model = torch_side.load(folder)
    rows = torch_side.logits(model, prompt)
    found = {"prompt": prompt,
             "logits": {str(t): [float(f"{v:.8g}") for v in rows[t]] for t in [*range(FIRST), len(prompt) - 1]}}
    if row.scaling != models.DYNAMIC:   # whose table changes while the text grows
        found["greedy"] = torch_side.continue_greedily(model, prompt, data.NEW_TOKENS)
    return found


def write_model(row, folder, versions):
    """All but the adapters."""
    row.make().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)   # of no use here
    found = {name: run(row, folder, name) for name in runs(row) if not has_adapters(name)}
    write_golden(folder, {"made_with": versions, "runs": found, **generation(row, folder), "choices": choices(row, folder)})


def add_adapters(ztrain, row, folder):
    drawn_adapters(ztrain, row, folder)
    found = json.loads((folder / "golden.json").read_text())
    found["runs"].update((name, run(row, folder, name)) for name in runs(row) if has_adapters(name))
    write_golden(folder, found)


def write_golden(folder, found):
    (folder / "golden.json").write_text(one_line_lists(found) + "\n")


def one_line_lists(value, indent=0):
    """JSON with a line per key of an object."""
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = " " * (indent + 1)
    lines = ",\n".join(f"{inner}{json.dumps(k)}: {one_line_lists(v, indent + 1)}" for k, v in value.items())
    return "{\n" + lines + "\n" + " " * indent + "}"


def write(ztrain, folder, only, versions):
    (vocabulary,) = {row.vocabulary for row in models.GOLDEN}
    folder = folder.resolve()     # decks lie elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    data.write_windows(folder / "tokens.bin", data.windows(vocabulary)[0])
    data.write_documents(folder / "documents.h5", data.documents(vocabulary))
    data.write_choices(folder / "choices.jsonl", data.choices(vocabulary))
    for row in models.GOLDEN:
        if only.lower() in row.name:
            write_model(row, folder / row.name, versions)
            if "lora" in runs(row):
                add_adapters(ztrain, row, folder / row.name)
