#!/usr/bin/env python3
"""Compares ztrain with Hugging Face transformers on small random models of its families, on the CPU in fp32.

    tools/parity/against_transformers.py [--ztrain build/cpu/ztrain] [--ranks 2] [--keep FOLDER]

For each model: transformers saves it, ztrain starts from it (model.from). Compared are the logits of a prompt, the tokens
that both generate from it greedily (ztrain with its cache, and the prompt in chunks), the loss of the first step, the
losses of 20 AdamW steps, and the weights: those that ztrain exports after a step too small to change any must be what
transformers saved, bit for bit, and those after the 20 steps near what transformers' own steps give. Prints a line per
model and exits with 1 when one differs by more than the bounds below. Needs PyTorch, transformers and mpirun.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

FIRST_LOSS, LOSSES, WEIGHTS = 1e-5, 1e-4, 1e-3   # relative; the last to the largest weight of a tensor
LOGITS = 1e-4                                    # relative to the largest logit
PROMPT, NEW_TOKENS, CHUNK = 100, 40, 48
STEPS, SEQUENCE, WINDOWS = 20, 64, 4
LR, BETAS, EPS, DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

# How ztrain is asked for the same steps.
SETTINGS = {"run.steps": STEPS, "data.format": "bin-uint16", "data.sequence": SEQUENCE, "data.validation_fraction": 0.0,
            "batch.global": WINDOWS, "precision.preset": "fp32", "optimizer.name": "adamw", "optimizer.lr": LR,
            "optimizer.betas": list(BETAS), "optimizer.eps": EPS, "optimizer.weight_decay": DECAY,
            "optimizer.max_norm": MAX_NORM, "schedule.name": "constant"}

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
BASE = {"vocab_size": 331, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "initializer_range": 0.08,
        "tie_word_embeddings": False, "max_position_embeddings": 256}
# What the config classes of single families know besides.
OWN_KEYS = ("head_dim", "attention_bias", "mlp_bias", "use_sliding_window", "sliding_window", "max_window_layers", "layer_types")
GROUPED, TIED = {"num_key_value_heads": 2}, {"tie_word_embeddings": True}
LATER_WINDOWS = {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
# (name, family as transformers spells it, what differs from BASE, rope_theta, rope_scaling, dtype of the saved weights)
MODELS = [
    ("like Llama 2", "Llama", {}, 1e4, None, F32),
    ("like Llama 3: grouped queries", "Llama", GROUPED, 5e5, None, F32),
    ("like Llama 3.1: scaled RoPE", "Llama", GROUPED, 5e5, LLAMA3, F32),
    ("like Llama 3.2: tied, bf16", "Llama", {"num_key_value_heads": 1, **TIED}, 5e5, LLAMA3, BF16),
    ("odd dims, head_dim of its own", "Llama", {"hidden_size": 72, "head_dim": 20, "intermediate_size": 100}, 1e4, None,
     F16),
    ("Llama with biases", "Llama", {"attention_bias": True, **GROUPED}, 1e4, None, F32),
    ("like Mistral 0.1: window 10", "Mistral", {"sliding_window": 10, **GROUPED}, 1e4, None, F32),
    ("like Mistral 0.3: no window", "Mistral", {"sliding_window": None, **GROUPED}, 1e6, None, BF16),
    ("like Qwen 2.5", "Qwen2", GROUPED, 1e6, None, F32),
    ("like Qwen 2.5: tied, bf16", "Qwen2", {**GROUPED, **TIED}, 1e6, None, BF16),
    ("Qwen 2, windows after layer 1", "Qwen2", {**GROUPED, **LATER_WINDOWS, "num_hidden_layers": 3}, 1e6, None, F32),
    ("like Qwen 3: tied, bf16", "Qwen3", {**GROUPED, **TIED, "head_dim": 24}, 1e6, None, BF16),
    ("like Qwen 3", "Qwen3", {**GROUPED, "head_dim": 24}, 1e6, None, F32),
    ("Qwen 3, biases and windows", "Qwen3", {**GROUPED, **LATER_WINDOWS, "attention_bias": True, "head_dim": 16}, 1e6, None,
     F32),
]

# Small enough for the repository: tests/regress/golden and folders in it, which a test compares with where there is no
# transformers. With the first one's theta some wavelengths are between those that are stretched and those that are not.
TINY = {"vocab_size": 61, "hidden_size": 16, "num_key_value_heads": 2, "initializer_range": 0.5}
GOLDEN = {
    ".": ("Llama", {**TINY, "intermediate_size": 40, "head_dim": 8}, 1e2, LLAMA3, F32),
    "mistral": ("Mistral", {**TINY, "intermediate_size": 24, "sliding_window": 9}, 1e4, None, F32),
    "qwen2": ("Qwen2", {**TINY, **TIED, **LATER_WINDOWS, "intermediate_size": 24}, 1e4, None, F32),
    "qwen3": ("Qwen3", {**TINY, "intermediate_size": 24, "head_dim": 6}, 1e4, None, F32),
}


def of_family(family, what):
    return getattr(transformers, family + what)


def make_model(family, changes, theta, scaling, dtype):
    rope = {"rope_theta": theta, **(scaling or {"rope_type": "default"})}
    torch.manual_seed(7)
    if int(transformers.__version__.split(".")[0]) >= 5:
        config = of_family(family, "Config")(**{**BASE, **changes}, rope_parameters=rope)
    else:
        config = of_family(family, "Config")(**{**BASE, **changes}, rope_theta=theta, rope_scaling=scaling)
    model = of_family(family, "ForCausalLM")(config)
    with torch.no_grad():   # norms that are not all ones, biases that are not zero
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    return model.to(dtype)


def train_with_torch(model, tokens):
    """Losses of STEPS steps over all windows at once, as ztrain takes them: an epoch is a step."""
    x = torch.stack([tokens[i * SEQUENCE:i * SEQUENCE + SEQUENCE] for i in range(WINDOWS)])
    y = torch.stack([tokens[i * SEQUENCE + 1:i * SEQUENCE + SEQUENCE + 1] for i in range(WINDOWS)])
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                   {"params": vectors, "weight_decay": 0.0}], lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for _ in range(STEPS):
        logits = model(input_ids=x, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_tokens(folder, vocabulary):
    tokens = torch.randint(0, vocabulary, (WINDOWS * SEQUENCE + 1,))
    tokens.numpy().astype(np.uint16).tofile(folder / "tokens.bin")
    return tokens


def write_golden(folder):
    """Models, tokens, and the losses of transformers' steps."""
    for name, row in GOLDEN.items():
        write_golden_model(folder / name, row)


