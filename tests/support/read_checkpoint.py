"""Reads every logical tensor of a checkpoint through index.h5, as a user would, and compares it with what
tests/support/checkpoint_model.hpp wrote.

    read_checkpoint.py FOLDER whole       every element has its value
    read_checkpoint.py FOLDER missing     elements whose shard file is missing are NaN, never 0; the others as written
"""

import json
import pathlib
import sys

import h5py
import numpy as np


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
                got = index[f"{state}/{parameter['name']}"][...].astype(np.float64)
                want = expected(s, p, parameter["shape"])
                nan = np.isnan(got)
                holes += int(nan.sum())
                tensors += 1
                assert got.shape == tuple(parameter["shape"]), (parameter, got.shape)
                assert (got[~nan] == want[~nan]).all(), f"{state}/{parameter['name']} differs"
    assert (holes > 0) == (mode == "missing"), f"{holes} elements are NaN"
    print(f"read {tensors} tensors, {holes} elements are NaN")


main()
