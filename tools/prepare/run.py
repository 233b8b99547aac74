"""The whole work: reads, tokenises, splits, writes, and reports."""

import pathlib
import sys

from .documents import Options
from .records import InputError
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
        self.writers, self.counts = [], [Counts() for _ in self.paths]
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


def prepare(args, tokenizer, files):
    """Writes all documents; returns (Drops, count of too long ones)."""
    options = Options(args.train_on, args.pairs == "chat", args.max_length, args.on_long, names(args.roles))
    progress, shown, size, dropped, too_long = Progress(), 0, 0, Drops(), 0
    for batch in make_all(args, tokenizer, options):
        if batch.error:
            raise InputError("", batch.error)
        size += batch.bytes
        too_long += batch.too_long
        if batch.skipped and "error" not in dropped.found:
            print(f"the first error: {batch.skipped}")
        dropped.merge(batch.dropped)
        for ids, mask, turn_ends in batch.documents:
            if shown < args.show:
                shown += 1
                print(example(tokenizer, ids, mask, shown, sys.stdout.isatty()))
            which = args.validation > 0 and held_out(ids, args.validation, args.seed)
            files.add(int(which), ids, mask, turn_ends)
        progress.show(sum(w.documents for w in files.writers), sum(c.tokens for c in files.counts), size)
    progress.close()
    return dropped, too_long


def report(args, files, dropped, too_long):
    print(table([(str(path), counts) for path, counts in zip(files.paths, files.counts)]))
    for line in dropped.lines():
        print(line)
    if too_long:
        how = "truncated" if args.on_long == "truncate" else "kept"
        print(f"{too_long:,} longer than --max-length {args.max_length}: {how}")


def run(args):
    if not 0 <= args.validation < 1:
        raise InputError("--validation", "must be 0 or more, and below 1")
    for name, least in (("max-length", 0), ("show", 0), ("workers", 1)):
        if getattr(args, name.replace("-", "_")) < least:
            raise InputError(f"--{name}", f"must be {least} or more")
    tokenizer = load_tokenizer(args.tokenizer, args.chat_template)
    files = Files(args, tokenizer)
    try:
        dropped, too_long = prepare(args, tokenizer, files)
        files.close(tokenizer.template, dropped, some(args.inputs))
    except BaseException:
        files.abandon()
        raise
    report(args, files, dropped, too_long)
