"""Event files of TensorBoard.

They are written here and not by the package tensorboard, which nodes of a cluster seldom have: a file is a sequence of framed
protobuf messages (TFRecord), of which a few fields are enough.
"""

import os
import pathlib
import socket
import struct
import time


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC = crc_table()


def masked_crc(data):
    """CRC-32C, turned and moved, as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


# Fields of protobuf messages.


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def whole(field, number):
    return varint(field << 3) + varint(number)


def double(field, number):
    return varint(field << 3 | 1) + struct.pack("<d", number)


def single(field, number):
    return varint(field << 3 | 5) + struct.pack("<f", number)


def nested(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def event(when, step, *fields):
    return double(1, when) + whole(2, step) + b"".join(fields)


def scalars(numbers):
    """The summary of an event."""
    return nested(5, b"".join(nested(1, nested(1, name) + single(2, value)) for name, value in numbers.items()))


def json_value(value):
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return whole(4, int(value))
    return double(2, value) if isinstance(value, (int, float)) else nested(3, value if isinstance(value, str) else str(value))


def hyperparameters(deck, name, when):
    """The summary by which the page HPARAMS knows a run's settings."""
    pairs = (nested(1, nested(1, key) + nested(2, json_value(value))) for key, value in deck.items())
    session = b"".join(pairs) + nested(4, name) + double(5, when)
    content = nested(3, session)  # HParamsPluginData.session_start_info
    metadata = nested(1, nested(1, "hparams") + nested(2, content)) + whole(4, 2)
    tensor = whole(1, 1) + nested(2, b"") + single(5, 0.0)  # a float, which nobody reads
    return nested(5, nested(1, nested(1, "_hparams_/session_start_info") + nested(9, metadata) + nested(8, tensor)))


START = nested(7, whole(1, 1))  # SessionLog.START: TensorBoard forgets what it had read from this step on
LARGEST = 3.4028234e38


class TensorBoard:
    """One event file, which takes the place of an earlier one of this tool."""

    def __init__(self, output, name, deck):
        self.output, now = pathlib.Path(output), time.time()
        self.output.mkdir(parents=True, exist_ok=True)
        before = sorted(self.output.glob("events.out.tfevents.*.ztrain"))
        number = max([int(now), *(int(path.name.split(".")[3]) + 1 for path in before)])
        path = self.output / f"events.out.tfevents.{number:010}.{socket.gethostname()}.{os.getpid()}.ztrain"
        self.file = open(path, "wb")
        for event_ in ((nested(3, "brain.Event:2"),), (START,), *([(hyperparameters(deck, name, now),)] if deck else [])):
            self.file.write(record(event(now, 0, *event_)))
        for old in before:
            old.unlink(missing_ok=True)

    def add(self, row):
        numbers = {name: value for name, value in row.numbers.items() if abs(value) <= LARGEST}
        if numbers:
            self.file.write(record(event(row.time, row.step, scalars(numbers))))

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()
        return f"tensorboard --logdir {self.output}"
