#!/usr/bin/env python3
"""Turns chats, prompts with completions, and texts into one HDF5 file of tokens that ztrain trains on.

    tools/prepare_data.py chats.jsonl --tokenizer path/to/model --output chats.h5 --validation 0.01
    tools/prepare_data.py docs/*.md --tokenizer bytes --output docs.h5

Inputs: .jsonl files (also .json and .ndjson of a record a line, and .gz of them), each line one of
    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
    {"prompt": "...", "completion": "..."}      (strings, or lists of messages)
    {"text": "..."}
and plain text files, each a document. docs/data.md describes all this, and the file that is written.
Needs h5py, numpy, xxhash; jinja2 for chats; tokenizers or transformers for tokenizers other than bytes.
"""

import argparse
import pathlib
import sys

try:
    from prepare.documents import Options
    from prepare.records import InputError
    from prepare.report import Counts, Progress, example, table
    from prepare.template import TemplateError
    from prepare.tokenizer import TokenizerError, load_tokenizer
    from prepare.work import held_out, make_all
    from prepare.writer import Writer
except ImportError as missing:
    sys.exit(f"prepare_data.py: {missing}; install python3-{missing.name} or pip install {missing.name}")


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
    add("--pairs", choices=["text", "chat"], default="text", help="prompt and completion as they are, or as a chat")
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
    add("--show", type=int, default=0, metavar="N", help="print the first N documents, the trained part marked")
    add("--force", action="store_true", help="replace files that are there")
    return parser.parse_args(words)


class Files:
    """The outputs: for training, and for validation if that is asked for."""

    def __init__(self, args, tokenizer):
        output = pathlib.Path(args.output)
        self.paths = [output] + ([output.with_suffix(".validation" + output.suffix)] if args.validation else [])
        for path in self.paths:
            if path.exists() and not args.force:
                raise InputError(path, "is there already; --force replaces it")
        if not output.parent.is_dir():
            raise InputError(output.parent, "is no folder; make it first")
        self.writers, self.counts = [], [Counts() for _ in self.paths]
        self.chat = [False for _ in self.paths]
        for path in self.paths:
            self.writers.append(Writer(path, tokenizer))

    def add(self, which, ids, mask, chat):
        self.writers[which].add(ids, mask)
        self.counts[which].add(ids, mask)
        self.chat[which] = self.chat[which] or chat

    def close(self, template):
        for path, writer in zip(self.paths, self.writers):
            if writer.documents == 0:
                raise InputError(path, "would hold no document: there are too few that can be used")
        for writer, chat in zip(self.writers, self.chat):
            writer.close(template if chat else None)

    def abandon(self):
        for writer in self.writers:
            writer.abandon()


def prepare(args, tokenizer, files):
    """Writes all documents; returns ({reason: dropped documents}, too long ones)."""
    options = Options(args.train_on, args.pairs == "chat", args.max_length, args.on_long)
    progress, shown, size, dropped, too_long = Progress(), 0, 0, {}, 0
    for batch in make_all(args, tokenizer, options):
        if batch.error:
            raise InputError("", batch.error)
        size += batch.bytes
        too_long += batch.too_long
        for reason, count in batch.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        for ids, mask, chat in batch.documents:
            if shown < args.show:
                shown += 1
                print(example(tokenizer, ids, mask, shown, sys.stdout.isatty()))
            which = args.validation > 0 and held_out(ids, args.validation, args.seed)
            files.add(int(which), ids, mask, chat)
        progress.show(sum(w.documents for w in files.writers), sum(c.tokens for c in files.counts), size)
    progress.close()
    return dropped, too_long


def report(args, files, dropped, too_long):
    print(table([(str(path), counts) for path, counts in zip(files.paths, files.counts)]))
    for reason, count in sorted(dropped.items()):
        print(f"dropped {count:,}: {reason}")
    if too_long:
        how = "truncated" if args.on_long == "truncate" else "kept"
        print(f"{too_long:,} longer than --max-length {args.max_length}: {how}")


def run(args):
    if not 0 <= args.validation < 1:
        raise InputError("--validation", "must be 0 or more, and below 1")
    tokenizer = load_tokenizer(args.tokenizer, args.chat_template)
    files = Files(args, tokenizer)
    try:
        dropped, too_long = prepare(args, tokenizer, files)
        files.close(tokenizer.template)
    except BaseException:
        files.abandon()
        raise
    report(args, files, dropped, too_long)


def main():
    try:
        run(arguments())
    except (InputError, TokenizerError, TemplateError, OSError) as error:
        sys.exit(f"prepare_data.py: {str(error).removeprefix(': ')}")
    except KeyboardInterrupt:
        sys.exit("prepare_data.py: interrupted; nothing was written")


if __name__ == "__main__":
    main()
