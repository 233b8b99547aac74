"""What a disk has after a loss of power, from the journal of faulty_files.cpp: changes that were not synced are taken
back. Bytes of a file are those of its last sync, or cut short; names in a folder (new, removed, renamed) are those of the
folder's last sync. A file system may keep more than that of any file or folder, so several ways are tried."""

import dataclasses
import itertools
import os
import pathlib
import shutil

# Bytes that were not synced: they are there after all; none is; half of the file is; every other page is, as where writes
# past the page cache and through it have come to the disk in another order.
BYTES = ("kept", "dropped", "cut", "pages")
PAGE = 4096
# Names that were not synced are taken back: in no folder; in the folder of checkpoints; in those below it; in all.
NAMES = ("kept", "taken back above", "taken back below", "taken back")
WAYS = list(itertools.product(BYTES, NAMES))


@dataclasses.dataclass
class Entry:
    time: int
    rank: int
    number: int
    call: str
    path: pathlib.Path
    what: str

    def __str__(self):
        return f"call {self.number} of rank {self.rank}, {self.call} {self.path}"


def journal(paths):
    """The calls of all processes, in their order, but for those on memory, which no loss of power leaves."""
    entries = []
    for path in paths:
        for line in path.read_text().splitlines():
            time, rank, number, call, name, what = line.split("\t")
            if what == "killed" or not name.startswith("/memfd:"):
                entries.append(Entry(int(time), int(rank), int(number), call, pathlib.Path(name), what))
    return sorted(entries, key=lambda entry: entry.time)


def unsynced_files(entries):
    """Inodes with bytes that were written and not synced."""
    dirty = set()
    for entry in entries:
        word, _, inode = entry.what.partition(" ")
        if word == "changed" or (word == "named" and entry.call == "open"):
            dirty.add(int(inode))
        elif word == "synced":
            dirty.discard(int(inode))
    return dirty


def unsynced_names(entries):
    """Changes of names behind the last sync of their folder, the last first."""
    pending = []
    for entry in entries:
        if entry.what.startswith("named"):
            pending.append(entry)
        elif entry.what.startswith("names synced"):
            pending = [e for e in pending if e.path.parent != entry.path]
    return pending[::-1]


def mixed(before, now):
    """Pages of both, by turns; behind the end of what was synced there are zeros."""
    before = before.ljust(len(now), b"\0")
    pages = range(0, len(now), PAGE)
    return b"".join((now if at // PAGE % 2 else before)[at : at + PAGE] for at in pages)[: len(now)]


def lose_bytes(folder, shadow, dirty, inodes, how):
    for name, inode in inodes.items():
        path, synced = folder / name, shadow / f"synced.{inode}"
        if inode not in dirty:
            continue
        before = synced.read_bytes() if synced.exists() else b""
        now = path.read_bytes()
        if how == "pages":
            path.write_bytes(mixed(before, now))
        else:
            path.write_bytes(now[: len(now) // 2] if how == "cut" and not before else before)


def now_at(path, renames):
    """Where it is, after these."""
    for entry in renames:
        if path == entry.path or entry.path in path.parents:
            path = pathlib.Path(entry.what.removeprefix("named ")) / path.relative_to(entry.path)
    return path


def take_back(entry, later):
    path, detail = now_at(entry.path, later), entry.what.removeprefix("named").strip()
    if entry.call == "rename":
        if pathlib.Path(detail).exists():
            os.rename(detail, path)
    elif entry.call == "mkdir":
        shutil.rmtree(path, ignore_errors=True)
    elif entry.call == "open":
        path.unlink(missing_ok=True)
    elif entry.call == "unlink":
        if path.parent.is_dir() and not path.exists():
            shutil.copyfile(detail, path)
    elif entry.call == "rmdir" and path.parent.is_dir():
        path.mkdir(exist_ok=True)


def lose(folder, shadow, entries, way, inodes):
    """Makes the folder, as it was when the process ended, what it is once the machine is back. inodes: of its files when
    the process ended, by their names in it."""
    how, names = way
    if how != "kept":
        lose_bytes(folder, shadow, unsynced_files(entries), inodes, how)
    lost = [
        entry
        for entry in unsynced_names(entries)
        if names == "taken back"
        or (names != "kept" and (entry.path.parent == folder) == (names == "taken back above"))
    ]
    kept = [e for e in entries if e.call == "rename" and e.what.startswith("named") and e not in lost]
    for entry in lost:
        take_back(entry, [e for e in kept if e.time > entry.time])
