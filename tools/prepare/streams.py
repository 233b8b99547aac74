"""Input files as streams of bytes: packed ones are unpacked while they are read, whatever they are called."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import shutil
import subprocess
import tempfile
import zlib

from packages import lacks

BLOCK = 1 << 16  # bytes


class InputError(Exception):
    """A fault of the input, and where it is."""

    def __init__(self, where, what):
        super().__init__(f"{where}: {what}")
        self.what = what


class Raw:
    """A piece of input that a worker turns into a document. kind: json (a text), row (a dictionary), text (a text), or
    broken (what is wrong with it)."""

    __slots__ = ("kind", "text", "where")

    def __init__(self, kind, text, where):
        self.kind, self.text, self.where = kind, text, where

    def weight(self):
        """About how many characters it has."""
        return len(self.text) if isinstance(self.text, str) else 1000


# Errors of a stream that is damaged or ends early.
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)


class Frames(io.RawIOBase):
    """The frames of a zstd stream, unpacked by the package zstandard, whose own reader ends without an error where the
    stream breaks off."""

    def __init__(self, zstandard, raw):
        self.zstandard, self.raw = zstandard, raw
        self.frame, self.packed, self.ready = None, b"", memoryview(b"")

    def readable(self):
        return True

    def readinto(self, out):
        while not self.ready:
            data = self.packed or self.raw.read(BLOCK)
            if not data:
                if self.frame is not None:
                    raise EOFError("it ends within a frame")
                return 0
            self.unpack(data)
        count = min(len(out), len(self.ready))
        out[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count

    def unpack(self, data):
        if self.frame is None:
            self.frame = self.zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        try:
            self.ready = memoryview(self.frame.decompress(data))
        except self.zstandard.ZstdError as error:
            raise OSError(str(error)) from None
        self.packed = self.frame.unused_data if self.frame.eof else b""
        if self.frame.eof:
            self.frame = None


class ByCommand(io.RawIOBase):
    """The bytes that the command zstd unpacks from a file."""

    def __init__(self, command, raw):
        os.lseek(raw.fileno(), 0, os.SEEK_SET)  # its beginning has been looked at
        words = [command, "-dcq", "--long=31"]
        self.process = subprocess.Popen(words, stdin=raw, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def readable(self):
        return True

    def readinto(self, out):
        count = self.process.stdout.readinto(out)
        if count == 0 and self.process.wait() != 0:
            said = self.process.stderr.read().decode(errors="replace").strip().rpartition("*\\ : ")[2]
            raise OSError(said or "zstd fails")
        return count

    def close(self):
        if not self.closed:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()
        super().close()


def unpack_zstd(raw, path):
    try:
        import zstandard
    except ModuleNotFoundError:
        command = shutil.which("zstd")
        if command is None:
            raise InputError(path, f"is packed by zstd: {lacks('zstandard')}, or `apt install zstd`") from None
        return io.BufferedReader(ByCommand(command, raw), BLOCK)
    return io.BufferedReader(Frames(zstandard, raw), BLOCK)


class Packing:
    """endings: of file names; first: bytes of every such file; unpack: (raw stream, path) -> unpacked stream."""

    def __init__(self, endings, first, unpack):
        self.endings, self.first, self.unpack = endings, first, unpack

    def begins(self, head):
        return head.startswith(self.first)


PACKINGS = (
    Packing((".gz",), b"\x1f\x8b", lambda raw, path: gzip.open(raw)),
    Packing((".bz2",), b"BZh", lambda raw, path: bz2.open(raw)),
    Packing((".xz",), b"\xfd7zXZ\0", lambda raw, path: lzma.open(raw)),
    Packing((".zst", ".zstd"), b"\x28\xb5\x2f\xfd", unpack_zstd),
)


def packing_by_name(path):
    return next((packing for packing in PACKINGS if str(path).lower().endswith(packing.endings)), None)


def packing_by_bytes(head):
    """Letters may begin a text, and tell nothing without a name."""
    return next((packing for packing in PACKINGS if packing.begins(head) and not packing.first.isalpha()), None)


def name_unpacked(path):
    """The path without the ending of a packing."""
    path = pathlib.Path(path)
    return path.with_suffix("") if packing_by_name(path) else path


class Stream:
    """An open file. raw: as it lies on the disk; bytes: unpacked, and as text once that is asked for; packed: whether the two
    differ. Throws InputError."""

    def __init__(self, path):
        self.path, self.part = path, None  # part: share of the file that is read, if its reader says it
        try:
            self.raw = open(path, "rb")
            self.size = os.fstat(self.raw.fileno()).st_size
            head = self.raw.peek(8)
        except OSError as error:
            raise InputError(path, error.strerror or str(error)) from None
        named = packing_by_name(path)
        if named and head and not named.begins(head):
            self.raw.close()
            raise InputError(path, f"is not packed as its ending {named.endings[0]} says: give it the name of what it is")
        packing = named or packing_by_bytes(head)
        self.packed = packing is not None
        try:
            self.bytes = packing.unpack(self.raw, path) if packing else self.raw
        except InputError:
            self.raw.close()
            raise

    def share(self):
        """How much of the file has been read, from 0 to 1; None if that is not known."""
        if self.part is not None:
            return self.part
        try:
            return os.lseek(self.raw.fileno(), 0, os.SEEK_CUR) / self.size if self.size else None
        except (OSError, ValueError):
            return None

    def text(self, newline=None):
        self.bytes = io.TextIOWrapper(self.bytes, encoding="utf-8-sig", newline=newline)
        return self.bytes

    def seekable(self):
        """The bytes as a file that can be read in any order: an unpacked copy without a name, if there must be one."""
        if not self.packed and self.raw.seekable():
            return self.raw
        packed, self.bytes = self.bytes, tempfile.TemporaryFile()
        with packed:
            shutil.copyfileobj(packed, self.bytes, BLOCK)
        self.bytes.seek(0)
        return self.bytes

    def close(self):
        self.bytes.close()
        self.raw.close()
