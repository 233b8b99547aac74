"""Reads every logical tensor of a checkpoint through index.h5, as a user would, and compares it with what
tests/support/checkpoint_model.hpp wrote.

    read_checkpoint.py FOLDER whole       every element has its value
    read_checkpoint.py FOLDER missing     elements whose shard file is missing are NaN (integers: 0); the others as
                                          written, which is never 0
"""

import json
import pathlib
import sys

import h5py
import numpy as np


def stored_shape(index, tables, state, parameter):
    """The shape of the logical tensor, or of its blocks where a state has one item for many elements."""
    granule = tables["granules"][state]
    shape = tables["parameters"][parameter]["shape"]
    if granule == 1:
        return tuple(shape)
    pieces = index["ztrain/pieces"][...]
    if begins := tables["parameters"][parameter].get("begins"):
        dim = int(pieces[(pieces[:, 0] == state) & (pieces[:, 1] == parameter)][0, 2])
        row = int(np.prod(shape)) // shape[dim]
        return (sum(-(-(end - begin) * row // granule) for begin, end in zip(begins, begins[1:])),)
    parts = int(pieces[(pieces[:, 0] == state) & (pieces[:, 1] == parameter)][0, 3])
    items = -(-int(np.prod(shape)) // parts // granule)
    return (parts, items) if parts > 1 else (items,)


def expected(state, parameter, shape):
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((state * 89 + parameter * 31 + index * 7) % 250 + 1).reshape(shape)


def main():
    folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
    tensors = holes = 0
    with h5py.File(folder / "index.h5", "r") as index:
        tables = json.loads(index.attrs["tables"])
        json.loads(index.attrs["metadata"])
        for s, state in enumerate(tables["states"]):
            for p, parameter in enumerate(tables["parameters"]):
                stored = index[f"{state}/{parameter['name']}"][...]
                shape = stored_shape(index, tables, s, p)
                assert stored.shape == shape, f"{state}/{parameter['name']}: {stored.shape}, not {shape}"
                got, want = stored.astype(np.float64), expected(s, p, shape)
                hole = got == 0 if stored.dtype.kind in "iu" else np.isnan(got)
                holes += int(hole.sum())
                tensors += 1
                assert (got[~hole] == want[~hole]).all(), f"{state}/{parameter['name']} differs"
    assert (holes > 0) == (mode == "missing"), f"{holes} items are missing"
    print(f"read {tensors} tensors, {holes} items are missing")


main()
