"""What both sides train on: windows of a stream of tokens, and documents with masks that ztrain packs and PyTorch does not."""
import json

import h5py
import numpy as np
import torch

SEQUENCE, WINDOWS = 64, 4
SHORT = {"data.sequence": 16, "batch.global": 16}   # deck keys of the same tokens in shorter windows
PROMPT, CHUNK, NEW_TOKENS = 100, 48, 20     # of generation: chunks are what runs at once

# Best-fit decreasing puts the documents' parts into ROWS rows of SEQUENCE, some of them with space left.
LENGTHS = [37, 61, 13, 150, 41, 23, 5, 63, 19, 1, 75, 29, 47, 11, 51, 23, 17, 2, 33, 8, 55, 31, 3, 64, 27, 12, 45,
           65, 62]
ROWS, MICRO = 16, 2
UNTRAINED = 8       # the mask of this document is all zero: it is left out


def windows(vocabulary, length=SEQUENCE):
    """(tokens, chunks): chunks are what goes through a model at once, as (ids, targets, weights)."""
    tokens = torch.randint(0, vocabulary, (WINDOWS * SEQUENCE + 1,), generator=torch.Generator().manual_seed(11))
    ids, targets = tokens[:-1].reshape(-1, length), tokens[1:].reshape(-1, length)
    return tokens.numpy().astype(np.uint16), [[(ids, targets, torch.ones(ids.shape))]]


def write_windows(path, tokens):
    tokens.tofile(path)


def documents(vocabulary):
    """[(tokens, mask)] of LENGTHS."""
    random = np.random.default_rng(5)
    found = []
    for number, length in enumerate(LENGTHS):
        tokens = random.integers(0, vocabulary, length)
        mask = (random.random(length) < 0.8).astype(np.uint8)
        if number % 3 == 0:
            mask[:length // 2] = 0      # like a prompt
        mask[-1] = number % 5 != 0
        found.append((tokens, mask * (number != UNTRAINED)))
    return found


def write_documents(path, docs):
    with h5py.File(path, "w", libver="latest") as file:
        file["tokens"] = np.concatenate([tokens for tokens, _ in docs]).astype(np.uint16)
        file["loss_mask"] = np.concatenate([mask for _, mask in docs]).astype(np.uint8)
        file["document_offsets"] = np.cumsum([0] + [len(tokens) for tokens, _ in docs]).astype(np.int64)


def alone(docs, per_backward=4):
    """Each document, or part of a long one, by itself: no packing, no padding; several of them to a backward call."""
    parts = []
    for tokens, mask in docs:
        for begin in range(0, len(tokens), SEQUENCE):
            targets, weights = (a[begin + 1:begin + SEQUENCE + 1] for a in (tokens, mask))
            ids = tokens[begin:begin + len(targets)]
            if weights.sum() > 0:
                parts.append(tuple(torch.from_numpy(a)[None] for a in (ids, targets, weights.astype(np.float32))))
    return [parts[i:i + per_backward] for i in range(0, len(parts), per_backward)]


def choices(vocabulary):
    """Items of `ztrain evaluate --choices`, with contexts and choices of several lengths."""
    random = np.random.default_rng(7)

    def draw(length):
        return random.integers(0, vocabulary, length).tolist()

    lengths = [(1, [1, 1]), (23, [2, 5, 1]), (40, [9, 3, 3, 7]), (7, [1, 2, 3, 4, 5]), (31, [12, 11])]
    return [{"context_ids": draw(context), "choices_ids": [draw(length) for length in of_choices], "answer": 1}
            for context, of_choices in lengths]


def write_choices(path, items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
