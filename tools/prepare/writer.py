"""HDF5 files of documents, written as they come (docs/data.md describes the format)."""

import contextlib
import os
import pathlib
import re

import h5py
import numpy as np
import xxhash

FORMAT = 1
BUFFER = 1 << 20  # tokens
CHUNK = 1 << 14


def hash_of(data):
    """XXH3, 64 bits: 16 hexadecimal digits."""
    return xxhash.xxh3_64(data).hexdigest()


def id_type(vocab_size):
    return np.uint16 if vocab_size <= 1 << 16 else np.int32


class WriteError(Exception):
    """A file that cannot be written, and why, in one line. HDF5 may crash when it closes such a file, be it at the exit
    of the process: who catches this ends the process by os._exit."""


@contextlib.contextmanager
def writing(path):
    """What h5py throws here, as a WriteError."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # h5py: RuntimeError when closing; the system's words are inside
        words = re.search(r"error message = '([^']*)'", str(error))
        why = words.group(1) if words else getattr(error, "strerror", None) or str(error)
        raise WriteError(f"{path}: cannot be written: {why[:1].lower() + why[1:]}") from None


class Writer:
    """Writes path.partial; publish() makes it path. Throws WriteError."""

    def __init__(self, path, tokenizer):
        self.path = pathlib.Path(path)
        self.partial = self.path.with_name(self.path.name + ".partial")
        with writing(self.path):
            self.file = h5py.File(self.partial, "w")
        try:
            with writing(self.path):
                self.begin(tokenizer)
        except WriteError:
            self.remove()
            raise
        self.buffers = {name: [] for name in self.datasets}
        self.buffered, self.tokens, self.documents = 0, 0, 0
        self.buffers["document_offsets"].append(np.zeros(1, np.int64))

    def begin(self, tokenizer):
        self.datasets = {
            "tokens": self.dataset("tokens", id_type(tokenizer.vocab_size)),
            "loss_mask": self.dataset("loss_mask", np.uint8),
            "document_offsets": self.dataset("document_offsets", np.int64),
        }
        self.attributes(tokenizer)

    def dataset(self, name, dtype):
        return self.file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(CHUNK,))

    def attributes(self, tokenizer):
        self.file.attrs["ztrain_format"] = FORMAT
        self.file.attrs["tokenizer"] = tokenizer.name
        self.file.attrs["tokenizer_hash"] = hash_of(tokenizer.file_bytes)
        self.file.attrs["chat_template_hash"] = ""
        self.file.attrs["vocab_size"] = tokenizer.vocab_size
        self.file.attrs["eos_id"] = -1 if tokenizer.eos_id is None else tokenizer.eos_id

    def add(self, ids, mask):
        self.tokens += len(ids)
        self.documents += 1
        self.buffered += len(ids)
        self.buffers["tokens"].append(ids)
        self.buffers["loss_mask"].append(mask)
        self.buffers["document_offsets"].append(np.array([self.tokens], np.int64))
        if self.buffered >= BUFFER:
            with writing(self.path):
                self.flush()

    def flush(self):
        for name, parts in self.buffers.items():
            if not parts:
                continue
            items, dataset = np.concatenate(parts), self.datasets[name]
            size = dataset.shape[0]
            dataset.resize((size + len(items),))
            dataset[size:] = items
            parts.clear()
        self.buffered = 0

    def close(self, chat_template=None):
        """chat_template: the text that any of the documents was made with."""
        with writing(self.path):
            if chat_template is not None:
                self.file.attrs["chat_template_hash"] = hash_of(chat_template.encode())
            self.flush()
            self.file.close()

    def publish(self):
        with writing(self.path):
            os.replace(self.partial, self.path)

    def remove(self):
        """Leaves nothing behind, and the file open."""
        self.partial.unlink(missing_ok=True)
