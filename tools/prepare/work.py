"""Makes documents from records, in this process or in several."""

import itertools
import multiprocessing

import numpy as np

from .documents import Dropped, Maker, Options
from .records import InputError, is_json, read_raw
from .tokenizer import load_tokenizer
from .writer import hash_of

RECORDS = 64  # handed to a worker at once


class Drops:
    """Records that are left out: how many for each reason, and where the first of them is."""

    def __init__(self):
        self.found = {}  # {reason: (count, where)}

    def add(self, reason, where, count=1):
        before, first = self.found.get(reason, (0, where))
        self.found[reason] = (before + count, first)

    def merge(self, other):
        for reason, (count, where) in other.found.items():
            self.add(reason, where, count)

    def lines(self):
        return [f"dropped {n:,}: {reason} (first: {where})" for reason, (n, where) in sorted(self.found.items())]


class Batch:
    """What became of some records, in their order: arrays of ids and masks, and counts."""

    def __init__(self):
        self.documents = []  # (ids, mask, turn_ends)
        self.dropped = Drops()
        self.too_long, self.bytes = 0, 0
        self.error = None  # that ends the work
        self.skipped = None  # the first that was passed over


class Worker:
    def __init__(self, tokenizer, options, skip_errors):
        self.maker, self.skip_errors = Maker(tokenizer, options), skip_errors

    def __call__(self, raws):
        batch = Batch()
        for raw in raws:
            batch.bytes += len(raw.text)
            try:
                document = self.maker.make(raw)
            except Dropped as dropped:
                batch.dropped.add(str(dropped), raw.where)
                continue
            except InputError as error:
                if not self.skip_errors:
                    batch.error = str(error)
                    return batch
                batch.dropped.add("error", raw.where)
                batch.skipped = batch.skipped or str(error)
                continue
            batch.too_long += document.too_long
            mask = np.array(document.mask, np.uint8)
            batch.documents.append((np.array(document.ids, np.int32), mask, document.turn_ends))
        return batch


def start(name, template_file, options, skip_errors):
    """Begins a worker process; its state is of that process alone."""
    start.worker = Worker(load_tokenizer(name, template_file), Options(**options), skip_errors)


def work(raws):
    return start.worker(raws)


def batches_of(raws, count):
    while batch := list(itertools.islice(raws, count)):
        yield batch


def make_all(args, tokenizer, options):
    """Yields a Batch for some records at a time, in the order of the input. Throws InputError."""
    raws = batches_of(read_raw(args.inputs, args.separator), RECORDS if any(map(is_json, args.inputs)) else 1)
    if args.workers <= 1:
        yield from map(Worker(tokenizer, options, args.skip_errors), raws)
        return
    begin = (args.tokenizer, args.chat_template, vars(options), args.skip_errors)
    with multiprocessing.get_context("spawn").Pool(args.workers, start, begin) as pool:
        window = []  # what is under way: imap would read all input ahead
        for batch in raws:
            window.append(pool.apply_async(work, (batch,)))
            if len(window) >= 4 * args.workers:
                yield window.pop(0).get()
        for pending in window:
            yield pending.get()


def held_out(ids, fraction, seed):
    """Is a document for validation? By what it holds, so that equal documents are on one side."""
    value = int(hash_of(seed.to_bytes(8, "little", signed=True) + np.asarray(ids, "<i4").tobytes()), 16)
    return value < fraction * 2**64
