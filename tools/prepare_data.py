#!/usr/bin/env python3
"""Turns chats, prompts with completions, and texts into one HDF5 file of tokens that ztrain trains on.

    tools/prepare_data.py chats.jsonl --tokenizer path/to/model --output chats.h5 --validation 0.01
    tools/prepare_data.py docs/*.md --tokenizer bytes --output docs.h5

Inputs: JSON lines, or one JSON list (.jsonl, .ndjson, .json), tables (.csv, .tsv, .parquet, .arrow, .feather), each also packed
(.gz, .bz2, .xz, .zst), of records that have
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
    {"prompt": "...", "completion": "..."}      (strings, or lists of messages)
    {"instruction": "...", "input": "...", "output": "..."}
    {"input_ids": [5, 3, 4], "labels": [-100, 3, 4]}
    {"text": "..."}
and plain text files, each a document. docs/data.md describes all this, and the file that is written.
Needs h5py, numpy, xxhash; jinja2 for chats; tokenizers or transformers for tokenizers other than bytes;
pyarrow for Parquet and Arrow; zstandard, or the command zstd, for .zst.
"""

import argparse
import os
import signal
import sys

from prepare.kinds import KINDS


def arguments(words=None):
    parser = argparse.ArgumentParser(
        prog="prepare_data.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("inputs", nargs="+", metavar="FILE", help="input files, in the order of their documents")
    add("--output", required=True, metavar="FILE.h5", help="what is written; with --validation also FILE.validation.h5")
    add("--tokenizer", required=True, help='folder with tokenizer.json, name of the Hugging Face hub, or "bytes"')
    add("--chat-template", metavar="FILE", help="a Jinja chat template instead of the tokenizer's")
    add(
        "--train-on",
        choices=["assistant", "last", "all"],
        default="assistant",
        help="tokens of chats and pairs that are to be predicted: all turns of the assistant (the completion), its "
        "last turn, or everything (default: assistant)",
    )
    add("--kind", choices=[kind.name for kind in KINDS], help="what all records are, instead of what their fields say")
    add(
        "--column",
        action="append",
        default=[],
        metavar="FIELD=NAME",
        help="what a field is called in the input, such as prompt=question; may be given several times",
    )
    pairs = "prompt and completion as they are, and Alpaca's in its own text; or these as a chat (default: text)"
    add("--pairs", choices=["text", "chat"], default="text", help=pairs)
    add(
        "--roles",
        metavar="NAME,...",
        default="",
        help="further roles that the chat template knows; others than the usual ones are taken for misspelt",
    )
    add("--separator", metavar="LINE", help="the line between documents of plain text files")
    add("--validation", type=float, default=0, metavar="FRACTION", help="part of the documents for a second file")
    add("--seed", type=int, default=0, help="chooses which those are")
    add("--max-length", type=int, default=0, metavar="N", help="tokens of a document; 0: no limit")
    add(
        "--on-long",
        choices=["warn", "truncate", "drop"],
        default="warn",
        help="what becomes of longer ones (default: warn; ztrain packs by data.long_documents)",
    )
    add("--skip-errors", action="store_true", help="leave out records that cannot be used, and count them")
    add("--workers", type=int, default=1, metavar="N", help="processes that tokenise")
    add("--sequence", type=int, default=0, metavar="N", help="report how the documents fill rows of so many tokens")
    add("--picture", metavar="FILE.png", help='a picture of lengths, and of the rows of --sequence; "-": in characters')
    add("--show", type=int, default=0, metavar="N", help="print the first N documents, the trained part marked")
    add("--force", action="store_true", help="replace files that are there")
    return parser.parse_args(words)


def refuse(what):
    sys.exit(f"prepare_data.py: {what}")


def main():
    args = arguments()
    try:  # behind --help, which needs no packages
        from packages import lacks
        from prepare.run import run
        from prepare.streams import InputError
        from prepare.template import TemplateError
        from prepare.tokenizer import TokenizerError
        from prepare.writer import WriteError
    except ModuleNotFoundError as missing:
        refuse(lacks(missing.name))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as at the end of a job: what was begun is removed
    try:
        run(args)
    except (InputError, TokenizerError, TemplateError, OSError) as error:
        refuse(str(error).removeprefix(": "))
    except WriteError as error:
        sys.stdout.flush()
        print(f"prepare_data.py: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # HDF5 must not try to close its files again
    except KeyboardInterrupt:
        refuse("interrupted; nothing was written")


if __name__ == "__main__":
    main()
