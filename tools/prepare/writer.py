"""HDF5 files of documents, written as they come (docs/data.md describes the format)."""

import contextlib
import fcntl
import os
import pathlib
import re
import tempfile

import h5py
import numpy as np
import xxhash

FORMAT = 1
LONGEST = 1000  # bytes of a text that a run reads from an attribute
BUFFER = 1 << 20  # tokens


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


class Column:
    """The items of one dataset, which gather in a file without a name: only when their number is known can they lie in one
    piece, of which a run asks the file system for the next samples ahead of time."""

    def __init__(self, folder, dtype):
        self.dtype, self.parts, self.items = dtype, [], 0
        self.file = tempfile.TemporaryFile(dir=folder)

    def add(self, items):
        self.parts.append(items)

    def flush(self):
        if self.parts:
            items = np.concatenate(self.parts).astype(self.dtype, copy=False)
            self.file.write(items)
            self.file.flush()
            self.items += len(items)
            self.parts.clear()

    def move_to(self, file, name):
        self.flush()
        self.file.seek(0)
        dataset = file.create_dataset(name, (self.items,), self.dtype)
        for at in range(0, self.items, BUFFER):
            dataset[at : at + BUFFER] = np.fromfile(self.file, self.dtype, BUFFER)
        self.file.close()


def lock(file):
    """For this process, until it closes the file. False: another one has it. Not every file system has locks."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        pass
    return True


def claim(path):
    """That no other process is writing the file: asked also where HDF5's own locks are switched off."""
    if path.exists() and not path.is_file():
        raise WriteError(f"{path}: is no file; remove it, or choose another --output")
    with writing(path), open(path, "ab") as file:
        if not lock(file):
            raise WriteError(f"{path}: another prepare_data.py is writing it; wait for its end, or choose another --output")


class Writer:
    """Writes path.partial; publish() makes it path. Throws WriteError."""

    def __init__(self, path, tokenizer):
        self.path = pathlib.Path(path)
        self.partial = self.path.with_name(self.path.name + ".partial")
        self.columns = {}
        claim(self.partial)
        try:
            with writing(self.path):
                self.file = h5py.File(self.partial, "w")
                lock(self.file.id.get_vfd_handle())
                self.begin(tokenizer)
        except WriteError:
            self.remove()
            raise
        self.buffered, self.tokens, self.documents = 0, 0, 0
        self.all_are_trained = True
        self.columns["document_offsets"].add(np.zeros(1, np.int64))

    def begin(self, tokenizer):
        self.column("tokens", id_type(tokenizer.vocab_size))
        self.column("loss_mask", np.uint8)
        self.column("document_offsets", np.int64)
        self.attributes(tokenizer)

    def column(self, name, dtype):
        self.columns[name] = Column(self.path.parent, dtype)

    def attributes(self, tokenizer):
        self.file.attrs["ztrain_format"] = FORMAT
        self.file.attrs["tokenizer"] = tokenizer.name
        folder = str(tokenizer.folder or "")
        if folder.isprintable() and 0 < len(os.fsencode(folder)) <= LONGEST:
            self.file.attrs["tokenizer_folder"] = folder
        self.file.attrs["tokenizer_hash"] = hash_of(tokenizer.file_bytes)
        self.file.attrs["chat_template_hash"] = ""
        self.file.attrs["vocab_size"] = tokenizer.vocab_size
        self.file.attrs["eos_id"] = -1 if tokenizer.eos_id is None else tokenizer.eos_id

    def add(self, ids, mask):
        self.tokens += len(ids)
        self.documents += 1
        self.buffered += len(ids)
        self.columns["tokens"].add(ids)
        self.columns["loss_mask"].add(mask)
        self.all_are_trained = self.all_are_trained and bool(np.all(mask))
        self.columns["document_offsets"].add(np.array([self.tokens], np.int64))
        if self.buffered >= BUFFER:
            with writing(self.path):
                self.flush()

    def label(self, desirable):
        """Of an answer with a label, whose document was added."""
        if "labels" not in self.columns:
            self.column("labels", np.uint8)
        self.columns["labels"].add(np.array([desirable], np.uint8))

    def flush(self):
        for column in self.columns.values():
            column.flush()
        self.buffered = 0

    def close(self, chat_template=None, turn_ends=()):
        """chat_template: the text that any of the documents was made with; turn_ends: where trained turns of chats end."""
        with writing(self.path):
            if chat_template is not None:
                self.file.attrs["chat_template_hash"] = hash_of(chat_template.encode())
            if turn_ends:
                self.file.attrs["turn_end_ids"] = np.array(sorted(turn_ends), np.int32)
            if self.all_are_trained:  # every rank of a run would read as many bytes to learn nothing
                del self.columns["loss_mask"]
            for name, column in self.columns.items():
                column.move_to(self.file, name)
            self.file.close()

    def publish(self):
        with writing(self.path):
            os.replace(self.partial, self.path)

    def remove(self):
        """Leaves nothing behind, and the file open."""
        self.partial.unlink(missing_ok=True)
