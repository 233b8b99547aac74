#!/usr/bin/env python3
"""Compares losses on pairs of answers with TRL's: the model of tests/regress/golden/llama is trained on the same pairs by
TRL's DPOTrainer, KTOTrainer or RewardTrainer, in fp32 on the CPU, and by ztrain. Needs torch, transformers, tokenizers, datasets and trl.

    tools/parity/preferences_against_trl.py [--ztrain build/ci/ztrain] [--only ipo]
    tools/parity/preferences_against_trl.py --golden tests/regress/golden      # writes pairs.h5, labels.h5 and preferences.json there
"""
import argparse
import json
import pathlib
import sys
import tempfile

try:
    import datasets
    import h5py
    import numpy as np
    import tokenizers
    import torch
    import transformers
    import trl
except ModuleNotFoundError as missing:
    sys.exit(f"preferences_against_trl.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")

import golden
import ztrain_side as zt

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests" / "regress" / "golden"
STEPS, PAIRS, SEQUENCE, EOS = 8, 12, 64, 2
TOLERANCE = 1e-5
LOSSES = {
    "sigmoid": {}, "sigmoid_norm": {"preference.beta": 2.0}, "hinge": {}, "ipo": {}, "robust": {"preference.label_smoothing": 0.1},
    "exo_pair": {"preference.label_smoothing": 0.1}, "nca_pair": {}, "bco_pair": {}, "sppo_hard": {"preference.beta": 2.0}, "apo_zero": {},
    "apo_down": {}, "discopop": {"preference.beta": 0.1},
}
LABELLED = {
    "kto": {"preference.desirable_weight": 1.5}, "apo_zero_unpaired": {"preference.undesirable_weight": 0.5},
}
REWARDED = {"reward": {}, "reward_centered": {"preference.center_rewards_coefficient": 0.05}}
ALL = {**LOSSES, **LABELLED, **REWARDED}
SETTINGS = {"run.steps": STEPS, "data.sequence": SEQUENCE, "data.validation_fraction": 0.0, "data.max_documents": 2,
            "batch.global": PAIRS, "batch.micro": 2, "precision.preset": "fp32", "optimizer.name": "adamw",
            "optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.95], "optimizer.eps": 1e-4, "optimizer.weight_decay": 0.0,
            "optimizer.max_norm": 5.0, "schedule.name": "constant", "preference.beta": 0.3}


def pairs(vocabulary):
    """[(prompt, chosen, rejected)] of ids. Each answer ends with EOS, which occurs nowhere else."""
    random = np.random.default_rng(3)
    draw = lambda least, most: [int(i) for i in random.integers(3, vocabulary, random.integers(least, most))]
    return [(draw(1, 12), draw(1, 18) + [EOS], draw(1, 18) + [EOS]) for _ in range(PAIRS)]


def labelled(found):
    """[(prompt, answer, label)]: of each pair one answer."""
    return [(prompt, answers[i % 3 == 1], i % 3 != 1) for i, (prompt, *answers) in enumerate(found)]


def file_of(loss):
    return "labels.h5" if loss in LABELLED else "pairs.h5"


def write_data(folder, found):
    """Beside an answer with a label is that of the record before: so does TRL put them together in a batch."""
    write(folder / "pairs.h5", "pairs", [(prompt, answer) for prompt, *answers in found for answer in answers])
    rows = labelled(found)
    beside = [answer for _, answer, _ in rows[-1:] + rows[:-1]]
    documents = [(prompt, one) for (prompt, answer, _), other in zip(rows, beside) for one in (answer, other)]
    write(folder / "labels.h5", "labels", documents, [label for _, _, label in rows])


def write(path, preference, documents, labels=None):
    with h5py.File(path, "w", libver="latest") as file:
        file["tokens"] = np.concatenate([prompt + answer for prompt, answer in documents]).astype(np.uint16)
        file["loss_mask"] = np.concatenate([[0] * len(p) + [1] * len(a) for p, a in documents]).astype(np.uint8)
        file["document_offsets"] = np.cumsum([0] + [len(p) + len(a) for p, a in documents]).astype(np.int64)
        file.attrs["preference"] = preference
        if labels is not None:
            file["labels"] = np.array(labels, np.uint8)


def word_tokenizer(vocabulary):
    """Token i is the word <i>, which is a part of no other."""
    words = {f"<{i}>": i for i in range(vocabulary)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<0>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token=f"<{EOS}>", pad_token="<0>")


def text(ids):
    return "".join(f" <{i}>" for i in ids)


class Recorder:
    """Keeps what TRL's logs round."""

    def compute_loss(self, *words, **more):
        loss = super().compute_loss(*words, **more)
        self.found.append((loss.item(), {key: values[-1] for key, values in self._metrics["train"].items()}))
        return loss


class OfPairs(Recorder, trl.DPOTrainer):
    pass


class OfLabels(Recorder, trl.KTOTrainer):
    pass


class OfRewards(trl.RewardTrainer):
    """Keeps what TRL does not log of single answers."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        chosen, rejected = outputs.logits.squeeze(-1).chunk(2)
        logged = {key: values[-1] for key, values in self._metrics["train"].items()}
        self.found.append((loss.item(), {**logged, "chosen": chosen.mean().item(), "rejected": rejected.mean().item()}))
        return (loss, outputs) if return_outputs else loss


def score(width):
    """The head of the reward model, as tests/regress/preferences.py makes it."""
    return [0.1 * (7 * i % 11 - 5) for i in range(width)]


def reward_model(folder):
    """Writes the model with a head for rewards."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        GOLDEN / "llama", num_labels=1, pad_token_id=0, dtype=torch.float32)
    model.score.weight.data[:] = torch.tensor([score(model.config.hidden_size)])
    model.save_pretrained(folder)
    return folder


