"""The code blocks of the Markdown pages: indented by four spaces, in runs of shell commands and of TOML.

A comment that is not shown may stand before a block:
  <!-- not run: WHY -->    commands that a test cannot run; they are parsed
  <!-- text: WHAT -->      neither commands nor TOML
  <!-- file: NAME -->      TOML that later commands of the page find under this name
"""

import pathlib
import re
from dataclasses import dataclass

MARK = re.compile(r"<!-- (not run|text|file): (\S.*) -->$")


@dataclass
class Block:
    page: str
    line: int  # of its first line, from 1
    kind: str  # "shell" or "toml"; "text" where a mark says so
    mark: str  # "not run", "text", "file" or ""
    why: str  # what the mark says
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def kind_of(lines):
    return "toml" if re.fullmatch(r"\[[a-z_]+\]", lines[0].strip()) else "shell"


def parts_of(lines, first):
    """(line, kind, lines): neighbouring paragraphs of one kind are one part."""
    parts, start = [], 0
    while start < len(lines):
        if not lines[start].strip():
            start += 1
            continue
        end = start
        while end < len(lines) and lines[end].strip():
            end += 1
        paragraph = [line[4:] for line in lines[start:end]]
        kind = kind_of(paragraph)
        if parts and parts[-1][1] == kind:
            parts[-1][2].extend(["", *paragraph])
        else:
            parts.append((first + start, kind, paragraph))
        start = end
    return parts


def mark_before(lines, index):
    """The mark on the last line with text before a block."""
    above = [line for line in lines[:index] if line.strip()]
    found = MARK.match(above[-1]) if above else None
    return (found[1], found[2]) if found else ("", "")


def blocks_of(page, name):
    lines = pathlib.Path(page).read_text().splitlines()
    blocks, index = [], 0
    while index < len(lines):
        if not lines[index].startswith("    ") or (index > 0 and lines[index - 1].strip()):
            index += 1
            continue
        end = index
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
            end += 1
        mark, why = mark_before(lines, index)
        if mark == "text":
            blocks.append(Block(name, index + 1, "text", mark, why, "\n".join(lines[index:end])))
        else:
            for line, kind, part in parts_of(lines[index:end], index + 1):
                blocks.append(Block(name, line, kind, mark, why, "\n".join(part) + "\n"))
        index = end
    return blocks