def write_golden_model(folder, row):
    model = make_model(*row)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)   # of no use here
    losses = train_with_torch(model, write_tokens(folder, model.config.vocab_size))
    versions = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    text = json.dumps({"made_with": versions, "settings": SETTINGS, "losses": losses}, indent=1)
    (folder / "golden.json").write_text(text + "\n")


def call(arguments, *words):
    result = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300)
    if result.returncode != 0:
        sys.exit(f"{' '.join(str(w) for w in words)}\n{result.stdout}{result.stderr}")
    return result.stdout


def train_with_ztrain(arguments, folder, name, overrides):
    words = {"run.output": folder / name, **overrides}
    launcher = arguments.mpirun.split() + ["-np", arguments.ranks]
    call(arguments, *launcher, arguments.ztrain, folder / "deck.toml", *[f"--{k}={v}" for k, v in words.items()])
    records = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    steps = [r for r in records if "grad_norm" in r]
    return [r["loss"] for r in steps], folder / name / "checkpoints" / f"step_{len(steps)}"


def write_deck(folder):
    given = {**SETTINGS, "data.train": ["tokens.bin"], "model.from": "saved", "checkpoint.resume": "none"}
    sections = {}
    for key, value in given.items():
        section, member = key.split(".")
        sections.setdefault(section, []).append(f"{member} = {json.dumps(value)}\n")
    text = "".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items())
    (folder / "deck.toml").write_text(text)


def export(arguments, folder, checkpoint, name, dtype):
    short = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    call(arguments, arguments.ztrain, "export", checkpoint, "--to", folder / name, "--dtype", short,
         "--max-shard-size", "0.0001")
    model, report = AutoModelForCausalLM.from_pretrained(folder / name, dtype=dtype, output_loading_info=True)
    if any(report.values()):
        sys.exit(f"{folder / name}: transformers says {report}")
    return model