def settings_of(loss):
    return {**SETTINGS, **ALL[loss], "preference.loss_type": "reward" if loss in REWARDED else loss}


def of_trl(loss, found, folder):
    keys = settings_of(loss)
    if loss in REWARDED:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder.parent / "rewards", dtype=torch.float32)
        rows = [dict(zip(("prompt", "chosen", "rejected"), map(text, pair))) for pair in found]
        config, trainer_class, names = trl.RewardConfig, OfRewards, {
            "center_rewards_coefficient": keys.get("preference.center_rewards_coefficient")}
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / "llama", dtype=torch.float32)
        names = {"beta": keys["preference.beta"]}
    if loss in LABELLED:
        rows = [{"prompt": text(p), "completion": text(a), "label": label} for p, a, label in labelled(found)]
        config, trainer_class = trl.KTOConfig, OfLabels
        names |= {
            "loss_type": loss, "desirable_weight": keys.get("preference.desirable_weight", 1.0),
            "undesirable_weight": keys.get("preference.undesirable_weight", 1.0)}
    elif loss in LOSSES:
        rows = [dict(zip(("prompt", "chosen", "rejected"), map(text, pair))) for pair in found]
        config, trainer_class = trl.DPOConfig, OfPairs
        names |= {
            "loss_type": [loss], "label_smoothing": keys.get("preference.label_smoothing", 0.0)}
    options = config(
        output_dir=str(folder), **names, learning_rate=keys["optimizer.lr"], max_steps=STEPS, per_device_train_batch_size=PAIRS,
        lr_scheduler_type="constant", warmup_steps=0, adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=keys["optimizer.eps"],
        weight_decay=0.0, max_grad_norm=keys["optimizer.max_norm"], logging_steps=1, save_strategy="no", report_to=[],
        use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True, max_length=None, optim="adamw_torch")
    trainer = trainer_class(model=model, args=options, train_dataset=datasets.Dataset.from_list(rows),
                            processing_class=word_tokenizer(model.config.vocab_size))
    trainer.found = []
    trainer.train()
    norms = [log["grad_norm"] for log in trainer.state.log_history if "grad_norm" in log]
    metrics = [found for _, found in trainer.found]
    return {"losses": [loss for loss, _ in trainer.found], "norms": norms,
            **{ours: [found[theirs] for found in metrics] for ours, theirs in reported(loss).items()}}


def reported(loss):
    """{our name: TRL's name} of metrics."""
    if loss in LOSSES:
        return METRICS
    if loss in REWARDED:
        return OF_REWARDS
    return {**{ours: theirs for ours, theirs in METRICS.items() if ours != "rewards_accuracies"}, **({"kl": "kl"} if loss == "kto" else {})}


METRICS = {"rewards_chosen": "rewards/chosen", "rewards_rejected": "rewards/rejected", "rewards_margins": "rewards/margins",
           "rewards_accuracies": "rewards/accuracies", "logps_chosen": "logps/chosen", "logps_rejected": "logps/rejected"}


OF_REWARDS = {"rewards_chosen": "chosen", "rewards_rejected": "rejected", "rewards_margins": "margin", "rewards_accuracies": "accuracy"}


def of_ztrain(ztrain, loss, file, folder):
    model = folder.parent / "rewards" if loss in REWARDED else GOLDEN / "llama"
    micro = {"batch.micro": PAIRS // ztrain.ranks}  # kto compares with a mean over what all ranks have at once
    losses, norms, _ = ztrain.train(model, file, folder, settings_of(loss), micro)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {"losses": losses, "norms": norms, **{name: [step[name] for step in steps] for name in reported(loss)}}


def apart(a, b):
    """The largest difference, relative to the largest of the numbers, or absolute below 1."""
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) / max(1, *map(abs, a))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", default=SOURCE / "build" / "ci" / "ztrain")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --allow-run-as-root")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", choices=["", *ALL])
    parser.add_argument("--golden", type=pathlib.Path, help="write TRL's numbers there, and compare nothing")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    found = pairs(json.loads((GOLDEN / "llama" / "config.json").read_text())["vocab_size"])
    worst, written = 0, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_data(folder, found)
        reward_model(folder / "rewards")
        ztrain = zt.Ztrain(arguments.ztrain, arguments.mpirun, arguments.ranks)
        for loss in [arguments.only] if arguments.only else ALL:
            theirs = of_trl(loss, found, folder / "trl")
            written[loss] = {"data": file_of(loss), "settings": settings_of(loss), **theirs}
            if arguments.golden:
                continue
            ours = of_ztrain(ztrain, loss, folder / file_of(loss), folder / loss)
            differences = {name: apart(theirs[name], ours[name]) for name in theirs if name not in ("norms", "rewards_accuracies")}
            differences["first norm"] = apart(theirs["norms"][:1], ours["norms"][:1]) / theirs["norms"][0]
            worst = max(worst, *differences.values())
            print(f"{loss:13}", ", ".join(f"{name} {value:.1e}" for name, value in differences.items()))
    if arguments.golden:
        write_data(arguments.golden, found)
        versions = {package.__name__: package.__version__ for package in (torch, transformers, trl)}
        text_of = golden.one_line_lists({"made_with": versions, "runs": written})
        (arguments.golden / "preferences.json").write_text(text_of + "\n")
        return 0
    print(f"largest difference {worst:.1e}, bound {TOLERANCE:.0e}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
