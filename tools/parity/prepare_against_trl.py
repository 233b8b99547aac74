#!/usr/bin/env python3
"""Compares what tools/prepare_data.py makes of records with what TRL's SFTTrainer trains on: token ids, and which are predicted.

    tools/parity/prepare_against_trl.py FOLDER_OF_TOKENIZER

FOLDER has tokenizer.json and a chat template. TRL knows neither Alpaca's text nor the roles human and gpt: it gets the prompt that
Alpaca's authors published, and the roles as templates call them. Needs trl, tokenizers and jinja2.
"""
import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from packages import lacks  # noqa: E402

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}, {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "Three?"}, {"role": "assistant", "content": "Five, of course."}]
AS_SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}
SHAREGPT = [{"from": AS_SHAREGPT[m["role"]], "value": m["content"]} for m in CHAT]
ALPACA = {"instruction": "Name a colour", "input": "of the sky", "output": "Blue."}
ALPACA_PROMPT = ("Below is an instruction that describes a task, paired with an input that provides further context. Write a response that "
                 "appropriately completes the request.\n\n### Instruction:\nName a colour\n\n### Input:\nof the sky\n\n### Response:\n")
# (name, record, options of ours, record of TRL's, options of TRL's)
CASES = (
    ("text", {"text": "One line.\nAnother."}, {}, None, {}),
    ("messages, all", {"messages": CHAT}, {"train_on": "all"}, None, {}),
    ("messages, assistant", {"messages": CHAT}, {}, None, {"assistant_only_loss": True}),
    ("sharegpt", {"conversations": SHAREGPT}, {}, {"messages": CHAT}, {"assistant_only_loss": True}),
    ("pairs", {"prompt": "The sky is", "completion": " blue."}, {}, None, {"completion_only_loss": True}),
    ("pairs of messages", {"prompt": CHAT[:2], "completion": CHAT[2:3]}, {}, None, {"completion_only_loss": True}),
    ("alpaca", ALPACA, {}, {"prompt": ALPACA_PROMPT, "completion": ALPACA["output"]}, {"completion_only_loss": True}),
    ("alpaca, chat", ALPACA, {"pairs_as_chat": True}, {"prompt": [{"role": "user", "content": "Name a colour\nof the sky"}],
                                                      "completion": [{"role": "assistant", "content": "Blue."}]}, {"completion_only_loss": True}),
    ("tokens", {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {}, None, {}),
)


def ours(folder, record, options):
    from prepare.documents import Maker, Options
    from prepare.streams import Raw
    from prepare.tokenizer import load_tokenizer

    document = Maker(load_tokenizer(folder), Options(**options)).make(Raw("json", json.dumps(record), "record"))
    return document.ids, document.mask


def theirs(folder, record, options):
    """Returns ids and mask that SFTTrainer's collator gives the model of a data set of this record alone."""
    import datasets
    import transformers
    import trl

    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
    with tempfile.TemporaryDirectory() as out:
        settings = trl.SFTConfig(output_dir=out, report_to=[], use_cpu=True, bf16=False, **options)
        data = datasets.Dataset.from_list([record])
        trainer = trl.SFTTrainer(model=model, args=settings, train_dataset=data, processing_class=tokenizer)
        batch = trainer.data_collator([trainer.train_dataset[0]])
    return batch["input_ids"][0].tolist(), [int(label != -100) for label in batch["labels"][0].tolist()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", metavar="FOLDER")
    folder = parser.parse_args().tokenizer
    try:
        import trl  # noqa: F401
    except ModuleNotFoundError as missing:
        sys.exit(f"prepare_against_trl.py: {lacks(missing.name)}")
    differ = 0
    for name, record, options, other, settings in CASES:
        found, expected = ours(folder, record, options), theirs(folder, other or record, settings)
        same = found[0] == expected[0] and found[1][1:] == expected[1][1:]  # the first token is no target
        differ += not same
        print(f"{name:22} {'the same' if same else 'differ'}: {len(found[0])} tokens, {sum(found[1][1:])} predicted")
        if not same:
            print(f"  ztrain {found}\n  TRL    {expected}")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
