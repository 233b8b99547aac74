"""Makes documents from records, in this process or in several."""

import collections
import multiprocessing

import numpy as np

from .documents import Dropped, Maker
from .records import InputError
from .tokenizer import load_tokenizer
from .writer import hash_of

RECORDS, CHARACTERS = 256, 1 << 18  # handed to a worker at once: as many records, or of as many characters


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
        self.documents = []  # (ids, mask, turn_ends, the ids that decide in which file it is, label or None)
        self.dropped, self.kinds = Drops(), collections.Counter()
        self.too_long = 0
        self.error = None  # that ends the work
        self.skipped = None  # the first that was passed over


class Worker:
    def __init__(self, tokenizer, options, skip_errors):
        self.maker, self.skip_errors = Maker(tokenizer, options), skip_errors

    def __call__(self, raws):
        batch, made = Batch(), []
        for raw in raws:
            try:
                made.append((self.maker.make(raw), raw.where))
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
        self.put_answers_beside(batch, made)
        for document, _ in made:
            batch.kinds[document.kind] += 1
            answers = [document] if document.beside is None else [document, document.beside]
            together = np.concatenate([np.array(answer.ids, np.int32) for answer in answers])
            label = document.labelled and document.labelled.desirable
            for answer in answers:
                batch.too_long += answer.too_long
                mask = np.array(answer.mask, np.uint8)
                found = (np.array(answer.ids, np.int32), mask, answer.turn_ends, together, label)
                batch.documents.append(found)
                label = None  # of the first of two documents alone
        return batch

    def put_answers_beside(self, batch, made):
        """Beside an answer with a label: its prompt with the answer of the record before, from which KTO estimates how far
        the model is from its reference. Before the first is the last of those that are handed to a worker at once."""
        labelled = [(document, where) for document, where in made if document.labelled]
        for (document, where), (before, _) in zip(labelled, labelled[-1:] + labelled[:-1]):
            try:
                document.beside = self.maker.document(document.kind, document.labelled.with_answer_of(before.labelled), where)
            except Dropped as dropped:
                batch.dropped.add(str(dropped), where)
        made[:] = [one for one in made if not one[0].labelled or one[0].beside]


def start(name, template_file, options, skip_errors):
    """Begins a worker process; its state is of that process alone."""
    start.worker = Worker(load_tokenizer(name, template_file), options, skip_errors)


def work(raws):
    return start.worker(raws)


def batches_of(raws):
    batch, weight = [], 0
    for raw in raws:
        batch.append(raw)
        weight += raw.weight()
        if len(batch) >= RECORDS or weight >= CHARACTERS:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def make_all(args, inputs, tokenizer, options):
    """Yields a Batch for some records at a time, in the order of the inputs. Throws InputError."""
    raws = batches_of(inputs)
    if args.workers <= 1:
        yield from map(Worker(tokenizer, options, args.skip_errors), raws)
        return
    begin = (args.tokenizer, args.chat_template, options, args.skip_errors)
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
