#!/usr/bin/env python3
"""Compares ztrain with Hugging Face transformers and PEFT on small random models of its families, on the CPU in fp32.

    tools/parity/against_transformers.py [--ztrain build/cpu/ztrain] [--ranks 2] [--only NAME] [--keep FOLDER]

For each model, which transformers saves and ztrain starts from (model.from), a line of differences:

    logits    of a prompt longer than a chunk of it and than any window, largest absolute difference       1e-4
    greedy    of the 20 tokens that follow it, those that are others                                       0
    evaluated losses that `ztrain evaluate` prints of windows, and of documents with masks of the loss, relative  1e-5
    choices   log-probabilities of choices behind contexts, relative                                       1e-5
    windows   losses of 20 AdamW steps with clipping, on windows of tokens, relative                       1e-5
    packed    the same on documents with masks of the loss, which ztrain packs into rows and accumulates
              over micro-batches and ranks, and PyTorch takes one by one, without padding                  1e-5
    norm      of the gradient in each of these steps, before clipping, relative                            1e-5
    balanced  losses, norms and weights of steps on windows with the loss that balances experts, of models whose
              config.json has router_aux_loss_coef; tensors relative to their largest element               1e-5
    frozen    losses on them with some parameters frozen, against requires_grad = False                    1e-5
    LoRA      losses on them with adapters, against PEFT's from the same start, which ztrain exported      1e-5
    DoRA      the same with magnitudes (use_dora), also beside a base in 4 bits, and a tenth of what `merged` is  1e-5
    QLoRA     the same beside a base in 4 and 8 bits, with and without double quantisation, against PEFT's on what
              bitsandbytes makes of the weights, and against bitsandbytes' own layers where scales are not codes 1e-5
    codes     elements of that base, as ztrain exports it, that are not bit for bit bitsandbytes'          0
    merged    logits of the trained adapters in PEFT, against the merged export in transformers, and
              against what ztrain computes from its checkpoint, largest absolute difference                1e-4
    PEFT      losses on them from a folder that PEFT saved, with rsLoRA (some with DoRA) and a trained head (modules_to_save); and
              a tenth of what `merged` is for the adapters that follow                                     1e-5
    weights   after the steps on documents, relative to the largest of a tensor                            1e-5
    bits      tensors and settings of the model that are not bit for bit what transformers saved, after
              ztrain read them, took a step too small to change any, and exported them                     0

Exits with 1 when one is above its bound. An export that transformers or PEFT does not load without a complaint is an
error, and so are adapters with dropout that do not train. Needs PyTorch, transformers, peft, bitsandbytes, h5py and
mpirun.
"""
import argparse
import pathlib
import sys
import tempfile

try:
    import bitsandbytes
    import peft
    import torch
    import transformers

    import golden
    from comparisons import BOUNDS, Comparison
    from models import MODELS
    from ztrain_side import STEPS, Ztrain
except ModuleNotFoundError as missing:
    sys.exit(f"against_transformers.py: needs the Python package {missing.name}: {sys.executable} -m pip install {missing.name}")


def line(name, values):
    cells = (f"{v:10.1e}" if isinstance(v, float) else f"{'-' if v is None else v:>10}" for v in values)
    return f"{name:32}" + "".join(cells)


def versions():
    return f"transformers {transformers.__version__}, PyTorch {torch.__version__}, peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}"


def beyond_bounds(name, found):
    return [f"{name}: {column} {found[column]:.2g} is above {bound:.2g}"
            for column, bound in BOUNDS.items() if column in found and not found[column] <= bound]


def compare_all(ztrain, rows, keep):
    wrong, worst = [], dict.fromkeys(BOUNDS, 0)
    print(line("model", BOUNDS))
    with tempfile.TemporaryDirectory() as temporary:
        for row in rows:
            folder = (keep or pathlib.Path(temporary)).resolve() / str(MODELS.index(row))
            folder.mkdir(parents=True)
            found = Comparison(ztrain, row, folder).run()
            print(line(row.name, (found.get(column) for column in BOUNDS)), flush=True)
            wrong += beyond_bounds(row.name, found)
            worst = {column: max(worst[column], found.get(column, 0)) for column in BOUNDS}
    print(line("largest", worst.values()))
    print(line("bound", BOUNDS.values()))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ztrain", type=pathlib.Path, default=pathlib.Path("build/cpu/ztrain"))
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none", help="launcher with its options")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", metavar="NAME", default="", help="only models with this in their names")
    parser.add_argument("--keep", type=pathlib.Path, help="leave models, runs and exports in this folder")
    parser.add_argument("--golden", type=pathlib.Path, help="write the golden numbers to this folder (--only: of these models), and end")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    ztrain = Ztrain(arguments.ztrain.resolve(), arguments.mpirun, arguments.ranks)
    if arguments.golden:
        golden.write(ztrain, arguments.golden, arguments.only, versions())
        return 0
    rows = [row for row in MODELS if arguments.only.lower() in row.name.lower()]
    if not rows:
        parser.error(f"--only {arguments.only}: the models are {', '.join(row.name for row in MODELS)}")
    print(f"{versions()}; ztrain on {arguments.ranks} ranks, {STEPS} steps")
    wrong = compare_all(ztrain, rows, arguments.keep)
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
