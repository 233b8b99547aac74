"""Writes tests/regress/golden: tiny models, what they train on, and what transformers and PEFT make of them.

    tokens.bin, documents.h5       shared by the models
    MODEL/                         config.json and model.safetensors, as transformers saves them
    MODEL/lora/                    the adapters that ztrain draws (its draw depends on run.seed and names alone)
    MODEL/golden.json              runs: deck keys and the losses of PyTorch's steps; logits of the first and the last
                                   tokens of a prompt, and the tokens that follow it greedily
"""
import json
import shutil
import tempfile
from pathlib import Path

import data
import models
import torch_side
import ztrain_side as zt

PROMPT, FIRST = 40, 8
LORA = zt.lora(["q_proj", "v_proj", "down_proj"])
# Name: the file trained on, and deck keys.
RUNS = {
    "windows": ("tokens.bin", zt.WINDOWS),
    "documents": ("documents.h5", zt.DOCUMENTS),
    "frozen": ("documents.h5", {**zt.DOCUMENTS, **zt.PARTIAL}),
    "lora": ("documents.h5", LORA),
}


def drawn_adapters(ztrain, folder, documents):
    """Writes the adapters that a run of ztrain starts with."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "still"
        _, _, still = ztrain.train(folder, documents, output, LORA, zt.STILL)
        shutil.rmtree(folder / "lora", ignore_errors=True)
        ztrain.export(still, folder / "lora", "--adapter", "--dtype", "fp32")
    config = folder / "lora" / "adapter_config.json"
    text = json.loads(config.read_text())
    config.write_text(json.dumps({**text, "base_model_name_or_path": None}, indent=2) + "\n")


def losses(name, folder, chunks, keys):
    model = torch_side.load(folder)
    if name == "frozen":
        model = torch_side.freeze(model, *zt.PARTIAL.values())
    elif name == "lora":
        model = torch_side.load_adapter(model, folder / "lora", trainable=True)
    return torch_side.train(model, chunks, keys)[0]


def write_model(ztrain, row, folder, documents, chunks, prompt, versions):
    row.make().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)   # of no use here
    drawn_adapters(ztrain, folder, documents)
    model = torch_side.load(folder)
    rows = torch_side.logits(model, prompt)
    places = [*range(FIRST), len(prompt) - 1]
    runs = {name: {"data": file, "settings": keys, "losses": losses(name, folder, chunks[file], keys)}
            for name, (file, keys) in RUNS.items()}
    found = {"made_with": versions, "runs": runs, "prompt": prompt,
             "logits": {str(t): [float(f"{v:.8g}") for v in rows[t]] for t in places},
             "greedy": torch_side.continue_greedily(model, prompt, data.NEW_TOKENS)}
    (folder / "golden.json").write_text(one_line_lists(found) + "\n")


def one_line_lists(value, indent=0):
    """JSON with a line per key of an object."""
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = " " * (indent + 1)
    lines = ",\n".join(f"{inner}{json.dumps(k)}: {one_line_lists(v, indent + 1)}" for k, v in value.items())
    return "{\n" + lines + "\n" + " " * indent + "}"


def write(ztrain, folder, versions):
    (vocabulary,) = {row.vocabulary for row in models.GOLDEN}
    folder = folder.resolve()     # decks lie elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    tokens, windows = data.windows(vocabulary)
    data.write_windows(folder / "tokens.bin", tokens)
    docs = data.documents(vocabulary)
    data.write_documents(folder / "documents.h5", docs)
    chunks = {"tokens.bin": windows, "documents.h5": data.alone(docs)}
    for row in models.GOLDEN:
        write_model(ztrain, row, folder / row.name, folder / "documents.h5", chunks, tokens[:PROMPT].tolist(), versions)
