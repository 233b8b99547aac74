"""Records of JSON files: one on each line, or all in one document."""

import json
import re

from .streams import InputError, Raw, name_unpacked

PIECE = 1 << 16  # characters that are read at once


def breaks_off(error, text):
    """Is an error that of a text whose end is missing?"""
    return error.msg.startswith("Unterminated string") or error.pos >= len(text) - 16


class Scanner:
    """Reads a file of JSON values that may lie over several lines, with little more than one of them in memory."""

    SPACE = re.compile(r"[ \t\r\n]*")

    def __init__(self, path, file, begun):
        """begun: what has been read of the file."""
        self.path, self.file, self.text, self.at, self.line = path, file, begun, 0, 1
        self.decoder = json.JSONDecoder()

    def more(self):
        """Reads as much again as is there; False at the end of the file."""
        piece = self.file.read(max(PIECE, len(self.text) - self.at))
        self.text, self.at = self.text[self.at :] + piece, 0
        return bool(piece)

    def take(self, end):
        taken = self.text[self.at : end]
        self.line, self.at = self.line + taken.count("\n"), end
        return taken

    def next(self):
        """The next character that is no space, which stays; "" at the end."""
        while True:
            self.take(self.SPACE.match(self.text, self.at).end())
            if self.at < len(self.text) or not self.more():
                return self.text[self.at : self.at + 1]

    def value(self):
        """The text of the next value."""
        while True:
            try:
                end = self.decoder.raw_decode(self.text, self.at)[1]
                if end < len(self.text) or not self.more():
                    return self.take(end)
            except json.JSONDecodeError as error:
                if not (breaks_off(error, self.text) and self.more()):
                    line = self.line + self.text.count("\n", self.at, error.pos)
                    near = self.text[max(self.at, error.pos - 20) : error.pos + 20]
                    raise InputError(f"{self.path}:{line}", f"is not JSON: {error.msg}, near {near!r}") from None
            except (RecursionError, ValueError) as error:
                raise InputError(f"{self.path}:{self.line}", f"cannot be read as JSON: {error}") from None

    def values(self):
        """Raws of the members of a list, or of values one behind the other."""
        listed = self.next() == "["
        self.at += listed
        while self.next() not in ("]" if listed else "",):
            where = f"{self.path}:{self.line}"
            yield Raw("json", self.value(), where)
            if listed and self.next() not in (",", "]"):
                raise InputError(f"{self.path}:{self.line}", "is not JSON: Expecting ',' or ']' in its list")
            self.at += listed and self.next() == ","
        self.at += listed
        if self.next():
            raise InputError(f"{self.path}:{self.line}", "is not JSON: something follows its list")


def is_document(path, begun):
    """Does a file hold one JSON document, by its first line? Else a value stands on each line."""
    if begun.lstrip().startswith("["):
        return True
    try:
        json.loads(begun)
    except json.JSONDecodeError as error:
        return name_unpacked(path).suffix.lower() == ".json" and bool(begun.strip()) and breaks_off(error, begun)
    except (RecursionError, ValueError):
        pass
    return False


def json_values(stream, separator):
    file = stream.text()
    number, begun = 1, file.readline(PIECE)
    while begun and not begun.strip():
        number, begun = number + begun.count("\n"), file.readline(PIECE)
    if not begun:
        return
    if is_document(stream.path, begun):
        scanner = Scanner(stream.path, file, begun)
        scanner.line = number
        yield from scanner.values()
        return
    whole = begun if begun.endswith("\n") else begun + file.readline()
    yield Raw("json", whole, f"{stream.path}:{number}")
    for number, line in enumerate(file, number + 1):
        if line.strip():
            yield Raw("json", line, f"{stream.path}:{number}")
