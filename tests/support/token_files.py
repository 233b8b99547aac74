"""Writes the HDF5 token files that tests train on (docs/data.md)."""

import h5py
import numpy as np


def write_tokens(path, documents, masks=None, attributes=None, offsets=True):
    """documents: arrays of ids, one after the other; masks: of the same lengths. Returns the path."""
    with h5py.File(path, "w") as file:
        file["tokens"] = np.concatenate(documents).astype(np.int32)
        if offsets:
            file["document_offsets"] = np.cumsum([0] + [len(d) for d in documents]).astype(np.int64)
        if masks is not None:
            file["loss_mask"] = np.concatenate(masks).astype(np.uint8)
        for name, value in (attributes or {}).items():
            file.attrs[name] = value
    return path


def some_documents(count, shortest, longest, seed, vocabulary=257):
    """Documents that can be learned: each counts in steps of its own. Returns (documents, masks): the mask of a
    document is 1 from somewhere in its first half on, but for a gap."""
    random = np.random.default_rng(seed)
    documents, masks = [], []
    for _ in range(count):
        length = int(random.integers(shortest, longest + 1))
        first, step = int(random.integers(0, vocabulary)), int(random.integers(1, 4))
        documents.append((first + step * np.arange(length)) % vocabulary)
        mask = np.zeros(length, np.uint8)
        mask[int(random.integers(0, max(1, length // 2))) :] = 1
        mask[3 * length // 4] = 0
        masks.append(mask)
    return documents, masks