def generate(arguments, model, prompt, *words):
    launcher = arguments.mpirun.split() + ["-np", arguments.ranks]
    ids = ",".join(str(i) for i in prompt.tolist())
    return call(arguments, *launcher, arguments.ztrain, "generate", model, "--dtype", "fp32", "--prompt-ids", ids,
                "--chunk", CHUNK, *words)


def compare_generation(arguments, folder, model, tokens):
    """The largest difference of the logits of a prompt, and whether the tokens that follow it greedily differ."""
    prompt = tokens[:PROMPT]
    generate(arguments, folder / "saved", prompt, "--tokens", 0, "--logits", folder / "logits.bin")
    ours = np.fromfile(folder / "logits.bin", "<f4").reshape(PROMPT, -1)
    with torch.no_grad():
        theirs = model(prompt[None]).logits[0].numpy()
        continued = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None], do_sample=False,
                                   max_new_tokens=NEW_TOKENS, eos_token_id=None, pad_token_id=0)[0, PROMPT:]
    found = generate(arguments, folder / "saved", prompt, "--tokens", NEW_TOKENS, "--temperature", 0, "--eos", -1)
    same = [int(i) for i in found.split()] == continued.tolist()
    return abs(ours - theirs).max() / abs(theirs).max(), not same


def same_config(one, other):
    keys = [*BASE, *OWN_KEYS, "rope_parameters", "rope_scaling", "model_type"]
    return [k for k in keys if hasattr(one, k) and getattr(one, k) != getattr(other, k, None)]


def compare(arguments, folder, model_row):
    """The name, the worst differences, and what is beyond the bounds."""
    name, *made_of, dtype = model_row
    model = make_model(*made_of, dtype)
    model.save_pretrained(folder / "saved", max_shard_size="100KB")
    tokens = write_tokens(folder, model.config.vocab_size)
    write_deck(folder)

    _, still = train_with_ztrain(arguments, folder, "still",
                                 {"optimizer.lr": 1e-300, "optimizer.weight_decay": 0, "run.steps": 1})
    returned = export(arguments, folder, still, "returned", dtype)
    wrong = [f"config: {key}" for key in same_config(model.config, returned.config)]
    for (key, a), (_, b) in zip(model.state_dict().items(), returned.state_dict().items(), strict=True):
        if not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
            wrong.append(f"{key} is not what was saved")

    ours, trained = train_with_ztrain(arguments, folder, "trained", {})
    # Read back rather than widened in place: its rotary frequencies would stay rounded to the saved dtype.
    model = AutoModelForCausalLM.from_pretrained(folder / "saved", dtype=torch.float32)
    logits, other_tokens = compare_generation(arguments, folder, model, tokens)
    if other_tokens:
        wrong.append("other tokens are generated")
    theirs = train_with_torch(model, tokens)
    differences = [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]
    exported = export(arguments, folder, trained, "trained_weights", torch.float32).state_dict()
    weights = max(((exported[k] - v).abs().max() / v.abs().max()).item() for k, v in model.state_dict().items())
    for what, found, bound in (("logits", logits, LOGITS), ("first loss", differences[0], FIRST_LOSS), ("losses", max(differences), LOSSES),
                               ("weights", weights, WEIGHTS)):
        if not found <= bound:
            wrong.append(f"{what} differ by {found:.1e}, above {bound:.0e}")
    print(f"{name:32} {theirs[0]:.6f} -> {theirs[-1]:.6f}  {logits:10.1e}  {differences[0]:10.1e}  {max(differences):10.1e}  "
          f"{weights:10.1e}  {'; '.join(wrong) or 'same bits'}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", type=pathlib.Path, default=pathlib.Path("build/cpu/ztrain"))
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none", help="launcher with its options")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path, help="leave models, runs and exports in this folder")
    parser.add_argument("--golden", type=pathlib.Path, help="write the golden numbers to this folder, and end")
    arguments = parser.parse_args()
    arguments.ztrain = arguments.ztrain.resolve()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    if arguments.golden:
        write_golden(arguments.golden)
        return 0
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {arguments.ranks} ranks; relative "
          f"differences of {STEPS} steps")
    print(f"{'model':32} {'loss':20}  {'logits':>10}  {'first loss':>10}  {'all losses':>10}  {'weights':>10}  export of what was read")
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, row in enumerate(MODELS):
            folder = (arguments.keep or pathlib.Path(temporary)).resolve() / str(number)
            folder.mkdir(parents=True)
            wrong += compare(arguments, folder, row)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
