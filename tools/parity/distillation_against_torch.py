#!/usr/bin/env python3
"""Writes tests/regress/golden/distillation.json: losses and gradient norms of the model of tests/regress/golden/llama that
learns from that of golden/qwen3, by PyTorch in fp32 on the CPU. Needs torch, transformers, numpy and h5py.

    tools/parity/distillation_against_torch.py --golden tests/regress/golden
"""
import argparse
import pathlib
import sys

try:
    import h5py
    import numpy as np
    import torch
    import transformers
except ModuleNotFoundError as missing:
    sys.exit(f"distillation_against_torch.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")

import golden

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests" / "regress" / "golden"
STUDENT, TEACHER, DATA, STEPS, HELD = "llama", "qwen3", "documents.h5", 6, 12
# All documents lie in one sequence, and each step takes all of them.
SETTINGS = {"run.steps": STEPS, "data.sequence": 1088, "data.validation_fraction": 0.0, "data.max_documents": 0,
            "batch.global": 1, "batch.micro": 1, "precision.preset": "fp32", "optimizer.name": "adamw",
            "optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.95], "optimizer.eps": 1e-4, "optimizer.weight_decay": 0.0,
            "optimizer.max_norm": 5.0, "schedule.name": "constant"}
RUNS = {"half": {"distillation.weight": 0.5, "distillation.top_k": HELD}, "few": {"distillation.weight": 0.9, "distillation.top_k": 4},
        "alone": {"distillation.weight": 1.0, "distillation.top_k": HELD}}


def documents():
    """[(tokens, targets, mask of targets)]"""
    with h5py.File(GOLDEN / DATA) as file:
        tokens, mask, begins = (file[name][:].astype(np.int64) for name in ("tokens", "loss_mask", "document_offsets"))
    cut = [(torch.tensor(tokens[a:b]), torch.tensor(mask[a:b])) for a, b in zip(begins, begins[1:]) if b - a > 1]
    return [(t[:-1], t[1:], m[1:].bool()) for t, m in cut if m[1:].any()]


def model(name):
    return transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32)


def logits(of, tokens):
    return of(input_ids=tokens[None]).logits[0]


def steps(settings, found, taught):
    weight, k = settings["distillation.weight"], settings["distillation.top_k"]
    student = model(STUDENT)
    optimizer = torch.optim.AdamW(student.parameters(), lr=SETTINGS["optimizer.lr"], betas=SETTINGS["optimizer.betas"],
                                  eps=SETTINGS["optimizer.eps"], weight_decay=0)
    count = sum(int(mask.sum()) for *_, mask in found)
    result = {"losses": [], "norms": [], "ce_loss": [], "distillation_loss": []}
    for _ in range(STEPS):
        entropy = divergence = 0
        for (tokens, targets, mask), (words, logs) in zip(found, taught):
            of_student = torch.log_softmax(logits(student, tokens)[mask], -1)
            shares = torch.softmax(logs[:, :k], -1)
            entropy = entropy - of_student.gather(-1, targets[mask][:, None]).sum()
            divergence = divergence + (shares * (shares.log() - of_student.gather(-1, words[:, :k]))).sum()
        loss = ((1 - weight) * entropy + weight * divergence) / count
        optimizer.zero_grad()
        loss.backward()
        result["norms"].append(torch.nn.utils.clip_grad_norm_(student.parameters(), SETTINGS["optimizer.max_norm"]).item())
        optimizer.step()
        for name, value in (("losses", loss), ("ce_loss", entropy / count), ("distillation_loss", divergence / count)):
            result[name].append(value.item())
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=pathlib.Path, required=True, help="folder of distillation.json")
    arguments = parser.parse_args()
    found, teacher = documents(), model(TEACHER)
    with torch.no_grad():
        tops = [torch.log_softmax(logits(teacher, tokens)[mask], -1).topk(HELD) for tokens, _, mask in found]
    taught = [(top.indices, top.values) for top in tops]
    runs = {name: {"settings": {**SETTINGS, **more}, **steps(more, found, taught)} for name, more in RUNS.items()}
    first = [{"words": words[0].tolist(), "log_likelihoods": logs[0].tolist()} for words, logs in taught[:4]]
    text = golden.one_line_lists({"made_with": {p.__name__: p.__version__ for p in (torch, transformers)}, "data": DATA, "student": STUDENT,
                                  "teacher": TEACHER, "held": HELD, "first_of_documents": first, "runs": runs})
    (arguments.golden / "distillation.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
