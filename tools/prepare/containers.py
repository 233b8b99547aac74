"""Which reader a file has, by its name: JSON, a table, or plain text; and all records of several files."""

import os

from packages import lacks

from .json_files import json_values
from .streams import UNREADABLE, InputError, Raw, Stream, name_unpacked
from .tables import batches_of_arrow, batches_of_parquet, csv_rows, table_rows


def not_utf8(error):
    if error.start == 0 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is text in UTF-16, and must be UTF-8: save it as that, or convert it (iconv -f UTF-16 -t UTF-8)"
    return f"is not UTF-8 ({error.reason} at byte {error.start} of a block)"


def texts(stream, separator):
    """A file is one document, or, with a separator, one for each part between lines that equal it."""
    path, file = stream.path, stream.text()
    if separator is None:
        yield Raw("text", file.read(), str(path))
        return
    lines, begin, number = [], 1, 0
    for number, line in enumerate(file, 1):
        if line.rstrip("\r\n") != separator:
            lines.append(line)
            continue
        yield Raw("text", "".join(lines), f"{path}:{begin}")
        lines, begin = [], number + 1
    if lines:
        yield Raw("text", "".join(lines), f"{path}:{begin}")


class Container:
    """read: (stream, separator) -> Raws; package: that it needs, or None."""

    def __init__(self, endings, read, package=None):
        self.endings, self.read, self.package = endings, read, package


CONTAINERS = (
    Container((".jsonl", ".ndjson", ".json"), json_values),
    Container((".csv", ".tsv"), csv_rows),
    Container((".parquet", ".pq"), table_rows(batches_of_parquet, "Parquet"), "pyarrow"),
    Container((".arrow", ".feather", ".ipc"), table_rows(batches_of_arrow, "Arrow"), "pyarrow"),
)
PLAIN = Container((), texts)


def container_of(path):
    suffix = name_unpacked(path).suffix.lower()
    return next((container for container in CONTAINERS if suffix in container.endings), PLAIN)


class Inputs:
    """All records of some files, in order."""

    def __init__(self, paths, separator=None):
        self.paths, self.separator, self.stream = paths, separator, None
        self.done, self.bytes = 0, sum(map(self.check, paths))

    @staticmethod
    def check(path):
        """The bytes of a file. Throws InputError for what would be found hours later."""
        package = container_of(path).package
        try:
            if package:
                __import__(package)
        except ModuleNotFoundError:
            raise InputError(path, f"is a table of {container_of(path).endings[0][1:]}: {lacks(package)}") from None
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise InputError(path, error.strerror or str(error)) from None

    def __iter__(self):
        for path in self.paths:
            self.stream = stream = Stream(path)
            try:
                yield from container_of(path).read(stream, self.separator)
            except UnicodeDecodeError as error:
                raise InputError(path, not_utf8(error)) from None
            except UNREADABLE as error:
                raise InputError(path, f"cannot be read: {error}") from None
            finally:
                stream.close()
                self.stream, self.done = None, self.done + stream.size

    def share(self):
        """About how much has been read, from 0 to 1; None if that is not known."""
        of_file = self.stream and self.stream.share()
        return None if of_file is None or self.bytes == 0 else (self.done + of_file * self.stream.size) / self.bytes
