#!/usr/bin/env python3
"""Compares a checkpoint's adapters, loaded by PEFT beside their base model, with the merged model: logits of random
tokens. Needs torch, transformers and peft.

    ztrain export CHECKPOINT --to MERGED --dtype fp32
    ztrain export CHECKPOINT --to ADAPTER --dtype fp32 --adapter
    tools/parity/adapter_against_peft.py ADAPTER MERGED [--base FOLDER] [--tolerance 1e-5]
"""
import argparse
import json
import pathlib
import sys

try:
    import peft
    import torch
    import transformers
except ModuleNotFoundError as missing:
    sys.exit(f"adapter_against_peft.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")


def logits(model, tokens):
    with torch.no_grad():
        return model.eval()(tokens).logits.double()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", type=pathlib.Path)
    parser.add_argument("merged", type=pathlib.Path)
    parser.add_argument("--base", help="instead of the adapter's base_model_name_or_path")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of the largest logit")
    arguments = parser.parse_args()
    config = json.loads((arguments.adapter / "adapter_config.json").read_text())
    load = transformers.AutoModelForCausalLM.from_pretrained
    base = load(arguments.base or config["base_model_name_or_path"], dtype=torch.float32)
    tokens = torch.randint(base.config.vocab_size, (2, 32), generator=torch.Generator().manual_seed(1))
    without = logits(base, tokens)
    adapted = peft.PeftModel.from_pretrained(base, str(arguments.adapter))
    with_adapters = logits(adapted, tokens)
    merged = logits(load(arguments.merged, dtype=torch.float32), tokens)
    scale = merged.abs().max().item()
    apart = (with_adapters - merged).abs().max().item() / scale
    changed = (with_adapters - without).abs().max().item() / scale
    print(f"adapters change logits by {changed:.2e} of the largest; the merged model differs by {apart:.2e}")
    return 0 if changed > 10 * arguments.tolerance and apart <= arguments.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
