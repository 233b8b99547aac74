#!/usr/bin/env python3
"""Adds token ids to the lines of a multiple-choice file, for `ztrain evaluate --choices` with models that have a tokenizer.

    tools/prepare_choices.py items.jsonl --tokenizer path/to/model --output items.ids.jsonl

Each line is {"context": "...", "choices": ["...", "..."], "answer": 0}, or has these under the names that --column says
(--column context=question); answer is the index of the right choice. A choice begins with the blank that separates it from
its context, if there is to be one. A line of the output has all that its line had, and context_ids and choices_ids. Ids are
those of lm-evaluation-harness: blanks at the end of a context belong to the choices, and a choice has the tokens of context
and choice together behind those of the context alone. A tokenizer that begins texts with a token begins contexts with it.
Needs tokenizers or transformers for tokenizers other than "bytes".
"""

import argparse
import json
import pathlib
import sys


FIELDS = ("context", "choices", "answer")


def refuse(what):
    sys.exit(f"prepare_choices.py: {what}")


def ids_of(tokenizer, context, choices):
    """(ids of the context, ids of each choice)."""
    begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    stripped = context.rstrip()
    alone = begin + tokenizer.encode(stripped)
    wholes = [begin + tokenizer.encode(stripped + context[len(stripped) :] + choice) for choice in choices]
    return alone, [whole[len(alone) :] for whole in wholes]


def with_ids(tokenizer, line, columns):
    """The line with its ids, and its columns called as fields are. Raises ValueError with what is wrong."""
    record = json.loads(line)
    if isinstance(record, dict):
        named = {field: record.get(name) for field, name in columns.items()}
        record = {key: value for key, value in record.items() if key not in columns.values()} | named
    if not isinstance(record, dict) or not isinstance(record.get("context"), str):
        raise ValueError("a line is an object with a text as its context; --column context=NAME names another field")
    choices, answer = record.get("choices"), record.get("answer")
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise ValueError("choices is no list of texts; --column choices=NAME names another field")
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise ValueError(f"answer is {json.dumps(answer)}: give the index of the right one of {len(choices)} choices, from 0")
    context_ids, choices_ids = ids_of(tokenizer, record["context"], choices)
    if not context_ids:
        raise ValueError("the context has no token, and the tokenizer begins texts with none")
    if not all(choices_ids):
        raise ValueError("a choice adds no token to its context")
    return {**record, "context_ids": context_ids, "choices_ids": choices_ids}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=pathlib.Path, metavar="FILE", help="JSON lines with context, choices and answer")
    parser.add_argument("--tokenizer", required=True, help='folder with tokenizer.json, name of the Hugging Face hub, or "bytes"')
    parser.add_argument("--output", required=True, type=pathlib.Path, metavar="FILE", help="JSON lines that are written")
    parser.add_argument("--column", action="append", default=[], metavar="FIELD=NAME", help="what context, choices or answer is called in the input")
    arguments = parser.parse_args()
    from prepare.records import InputError, columns_of
    from prepare.tokenizer import TokenizerError, load_tokenizer  # behind --help, which needs no packages

    try:
        columns = columns_of(arguments.column, FIELDS)
        tokenizer = load_tokenizer(arguments.tokenizer)
        lines = arguments.input.read_text(encoding="utf-8").splitlines()
        records = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    records.append(with_ids(tokenizer, line, columns))
                except ValueError as error:
                    refuse(f"{arguments.input}:{number}: {error}")
        arguments.output.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    except (InputError, TokenizerError, OSError, UnicodeDecodeError) as error:
        refuse(error)
    print(f"{arguments.output}: {len(records)} items")


if __name__ == "__main__":
    main()
