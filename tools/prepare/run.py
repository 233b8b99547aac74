"""The whole work: reads, tokenises, splits, writes, and reports."""

import collections
import pathlib
import sys

import numpy as np

from .containers import Inputs
from .documents import Options
from .kinds import LABELLED, PREFERENCES
from .picture import picture
from .records import InputError, columns_of
from .report import Counts, Progress, example, table
from .tokenizer import load_tokenizer
from .work import Drops, held_out, make_all
from .writer import Writer


def names(text):
    """The parts of a,b,c."""
    return [name.strip() for name in text.split(",") if name.strip()]


def some(paths, most=3):
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(map(str, paths[:most])) + more


class Files:
    """The outputs: for training, and for validation if that is asked for."""

    def __init__(self, args, tokenizer):
        output = pathlib.Path(args.output)
        if output.suffix not in (".h5", ".hdf5"):
            raise InputError("--output", f"names '{output}': an HDF5 file is written, by whose ending .h5 or .hdf5 a run knows it")
        self.paths = [output] + ([output.with_suffix(".validation" + output.suffix)] if args.validation else [])
        for path in self.paths:
            if path.exists() and not args.force:
                raise InputError(path, "is there already; --force replaces it")
        if not output.parent.is_dir():
            raise InputError(output.parent, "is no folder; make it first")
        self.writers, self.counts = [], [Counts(args.sequence) for _ in self.paths]
        self.turn_ends = [None for _ in self.paths]  # those of its chats; None for a file without any
        try:
            for path in self.paths:
                self.writers.append(Writer(path, tokenizer))
        except BaseException:
            self.abandon()
            raise

    def add(self, which, ids, mask, turn_ends):
        self.writers[which].add(ids, mask)
        self.counts[which].add(ids, mask)
        if turn_ends is not None:
            self.turn_ends[which] = (self.turn_ends[which] or set()) | turn_ends

    def mark(self, kinds):
        """Says so where two documents in a row belong together."""
        for kind, name in ((PREFERENCES, "pairs"), (LABELLED, "labels")):
            if kind in kinds and len(kinds) > 1:
                raise InputError("the records", f"are of the kinds {', '.join(sorted(kinds))}: {kind} need a file of their own")
            for writer in self.writers if kind in kinds else ():
                writer.file.attrs["preference"] = name

    def close(self, template, dropped, inputs):
        """inputs: what the documents come from, as text."""
        for path, writer in zip(self.paths, self.writers):
            if writer.documents == 0:
                elsewhere = [f"all {w.documents} fell to {w.path}: give another --validation or --seed" for w in self.writers if w.documents]
                why = "; ".join([*dropped.lines(), *elsewhere]) or "there are none"
                raise InputError(path, f"would hold no document of {inputs} ({why})")
        for writer, turn_ends in zip(self.writers, self.turn_ends):
            writer.close(*((None,) if turn_ends is None else (template, turn_ends)))
        for writer in self.writers:
            writer.publish()

    def abandon(self):
        for writer in self.writers:
            writer.remove()


class Done:
    """Counts of all records: by kind, and of those that were dropped or too long."""

    def __init__(self):
        self.dropped, self.kinds, self.too_long = Drops(), collections.Counter(), 0

    def add(self, batch):
        if batch.skipped and "error" not in self.dropped.found:
            print(f"the first error: {batch.skipped}")
        self.dropped.merge(batch.dropped)
        self.kinds.update(batch.kinds)
        self.too_long += batch.too_long


def options_of(args):
    reading = {"pairs_as_chat": args.pairs == "chat", "roles": names(args.roles), "kind": args.kind, "columns": columns_of(args.column)}
    return Options(args.train_on, args.max_length, args.on_long, **reading)


def prepare(args, inputs, tokenizer, files):
    """Writes all documents, and returns a Done."""
    progress, shown, done = Progress(), 0, Done()
    for batch in make_all(args, inputs, tokenizer, options_of(args)):
        if batch.error:
            raise InputError("", batch.error)
        done.add(batch)
        for ids, mask, turn_ends, together, label in batch.documents:
            if shown < args.show:
                shown += 1
                print(example(tokenizer, ids, mask, shown, sys.stdout.isatty()))
            which = args.validation > 0 and held_out(together, args.validation, args.seed)
            files.add(int(which), ids, mask, turn_ends)
            if label is not None:
                files.writers[int(which)].label(label)
        progress.show(sum(w.documents for w in files.writers), sum(c.tokens for c in files.counts), inputs.share())
    progress.close()
    return done


def report(args, files, done):
    print(table([(str(path), counts) for path, counts in zip(files.paths, files.counts)]))
    print("records", ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.kinds.items())))
    for line in done.dropped.lines():
        print(line)
    if done.too_long:
        how = "truncated" if args.on_long == "truncate" else "kept"
        print(f"{done.too_long:,} longer than --max-length {args.max_length}: {how}")
    sets = []
    for path, counts in zip(files.paths, files.counts):
        spaces = counts.packing.spaces() if counts.packing else {}
        if counts.packing:
            print(f"{path.name} packed: {counts.packing.line(spaces)}")
        sets.append((path.name, np.frombuffer(counts.lengths, np.dtype("l")), spaces))
    if args.picture:
        print(picture(args.picture, sets, args.sequence))


def run(args):
    if not 0 <= args.validation < 1:
        raise InputError("--validation", "must be 0 or more, and below 1")
    for name, least in (("max-length", 0), ("show", 0), ("workers", 1), ("sequence", 0)):
        if getattr(args, name.replace("-", "_")) < least:
            raise InputError(f"--{name}", f"must be {least} or more")
    inputs = Inputs(args.inputs, args.separator)
    columns_of(args.column)
    tokenizer = load_tokenizer(args.tokenizer, args.chat_template)
    files = Files(args, tokenizer)
    try:
        done = prepare(args, inputs, tokenizer, files)
        files.mark(done.kinds)
        files.close(tokenizer.template, done.dropped, some(args.inputs))
    except BaseException:
        files.abandon()
        raise
    report(args, files, done)
